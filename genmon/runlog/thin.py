"""Old samples made one a minute: sums (seconds, joules, tokens) stay exact, gauges become means."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import duckdb

_AT_ONCE_S = 3600.0
"""So much of one run is thinned in a burst: a bigger bite would hold the file too long."""
_KEYS = {
    "gpu_samples": ("run", "launch", "gpu_uuid"),
    "server_samples": ("run", "launch", "phase"),
}
_SUMS = frozenset({"seconds", "energy_j", "tokens", "samples"})


def thin(connection: duckdb.DuckDBPyConnection, older_than: float) -> bool:
    """Thin one bite of the samples taken before `older_than` (Unix seconds). Returns whether there was any.

    Raises:
        duckdb.Error: nothing was changed.
    """
    thinned = [_thin(connection, table, older_than) for table in _KEYS]
    return any(thinned)


def _thin(connection: duckdb.DuckDBPyConnection, table: str, older_than: float) -> bool:
    before = older_than // 60 * 60
    oldest = connection.execute(
        f"SELECT epoch(min(taken_at)) FROM {table} "
        "WHERE samples = 1 AND taken_at < make_timestamp((? * 1000000)::BIGINT)",
        [before],
    ).fetchone()
    if oldest is None or oldest[0] is None:
        return False
    start = oldest[0] // 60 * 60
    end = min(before, start + _AT_ONCE_S)
    bite = "taken_at >= make_timestamp((? * 1000000)::BIGINT) AND taken_at < make_timestamp((? * 1000000)::BIGINT)"
    keys = _KEYS[table]
    columns = connection.execute(
        "SELECT column_name, data_type FROM duckdb_columns() WHERE table_name = ? AND NOT internal",
        [table],
    ).fetchall()
    made = ", ".join(_merged(name, kind, keys) for name, kind in columns)
    connection.begin()
    connection.execute(
        f"CREATE OR REPLACE TEMP TABLE thinned AS SELECT {made} FROM {table} WHERE {bite} "
        f"GROUP BY {', '.join(keys)}, date_trunc('minute', taken_at)",
        [start, end],
    )
    connection.execute(f"DELETE FROM {table} WHERE {bite}", [start, end])
    connection.execute(f"INSERT INTO {table} BY NAME FROM thinned")
    connection.commit()
    return True


def _merged(name: str, kind: str, keys: tuple[str, ...]) -> str:
    """How a minute's values of one column become one."""
    if name in keys:
        return name
    if name == "samples":
        # One sample alone in its minute stands for that minute too: it is not thinned again.
        return "greatest(2, sum(samples))::INTEGER AS samples"
    if name == "taken_at":
        return "date_trunc('minute', any_value(taken_at)) AS taken_at"
    if name in _SUMS:
        return f"sum({name}) AS {name}"
    if name == "reasons":
        return "list_sort(list_distinct(flatten(list(reasons)))) AS reasons"
    return f"avg({name}) AS {name}" if kind == "DOUBLE" else f"max({name}) AS {name}"
