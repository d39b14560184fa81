"""`genmon run` and what goes with a run that goes on: `attach`, `status`, and the hidden `engine`."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from genmon.config.overrides import overrides_from, run_options
from genmon.errors import ConfigError, StartError

if TYPE_CHECKING:
    from genmon.batch.run import View
    from genmon.config.schema import RunConfig

EXIT_CODES = """\b
Exit codes:
  0    complete: every row is done (or was a bad line, listed in skipped.jsonl)
  1    finished, with failed rows (failed.jsonl says why); or a check or verify that found something
  2    usage, or the run file is wrong
  3    could not start, or could not go on
  130  interrupted; the same command goes on where it ended
"""


@click.command(epilog=EXIT_CODES)
@click.argument("run_file", required=False, type=click.Path(path_type=Path), metavar="RUN.toml")
@click.option("--batch", is_flag=True, help="Headless: a progress view on a terminal, plain lines otherwise.")
@click.option("--detach", "-d", is_flag=True, help="Start the run and come back; look with genmon attach or status.")
@click.option("--json", "as_json", is_flag=True, help="With --batch: one JSON object a line.")
@click.option("--demo", is_flag=True, help="Run on a simulated box; no run file and no GPU needed.")
@click.option("--retry-failed", is_flag=True, help="Generate failed rows again.")
@run_options
def run(
    run_file: Path | None,
    batch: bool,
    detach: bool,
    as_json: bool,
    demo: bool,
    retry_failed: bool,
    **options: object,
) -> None:
    """Run a job, or go on with it where it ended, and open its dashboard.

    The run is a process of its own: closing the dashboard or losing the connection leaves it running, and
    genmon attach brings the picture back. With --batch it runs in the foreground instead.

    Done rows are never generated again. Ctrl-C drains: rows in flight finish, then the run ends; a second
    Ctrl-C ends it at once. Neither loses a finished row. A lost connection (SIGHUP) is ignored; SIGUSR1 goes
    on after a pause.
    """
    config = run_config(run_file, demo, options)
    if not batch and not detach and (why := _no_dashboard()):
        click.echo(f"note: no dashboard: {why}; going on as --batch", err=True)
        batch = True
    if not batch:
        from genmon.detached import start

        start(config, retry_failed=retry_failed, slow=lambda: click.echo("opening the job …", err=True))
        if not detach:
            _look(config.output)
            return
        click.echo(f"{config.name} runs in {config.output}; genmon attach {config.output} opens its dashboard")
        return
    from genmon.batch.run import run as run_batch

    outcome = run_batch(config, _view(as_json), retry_failed=retry_failed)
    if not as_json:
        from genmon.batch.summary import summary

        _print(summary(config, outcome))
    raise SystemExit(outcome.exit_code)


@click.command(hidden=True)
@click.argument("directory", type=click.Path(path_type=Path))
@click.option("--retry-failed", is_flag=True)
def engine(directory: Path, retry_failed: bool) -> None:
    """Run the engine of a job directory; the run's configuration comes on standard input as JSON."""
    import msgspec

    from genmon.batch.lines import LineView
    from genmon.batch.run import run as run_batch
    from genmon.batch.summary import summary
    from genmon.config.schema import RunConfig

    config = msgspec.json.decode(sys.stdin.buffer.read(), type=RunConfig)
    outcome = run_batch(config, LineView(sys.stdout), retry_failed=retry_failed)
    _print(summary(config, outcome))
    raise SystemExit(outcome.exit_code)


@click.command()
@click.argument("directory", required=False, type=click.Path(path_type=Path), metavar="[DIR]")
def attach(directory: Path | None) -> None:
    """Open the dashboard of a run that goes on; without DIR, of the only one on this machine."""
    from genmon.wire.address import the_one

    found = the_one(directory, "genmon attach")
    if why := _no_dashboard():
        raise StartError(f"No dashboard: {why}; look with genmon status {found}")
    _look(found)


@click.command()
@click.argument("directory", required=False, type=click.Path(path_type=Path), metavar="[DIR]")
@click.option("--json", "as_json", is_flag=True, help="One JSON object a run.")
def status(directory: Path | None, as_json: bool) -> None:
    """Print one look at a run and exit; without DIR, at every run of yours on this machine."""
    import asyncio

    import msgspec

    from genmon.status import status_lines
    from genmon.wire.address import running
    from genmon.wire.client import SocketLink

    async def look(at: Path) -> None:
        async with SocketLink(at) as link:
            state = await link.first()
        if as_json:
            click.echo(msgspec.json.encode({"directory": str(at), **msgspec.to_builtins(state)}).decode())
        else:
            click.echo("\n".join(status_lines(state, str(at))))

    directories = [directory] if directory else [Path(address.directory) for address in running()]
    if not directories:
        raise StartError("No run of yours goes on here: start one with genmon RUN.toml.")
    for each in directories:
        asyncio.run(look(each))


def run_config(run_file: Path | None, demo: bool, options: dict[str, object]) -> RunConfig:
    """The run that the command line names: the embedded default, or a run file with its overrides."""
    from genmon.config.demo import demo_config, write_demo_prompts
    from genmon.config.load import load, override

    overrides = overrides_from(options)
    if demo:
        if run_file is not None:
            raise ConfigError("--demo runs on an embedded default: leave the run file out, or leave --demo out.")
        output = Path(str(options.get("output_file_path") or "genmon-demo")).absolute()
        config = override(demo_config(output), overrides)
        write_demo_prompts(output / "prompts.jsonl")
        return config
    if run_file is None:
        raise ConfigError("Name a run file (genmon --batch RUN.toml), or try genmon --demo --batch.")
    return load(run_file, overrides)


def _no_dashboard() -> str | None:
    """Why no dashboard can be drawn here, or None."""
    if os.environ.get("TERM", "dumb") == "dumb":
        return "the terminal says that it is dumb (TERM)"
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        return "this is not a terminal"
    return None


def _look(directory: Path) -> None:
    from genmon.ui import run as run_dashboard

    run_dashboard(directory)


def _view(as_json: bool) -> View:
    from genmon.batch.lines import JsonView, LineView

    if as_json:
        return JsonView(sys.stdout)
    if sys.stdout.isatty() and os.environ.get("TERM") != "dumb":
        from rich.console import Console

        from genmon.batch.terminal import TerminalView

        return TerminalView(Console())
    return LineView(sys.stdout)


def _print(text: str) -> None:
    try:
        click.echo(text)
    except OSError:
        return  # the terminal is gone; the job directory holds all there is to say
