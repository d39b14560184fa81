"""`genmon ctl`: flags of a running job changed from the command line, and what it brought."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import click

from genmon.commands import CancelChange, Plan, Promote, Restart, Revert
from genmon.errors import Refused

if TYPE_CHECKING:
    from genmon.state import FlagChange, State
    from genmon.wire.client import SocketLink

T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., object])


@click.group()
@click.option(
    "--dir",
    "directory",
    type=click.Path(path_type=Path),
    help="The job directory, where more than one run goes on.",
)
@click.pass_context
def ctl(ctx: click.Context, directory: Path | None) -> None:
    """Change the flags of a running job, GPU by GPU; nothing is lost, and flags that do not serve undo themselves.

    \b
      genmon ctl mtp on --canary                           MTP on the first server, judged against the others
      genmon ctl restart --gpu 0,1 --set max-running-requests=64
      genmon ctl verdict                                   what the last change brought
      genmon ctl promote                                   ... and now for all
    """
    ctx.obj = directory


def _choice(command: F) -> F:
    for option in (
        click.option("--gpu", "gpus", metavar="0,1", help="GPU indices; default: all servers (--canary: the first)."),
        click.option("--server", "servers", metavar="s0,s1", help="Server names, instead of --gpu."),
        click.option("--canary", is_flag=True, help="Judge these against the others; promote or revert afterwards."),
        click.option("--plan", "only_plan", is_flag=True, help="Say what would happen, and do nothing."),
        click.option("--no-wait", is_flag=True, help="Come back at once; genmon ctl verdict tells how it goes."),
    ):
        command = option(command)
    return command


@ctl.command()
@_choice
@click.option("--set", "put", multiple=True, metavar="FLAG[=VALUE]", help="A launch flag; may be given again.")
@click.option("--unset", multiple=True, metavar="FLAG", help="Take a launch flag out; may be given again.")
@click.pass_obj
def restart(
    directory: Path | None,
    gpus: str | None,
    servers: str | None,
    canary: bool,
    only_plan: bool,
    no_wait: bool,
    put: tuple[str, ...],
    unset: tuple[str, ...],
) -> None:
    """Restart servers one after the other, with the same flags or with others."""
    flags: dict[str, str | bool] = {}
    for each in put:
        name, given, value = each.partition("=")
        flags[name] = value if given else True

    def command(names: tuple[str, ...]) -> Restart:
        return Restart(servers=names, set=flags, unset=unset, canary=canary)

    _change(directory, gpus, servers, command, canary=canary, only_plan=only_plan, no_wait=no_wait)


@ctl.command()
@click.argument("switch", type=click.Choice(["on", "off"]))
@_choice
@click.pass_obj
def mtp(
    directory: Path | None,
    switch: str,
    gpus: str | None,
    servers: str | None,
    canary: bool,
    only_plan: bool,
    no_wait: bool,
) -> None:
    """Turn MTP on or off."""

    def command(names: tuple[str, ...]) -> Restart:
        return Restart(servers=names, mtp=switch == "on", canary=canary)

    _change(directory, gpus, servers, command, canary=canary, only_plan=only_plan, no_wait=no_wait)


@ctl.command()
@click.argument("change", type=int, required=False)
@click.option("--json", "as_json", is_flag=True, help="The change with all its figures as one JSON object.")
@click.option("--wait", is_flag=True, help="Wait until the verdict is settled.")
@click.pass_obj
def verdict(directory: Path | None, change: int | None, as_json: bool, wait: bool) -> None:
    """Say what a change brought; without CHANGE, the last one."""
    import msgspec

    async def look(link: SocketLink) -> FlagChange:
        found = _find(await link.first(), change)
        while wait and not (found.verdict and found.verdict.settled) and not link.ended:
            link.arrived.clear()
            await link.arrived.wait()
            assert link.state is not None
            found = _find(link.state, found.id)
        return found

    found = _on_link(directory, look)
    if as_json:
        click.echo(msgspec.json.encode(found).decode())
    else:
        for line in _lines(found):
            click.echo(line)


def _one_more(name: str, kind: type[Promote] | type[Revert] | type[CancelChange], words: str) -> click.Command:
    @click.argument("change", type=int, required=False)
    @click.pass_obj
    def command(directory: Path | None, change: int | None) -> None:
        async def give(link: SocketLink) -> FlagChange | str:
            given = kind(_find(await link.first(), change).id)
            if isinstance(given, CancelChange):
                return await link.do(given)
            _tell(await link.plan(given))
            return await _carry_out(link, given)

        _end(_on_link(directory, give))

    return click.command(name, help=f"{words}; without CHANGE, the last one.")(command)


for _name, _kind, _words in (
    ("promote", Promote, "Apply a change's flags to all other servers"),
    ("revert", Revert, "Give a change's servers their flags from before it"),
    ("cancel", CancelChange, "Give up a change under way"),
):
    ctl.add_command(_one_more(_name, _kind, _words))


def _change(
    directory: Path | None,
    gpus: str | None,
    servers: str | None,
    command: Callable[[tuple[str, ...]], Restart],
    *,
    canary: bool,
    only_plan: bool,
    no_wait: bool,
) -> None:
    async def give(link: SocketLink) -> FlagChange | str | None:
        given = command(_names(await link.first(), gpus, servers, canary=canary))
        _tell(await link.plan(given))
        if only_plan:
            return None
        return await link.do(given) if no_wait else await _carry_out(link, given)

    _end(_on_link(directory, give))


def _names(state: State, gpus: str | None, servers: str | None, *, canary: bool) -> tuple[str, ...]:
    """The servers meant. Raises `Refused` for one that is not there."""
    if servers is not None:
        return tuple(servers.split(","))
    if gpus is None:
        every = tuple(server.name for server in state.servers)
        return every[:1] if canary else every
    of_gpu = {str(server.gpu_index): server.name for server in state.servers}
    missing = [gpu for gpu in gpus.split(",") if gpu not in of_gpu]
    if missing:
        raise Refused(f"No server runs on GPU {', '.join(missing)}; there are: {', '.join(of_gpu)}.")
    return tuple(of_gpu[gpu] for gpu in gpus.split(","))


async def _carry_out(link: SocketLink, command: Restart | Promote | Revert) -> FlagChange | str:
    """Give a command and follow it to its end."""
    before = {change.id for change in (await link.first()).changes}
    sentence = await link.do(command)
    shown = ""
    while not link.ended:
        link.arrived.clear()
        await link.arrived.wait()
        assert link.state is not None
        mine = [change for change in link.state.changes if change.id not in before]
        if mine and mine[0].ended_at is not None:
            return mine[0]
        if mine and mine[0].stage != shown:
            shown = mine[0].stage
            click.echo(f"  {shown}", err=True)
    return f"{sentence} The run ended meanwhile."


def _find(state: State, change: int | None) -> FlagChange:
    found = [each for each in state.changes if change in (None, each.id)]
    if not found:
        raise Refused("No flags were changed lately." if change is None else f"There is no change {change} any more.")
    return found[-1]


def _on_link(directory: Path | None, talk: Callable[[SocketLink], Coroutine[None, None, T]]) -> T:
    from genmon.wire.address import the_one
    from genmon.wire.client import SocketLink

    async def connected() -> T:
        async with SocketLink(the_one(directory, "genmon ctl --dir")) as link:
            return await talk(link)

    return asyncio.run(connected())


def _tell(plan: Plan) -> None:
    click.echo(plan.sentence)
    for server in plan.servers:
        came = [f"+{flag}" for flag in server.after if flag not in server.before]
        went = [f"−{flag}" for flag in server.before if flag not in server.after]
        click.echo(f"  {server.server}: {', '.join([*went, *came]) or 'the same flags'}")


def _lines(change: FlagChange) -> list[str]:
    lines = [f"change {change.id}, {', '.join(change.servers)}: {change.what}: {change.outcome or change.stage}"]
    if change.verdict is not None:
        lines.append(f"{change.verdict.word}: {change.verdict.sentence}")
    return lines


def _end(result: FlagChange | str | None) -> None:
    """Say how it ended; exit code 1 when the flags are not what was asked for."""
    if result is None:
        return
    if isinstance(result, str):
        click.echo(result)
        return
    click.echo("\n".join(_lines(result)))
    raise SystemExit(0 if result.outcome == "done" else 1)
