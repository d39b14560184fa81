"""What the log is asked: each question one read, the file let go before anything is printed."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
from msgspec import Struct

from genmon.errors import LogError
from genmon.runlog.database import let_go, reading
from genmon.runlog.leftovers import take_in_leftovers
from genmon.runlog.spool import lives, spool_root

if TYPE_CHECKING:
    import duckdb

_FORMATS = {"csv": "FORMAT csv, HEADER", "json": "FORMAT json", "parquet": "FORMAT parquet, COMPRESSION zstd"}
Value = object
"""Any value of a column."""


class RunLine(Struct, frozen=True, kw_only=True):
    """One run in the list; the columns are those of the view run_list."""

    run: str
    name: str
    model: str
    host: str
    simulated: bool
    state: str
    started_at: datetime
    """UTC, as all times of the log."""
    seconds: float | None
    rows_total: int | None
    rows_done: int
    rows_failed: int
    attempts: int
    completion_tokens: int
    tokens_per_s: float | None
    power_w: float | None
    joules_per_token: float | None
    acceptance_length: float | None
    energy_kwh: float | None
    genmon: str
    sglang: str | None
    git_revision: str | None
    job_directory: str
    reason: str | None

    @property
    def started_at_s(self) -> float:
        """When it began, Unix seconds."""
        return self.started_at.replace(tzinfo=UTC).timestamp()


def runs(path: Path, limit: int | None = None) -> list[RunLine]:
    """The last `limit` runs, the newest last. Raises `LogError`."""
    catch_up(path)
    with reading(path) as connection:
        query = "FROM (FROM run_list ORDER BY started_at DESC LIMIT ?) ORDER BY started_at"
        found = [msgspec.convert(row, RunLine) for row in records(connection, query, limit or 1 << 62)]
    return [alive(path, line) for line in found]


def catch_up(path: Path) -> None:
    """Take in what killed engines left, so that the answer has it; a log that somebody writes to can wait."""
    with contextlib.suppress(LogError, OSError):
        take_in_leftovers(path)


def alive(path: Path, line: RunLine) -> RunLine:
    """A run that was killed says running until its spool is taken in; its lock knows better."""
    if line.state != "running" or lives(spool_root(path) / line.run):
        return line
    return msgspec.structs.replace(line, state="interrupted")


def records(connection: duckdb.DuckDBPyConnection, query: str, *values: Value) -> list[Mapping[str, Value]]:
    """A query's rows by column name."""
    cursor = connection.execute(query, list(values))
    names = [column[0] for column in cursor.description]
    return [dict(zip(names, row, strict=True)) for row in cursor.fetchall()]


def sql(path: Path, query: str) -> str:
    """Answer a query with a table in text. Raises `LogError`, also when the query is wrong."""
    with reading(path) as connection:
        _ask(connection, query)
        return str(connection.sql("FROM temp.answer"))


def sql_to_file(path: Path, query: str, format_: str, output: Path) -> None:
    """Write a query's answer to a file: csv, json (an object a line) or parquet. Raises `LogError`."""
    with reading(path) as connection:
        _ask(connection, query)
        target = str(output).replace("'", "''")
        connection.execute(f"COPY temp.answer TO '{target}' ({_FORMATS[format_]})")


def _ask(connection: duckdb.DuckDBPyConnection, query: str) -> None:
    connection.execute(f"CREATE TEMP TABLE answer AS FROM ({query.strip().rstrip(';')})")
    let_go(connection)
