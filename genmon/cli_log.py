"""The commands that ask the run log: their options, and what they print."""

from __future__ import annotations

import shutil
import sys
import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import click

from genmon.errors import ConfigError

if TYPE_CHECKING:
    from genmon.runlog.questions import RunLine

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

    found = questions.runs(_path(log), limit)
    if as_json:
        for line in found:
            click.echo(msgspec.json.encode(line))
        return
    click.echo(
        _table(("run", "state", "rows", "tok/s", "W/GPU", "J/token", "accept", "kWh", "took"), map(_line, found))
    )


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


COMMANDS = (runs, sql)


def _line(run: RunLine) -> tuple[str, ...]:
    from genmon.figures import count, decimal, duration

    return (
        run.run,
        run.state + (" SIMULATED" if run.simulated else ""),
        f"{count(run.rows_done)}/{count(run.rows_total)}",
        count(run.tokens_per_s),
        decimal(run.power_w, 0),
        decimal(run.joules_per_token),
        decimal(run.acceptance_length),
        decimal(run.energy_kwh, 3),
        duration(run.seconds),
    )


def _table(heads: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    """Aligned columns: the first two to the left, figures to the right."""
    lines = [heads, *rows]
    widths = [max(len(line[column]) for line in lines) for column in range(len(heads))]
    return "\n".join(
        "  ".join(
            cell.ljust(width) if column < 2 else cell.rjust(width)
            for column, (cell, width) in enumerate(zip(line, widths, strict=True))
        ).rstrip()
        for line in lines
    )
