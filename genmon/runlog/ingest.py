"""One segment of a spool into the database: its rows, the run's totals and the position, in one transaction."""

from __future__ import annotations

from pathlib import Path

import duckdb

from genmon.runlog.records import RECORDS
from genmon.runlog.spool import segment_files

_TOTALS = {
    "gpu_samples": """
        UPDATE runs SET energy_j = coalesce(runs.energy_j + new.energy_j, runs.energy_j, new.energy_j),
            gpu_seconds = coalesce(runs.gpu_seconds + new.seconds, runs.gpu_seconds, new.seconds),
            last_seen_at = greatest(last_seen_at, new.seen_at)
        FROM (SELECT run, sum(energy_j) AS energy_j, sum(seconds) FILTER (energy_j IS NOT NULL) AS seconds,
            max(taken_at) AS seen_at FROM new_gpu_samples GROUP BY run) AS new
        WHERE runs.run = new.run
        """,
    "server_samples": """
        UPDATE runs SET decoded_tokens = coalesce(runs.decoded_tokens + new.tokens, runs.decoded_tokens, new.tokens),
            accepted_weight = accepted_weight + new.weight, accepted_sum = accepted_sum + new.accepted,
            last_seen_at = greatest(last_seen_at, new.seen_at)
        FROM (SELECT run, sum(tokens) AS tokens, max(taken_at) AS seen_at,
            coalesce(sum(tokens) FILTER (acceptance_length IS NOT NULL), 0) AS weight,
            coalesce(sum(tokens * acceptance_length), 0) AS accepted
            FROM new_server_samples GROUP BY run) AS new
        WHERE runs.run = new.run
        """,
    "requests": """
        UPDATE runs SET attempts = attempts + new.n, rows_done = rows_done + new.done,
            rows_failed = rows_failed + new.failed, prompt_tokens = runs.prompt_tokens + new.prompt_tokens,
            completion_tokens = runs.completion_tokens + new.completion_tokens,
            last_seen_at = greatest(last_seen_at, new.seen_at)
        FROM (SELECT run, count(*) AS n, count(*) FILTER (outcome = 'done') AS done,
            count(*) FILTER (outcome = 'failed') AS failed,
            coalesce(sum(prompt_tokens) FILTER (outcome = 'done'), 0) AS prompt_tokens,
            coalesce(sum(completion_tokens) FILTER (outcome = 'done'), 0) AS completion_tokens,
            max(started_at + to_milliseconds((latency_s * 1000)::BIGINT)) AS seen_at
            FROM new_requests GROUP BY run) AS new
        WHERE runs.run = new.run
        """,
    "run_ends": """
        UPDATE runs SET ended_at = new.ended_at, outcome = new.outcome, reason = new.reason,
            last_seen_at = new.ended_at
        FROM new_run_ends AS new WHERE runs.run = new.run
        """,
}
"""What a table's new rows add to their run."""


def take_in(connection: duckdb.DuckDBPyConnection, folder: Path, run: str, segment: int) -> None:
    """Take in one segment, unless it is in already: after a kill between commit and deletion it is seen twice.

    A line that the tables cannot hold does not keep the others out: its value becomes NULL, or the line is left out.

    Raises:
        duckdb.Error: nothing of it was taken in.
    """
    row = connection.execute("SELECT max(segment) FROM spool_positions WHERE run = ?", [run]).fetchone()
    position = row[0] if row else None
    if position is not None and position >= segment:
        return
    try:
        _transfer(connection, folder, run, segment, first=position is None)
    except (duckdb.DataError, duckdb.ProgrammingError):
        connection.rollback()
        _transfer(connection, folder, run, segment, first=position is None, lenient=True)


def _transfer(
    connection: duckdb.DuckDBPyConnection,
    folder: Path,
    run: str,
    segment: int,
    *,
    first: bool,
    lenient: bool = False,
) -> None:
    connection.begin()
    for table, path in segment_files(folder, segment).items():
        _stage(connection, table, path, lenient=lenient)
        _insert(connection, table)
        if table in _TOTALS:
            connection.execute(_TOTALS[table])
    if first:
        connection.execute("INSERT INTO spool_positions VALUES (?, ?)", [run, segment])
    else:
        connection.execute("UPDATE spool_positions SET segment = ? WHERE run = ?", [segment, run])
    connection.commit()


def _insert(connection: duckdb.DuckDBPyConnection, table: str) -> None:
    key = RECORDS[table].key
    if table == "run_ends":
        return
    if not key:
        connection.execute(f"INSERT INTO {table} BY NAME SELECT * EXCLUDE (line) FROM new_{table}")
        return
    columns = ", ".join(key)
    connection.execute(f"DELETE FROM {table} WHERE ({columns}) IN (SELECT ({columns}) FROM new_{table})")
    connection.execute(
        f"INSERT INTO {table} BY NAME SELECT * EXCLUDE (line) FROM new_{table} "
        f"QUALIFY row_number() OVER (PARTITION BY {columns} ORDER BY line DESC) = 1"
    )


def _stage(connection: duckdb.DuckDBPyConnection, table: str, path: Path, *, lenient: bool) -> None:
    """Read a segment's file into new_TABLE; `line` numbers its lines."""
    columns = _columns(connection, "runs" if table == "run_ends" else table)
    fields = [name for name in RECORDS[table].__struct_fields__ if name in columns]
    times = [name for name in fields if columns[name] == "TIMESTAMP"]
    shape = ", ".join(f"\"{name}\": '{'DOUBLE' if name in times else columns[name]}'" for name in fields)
    replaced = ", ".join(f'make_timestamp(("{name}" * 1000000)::BIGINT) AS "{name}"' for name in times)
    source = str(path).replace("'", "''")
    connection.execute(
        f"CREATE OR REPLACE TEMP TABLE new_{table} AS SELECT * {f'REPLACE ({replaced})' if replaced else ''}, "
        f"row_number() OVER () AS line FROM read_json('{source}', format = 'newline_delimited', "
        f"maximum_object_size = 67108864, ignore_errors = {lenient}, columns = {{{shape}}}) WHERE run IS NOT NULL"
    )


def _columns(connection: duckdb.DuckDBPyConnection, table: str) -> dict[str, str]:
    """Names and types of a table's columns."""
    rows = connection.execute(
        "SELECT column_name, data_type FROM duckdb_columns() WHERE table_name = ? AND NOT internal", [table]
    )
    return dict(rows.fetchall())
