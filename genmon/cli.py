"""The front door: the command table, and errors turned into one sentence and an exit code.

Heavy libraries are imported inside the commands, so that `genmon --help` answers at once.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from genmon import __version__
from genmon.cli_ctl import ctl
from genmon.cli_log import COMMANDS as LOG_COMMANDS
from genmon.cli_sweep import sweep
from genmon.cli_tells import tells
from genmon.config.overrides import overrides_from, run_options
from genmon.errors import ConfigError, GenmonError, StartError

if TYPE_CHECKING:
    from genmon.batch.run import View
    from genmon.config.schema import RunConfig

_EXIT_CODES = """\b
Exit codes:
  0    complete: every row is done (or was a bad line, listed in skipped.jsonl)
  1    finished, with failed rows (failed.jsonl says why); or a check or verify that found something
  2    usage, or the run file is wrong
  3    could not start, or could not go on
  130  interrupted; the same command goes on where it ended
"""


class FrontDoor(click.Group):
    """A group whose default command is `run`: `genmon RUN.toml --batch` needs no command name."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Put `run` in front of anything that is not a command or a question to genmon itself."""
        if args and args[0] not in self.commands and args[0] not in ("--help", "-h", "--version"):
            args = ["run", *args]
        return super().parse_args(ctx, args)


@click.group(
    cls=FrontDoor,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog=_EXIT_CODES,
)
@click.version_option(__version__, prog_name="genmon")
def genmon() -> None:
    """Run multi-day completion jobs on your own GPUs, and lose nothing.

    \b
      genmon --demo --batch        a whole job on a simulated box, in about a minute
      genmon init > run.toml       a run file for this machine
      genmon check run.toml        could it run?
      genmon --batch run.toml      run it (options: genmon run --help)
      genmon runs                  what ran, how fast, and what it cost
    """


@genmon.command(epilog=_EXIT_CODES)
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
    config = _config(run_file, demo, options)
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


@genmon.command()
@click.option("--output", "-o", type=click.Path(path_type=Path), help="Write here instead of to standard output.")
def init(output: Path | None) -> None:
    """Write a run file for this machine: its GPUs, its SGLang, the prompts in this folder."""
    from genmon.config.starter import starter
    from genmon.gpu.nvml import list_gpus

    try:
        gpus = list_gpus()
    except GenmonError as error:
        click.echo(f"note: {error}", err=True)
        gpus = ()
    text = starter(gpus, Path.cwd(), output.resolve().parent if output else None)
    if output is None:
        click.echo(text, nl=False)
        return
    if output.exists():
        raise ConfigError(f"{output} exists already: choose another name or remove it.")
    output.write_text(text)
    click.echo(f"wrote {output}; next: genmon check {output}", err=True)


@genmon.command()
@click.argument("run_file", type=click.Path(path_type=Path), metavar="RUN.toml")
@run_options
def check(run_file: Path, **options: object) -> None:
    """Say, before anything starts, whether a run could: GPUs, SGLang, flags, ports, disk, prompts."""
    from genmon.check.report import check as check_run

    raise SystemExit(check_run(_config(run_file, False, options), sys.stdout))


@genmon.command()
@click.argument("directory", type=click.Path(path_type=Path), metavar="DIR")
@click.option("--json", "as_json", is_flag=True, help="The report as JSON.")
def verify(directory: Path, as_json: bool) -> None:
    """Prove a job directory: missing, doubled, torn and foreign rows. Exit code 1 if there are any."""
    import msgspec

    from genmon.job.verify import verify as verify_job

    report = verify_job(directory)
    click.echo(msgspec.json.encode(report).decode() if as_json else str(report))
    raise SystemExit(0 if report.clean else 1)


@genmon.command()
@click.argument("directory", type=click.Path(path_type=Path), metavar="DIR")
@click.option(
    "--format",
    "format_",
    type=click.Choice(["specforge", "openai-batch", "parquet"]),
    default="specforge",
    show_default=True,
    help="specforge and DFlash training rows, OpenAI Batch output lines, or Parquet with all that is known of a row.",
)
@click.option("--output", "-o", type=click.Path(path_type=Path), required=True, help="The file to write.")
def export(directory: Path, format_: str, output: Path) -> None:
    """Write the rows done so far to one file; works while the job runs."""
    from genmon.job.export import export as export_job

    rows = export_job(directory, format_, output)
    click.echo(f"{rows:,} rows written to {output}", err=True)


@genmon.command(hidden=True)
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


@genmon.command()
@click.argument("directory", required=False, type=click.Path(path_type=Path), metavar="[DIR]")
def attach(directory: Path | None) -> None:
    """Open the dashboard of a run that goes on; without DIR, of the only one on this machine."""
    from genmon.wire.address import the_one

    _look(the_one(directory, "genmon attach"))


@genmon.command()
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


genmon.add_command(sweep)
genmon.add_command(tells)
genmon.add_command(ctl)
for each in LOG_COMMANDS:
    genmon.add_command(each)


def main() -> None:
    """Run genmon; never shows a traceback for what a user can cause."""
    try:
        genmon.main(standalone_mode=False)
    except GenmonError as error:
        click.echo(f"genmon: {error}", err=True)
        raise SystemExit(error.exit_code) from None
    except click.ClickException as error:
        error.show()
        raise SystemExit(2) from None
    except (click.Abort, KeyboardInterrupt):
        click.echo("genmon: interrupted; the same command goes on where it ended", err=True)
        raise SystemExit(130) from None
    except BrokenPipeError:
        # The reader of our output left (head, less): nothing more can be said to it.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise SystemExit(0) from None
    except OSError as error:
        click.echo(f"genmon: {error.filename or 'the system'}: {error.strerror or error}", err=True)
        raise SystemExit(3) from None


def _config(run_file: Path | None, demo: bool, options: dict[str, object]) -> RunConfig:
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
