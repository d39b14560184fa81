"""Parquet in and out: the one door to DuckDB's reader and writer."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from pathlib import Path

import duckdb

_BATCH = 1024


def parquet_rows(path: Path) -> Iterator[bytes]:
    """Each row of a Parquet file as a JSON object, streamed. Raises `ValueError` when the file is no Parquet."""
    connection = _connect()
    try:
        cursor = connection.execute("SELECT to_json(r)::VARCHAR FROM read_parquet(?) AS r", [str(path)])
        while batch := cursor.fetchmany(_BATCH):
            for (text,) in batch:
                yield text.encode()
    except duckdb.Error as error:
        raise ValueError(str(error).splitlines()[0]) from error
    finally:
        connection.close()


def write_parquet(jsonl: Path, destination: Path, columns: dict[str, str]) -> None:
    """Turn JSON lines into a Parquet file with these columns (name → DuckDB type); other keys are left out.

    Raises `OSError` when it cannot be written.
    """
    connection = _connect()
    try:
        spec = ", ".join(f"'{name}': '{kind}'" for name, kind in columns.items())
        options = f"format='newline_delimited', columns={{{spec}}}, maximum_object_size=268435456"
        reader = f"read_json('{_quoted(jsonl)}', {options})"
        connection.execute(
            f"COPY (SELECT * FROM {reader}) TO '{_quoted(destination)}' (FORMAT parquet, COMPRESSION zstd)"
        )
    except duckdb.Error as error:
        raise OSError(errno.EIO, str(error).splitlines()[0]) from error
    finally:
        connection.close()


def _quoted(path: Path) -> str:
    return str(path).replace("'", "''")


def _connect() -> duckdb.DuckDBPyConnection:
    """One thread, and never an extension from the network: what is needed is in the wheel."""
    return duckdb.connect(
        config={"threads": "1", "autoinstall_known_extensions": "false", "preserve_insertion_order": "true"}
    )
