"""The commands that ask the run log: their options, and what they print."""

from __future__ import annotations

import shutil
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import click

from genmon.errors import ConfigError

F = TypeVar("F", bound=Callable[..., object])


def _log_option(command: F) -> F:
    return click.option(
        "--log",
        "log",
        type=click.Path(path_type=Path),
        metavar="FILE",
        help="Another log than this user's ($XDG_DATA_HOME/genmon/genmon.duckdb): what the run file has in log.path.",
    )(command)


def _path(log: Path | None) -> Path:
    from genmon.runlog.origin import log_path

    return log or log_path()


@click.command()
@_log_option
@click.option("--limit", "-n", type=int, default=20, show_default=True, help="The last so many.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object a run.")
def runs(log: Path | None, limit: int, as_json: bool) -> None:
    """List runs, the newest last: state, rows, tokens/s, watts, J/token, acceptance, kWh."""
    import msgspec

    from genmon.runlog import questions
    from genmon.runlog.words import runs_text

    found = questions.runs(_path(log), limit)
    if as_json:
        for line in found:
            click.echo(msgspec.json.encode(line))
        return
    click.echo(runs_text(found))


@click.command()
@click.argument("query")
@_log_option
@click.option(
    "--format",
    "format_",
    type=click.Choice(["table", "csv", "json", "parquet"]),
    default="table",
    show_default=True,
    help="json is one object a line; parquet needs --output.",
)
@click.option("--json", "as_json", is_flag=True, help="The same as --format json.")
@click.option("--output", "-o", type=click.Path(path_type=Path), help="Write here instead of to standard output.")
def sql(query: str, log: Path | None, format_: str, as_json: bool, output: Path | None) -> None:
    """Ask the run log in SQL, also while runs write to it.

    \b
      genmon sql "FROM run_list"
      genmon sql "SELECT column_name, comment FROM duckdb_columns() WHERE table_name = 'gpu_samples'"
      genmon sql "FROM requests WHERE answer_class = 'loop'" --format parquet -o loops.parquet
    """
    from genmon.runlog import questions

    chosen = "json" if as_json else format_
    if chosen == "parquet" and output is None:
        raise ConfigError("Parquet is not for a terminal: name a file with --output.")
    if chosen == "table" and output is not None:
        raise ConfigError("A table is for reading: choose --format csv, json or parquet to write a file.")
    if chosen == "table":
        click.echo(questions.sql(_path(log), query))
    elif output is not None:
        questions.sql_to_file(_path(log), query, chosen, output)
    else:
        with tempfile.TemporaryDirectory() as folder:
            answer = Path(folder) / "answer"
            questions.sql_to_file(_path(log), query, chosen, answer)
            with answer.open("rb") as file:
                shutil.copyfileobj(file, sys.stdout.buffer)


@click.command()
@click.argument("run")
@_log_option
@click.option("--json", "as_json", is_flag=True, help="All of it as JSON.")
def show(run: str, log: Path | None, as_json: bool) -> None:
    """Show one run: its launches, figures by flag set, answers, tells, commands.

    RUN is a run's key, the beginning of it (the newest that fits), or "last".
    """
    import msgspec

    from genmon.runlog.story import story
    from genmon.runlog.words import story_text

    found = story(_path(log), run)
    click.echo(msgspec.json.encode(found) if as_json else story_text(found))


@click.command()
@click.argument("a")
@click.argument("b", required=False)
@_log_option
@click.option("--json", "as_json", is_flag=True, help="The comparison as JSON.")
def compare(a: str, b: str | None, log: Path | None, as_json: bool) -> None:
    """Compare two runs, launches or flag sets: flags, tokens/s, W, J/token, acceptance, latency, answers.

    \b
      genmon compare demo-20261201-1030 demo-20261202     two runs, by the beginning of their keys
      genmon compare last/s0#1 last/s0#2                  two launches of one server
      genmon compare last                                 the last two flag sets within one run

    Each figure is the mean over ten-second blocks of one server at work, with its n and 95 % interval.
    """
    import msgspec

    from genmon.runlog.figures import compare as compare_sides
    from genmon.runlog.words import comparison_text

    found = compare_sides(_path(log), a, b)
    click.echo(msgspec.json.encode(found) if as_json else comparison_text(found))


@click.command()
@click.argument("run")
@_log_option
@click.option("--output", "-o", type=click.Path(path_type=Path), help="The file; default: RUN.html in this folder.")
@click.option("--json", "as_json", is_flag=True, help="What the page holds, as JSON.")
def report(run: str, log: Path | None, output: Path | None, as_json: bool) -> None:
    """Write one run as a page to send to a colleague: a single HTML file, without network or scripts."""
    import msgspec

    from genmon.runlog.report import page
    from genmon.runlog.story import story

    found = story(_path(log), run, plots=True)
    if as_json:
        click.echo(msgspec.json.encode(found))
        return
    target = output or Path(f"{found.run.run}.html")
    target.write_text(page(found), encoding="utf-8")
    click.echo(f"wrote {target}", err=True)


COMMANDS = (runs, show, compare, report, sql)
