"""`genmon tells`: the table of rules, and where each stands in a run."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from genmon.state import State
    from genmon.tells.table import Give, Row


@click.command()
@click.argument("where", required=False, type=click.Path(path_type=Path), metavar="[RUN.toml | DIR]")
@click.option("--inputs", is_flag=True, help="What a rule of your own can ask for.")
def tells(where: Path | None, inputs: bool) -> None:
    """List what genmon looks for: level, rule, what it looks for in words, what mends it.

    With a run file its own rules (tells.rules) are among them; with the directory of a run that goes on, each
    rule says where it stands: TOLD, ok, or ? when it cannot be checked, and why.
    """
    from genmon.config.load import load
    from genmon.tells.table import rules

    if inputs:
        click.echo("\n".join(input_lines()))
        return
    state, own = None, None
    if where is not None and where.is_dir():
        state = asyncio.run(_look(where))
    elif where is not None:
        own = load(where).tells.rules
    click.echo("\n".join(rule_lines(rules(Path(own) if own else None), state)))


async def _look(at: Path) -> State:
    from genmon.wire.client import SocketLink

    async with SocketLink(at) as link:
        return await link.first()


def rule_lines(rows: Sequence[Row], state: State | None) -> Iterator[str]:
    """Each rule: where it stands (with a run's state), its level, id, what it looks for, and what it prescribes."""
    told = {tell.id: tell for tell in state.tells} if state else {}
    unknown = {each.rule: each.reason for each in state.not_checked} if state else {}
    width = max(len(row.id) for row in rows)
    for row in rows:
        mark = "" if state is None else "TOLD " if row.id in told else "?    " if row.id in unknown else "ok   "
        flags = f" [{_flags(row.rule.give)}]" if row.rule.give else ""
        yield f"{mark}{row.rule.level.value:<5} {row.id:<{width}}  {row.rule.looks_for}; {row.rule.mend}{flags}"
        if row.id in told:
            yield f"      {told[row.id].sentence}"
        elif row.id in unknown:
            yield f"      not checked: {unknown[row.id]}"


def input_lines() -> Iterator[str]:
    """Each input that a signature can ask for."""
    from genmon.tells.inputs import JOB, SERVER

    for scope, inputs in (("server", SERVER), ("job", JOB)):
        yield f'scope = "{scope}"'
        for name, each in inputs.items():
            yield f"  {name:<22} {each.unit:<8} {each.meaning} ({each.source})"


def _flags(give: Give) -> str:
    parts = [f"{name}={value}" if value is not True else name for name, value in give.set.items()]
    parts += [f"no {name}" for name in give.unset]
    if give.mtp is not None:
        parts.append("MTP on" if give.mtp else "MTP off")
    if give.concurrency is not None:
        parts.append(f"concurrency {give.concurrency}")
    return ", ".join(parts) or "restart"
