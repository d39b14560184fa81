"""The file: opened for a moment, by one writer or by readers, never held.

DuckDB lets one process write or several read. Its lock is a POSIX record lock: a process that opens or copies the
file by other means while DuckDB has it open loses the lock without a word, so nothing here ever does.
"""

from __future__ import annotations

import contextlib
import random
import re
import time
from collections.abc import Iterator
from pathlib import Path

import duckdb

from genmon import __version__
from genmon.errors import LogError, LogLocked

_STORAGE = "v1.5.0"
"""Storage format that DuckDB 1.5 and 2 read and write: the command-line tools of 1.5 are still common."""
_WAIT_S = (0.02, 0.15)
"""Between two tries at a locked file, at random: several engines then take turns."""
_READER_S = 15.0
"""A reader's patience: bursts take a twentieth of a second, ten times that on a machine that is overloaded."""
_LOCKED = "Could not set lock on file"
_SQL = Path(__file__).parent / "sql"
SCHEMA = len(list(_SQL.glob("[0-9]*.sql")))
"""The schema that this genmon writes: one migration a version."""


@contextlib.contextmanager
def reading(path: Path, patience_s: float = _READER_S) -> Iterator[duckdb.DuckDBPyConnection]:
    """Open the log to ask it something; `let_go` as soon as the answers are there. An old schema is brought up.

    Raises:
        LogLocked: somebody else has it open all the time.
        LogError: there is none, it cannot be read, or the question is wrong.
    """
    if not path.exists():
        raise LogError(f"There is no run log at {path} yet: the first run makes it.")
    connection = _stubbornly(path, patience_s, read_only=True)
    try:
        if _version(connection) != SCHEMA:
            connection.close()
            with writing(path, patience_s):
                pass
            connection = _stubbornly(path, patience_s, read_only=True)
        yield connection
    except duckdb.Error as error:
        raise LogError(str(error).partition("\n\n")[0]) from error
    finally:
        connection.close()


def let_go(connection: duckdb.DuckDBPyConnection) -> None:
    """Close the file, and keep the connection with its temporary tables: a reader that prints holds up no writer."""
    connection.execute("USE memory; DETACH log")


@contextlib.contextmanager
def writing(path: Path, patience_s: float = 0.0) -> Iterator[duckdb.DuckDBPyConnection]:
    """Open the log for a short burst, made or brought up to this genmon's schema where need be.

    Raises:
        LogLocked: somebody else has it open.
        LogError: it cannot be written, or a newer genmon wrote it.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    connection = _stubbornly(path, patience_s, read_only=False)
    try:
        migrate(connection)
        yield connection
    except duckdb.Error as error:
        raise _translated(path, error) from error
    finally:
        connection.close()


def migrate(connection: duckdb.DuckDBPyConnection, to: int = SCHEMA) -> None:
    """Bring the schema forward to version `to`, and the views with it.

    Raises:
        LogError: it is already beyond.
    """
    version = _version(connection)
    if version > to:
        raise LogError(
            f"The run log was written by a newer genmon (its schema is {version}, this genmon knows {to}): "
            "update genmon, or name another file in log.path."
        )
    if version == to:
        return
    connection.begin()
    for number in range(version + 1, to + 1):
        connection.execute((_SQL / f"{number:04d}.sql").read_text())
        connection.execute("INSERT INTO schema_version VALUES (?, ?, now()::TIMESTAMP)", [number, __version__])
    if to == SCHEMA:
        connection.execute((_SQL / "views.sql").read_text())
    connection.commit()


def _version(connection: duckdb.DuckDBPyConnection) -> int:
    try:
        row = connection.execute("SELECT max(version) FROM schema_version").fetchone()
    except duckdb.CatalogException:
        return 0  # a file just made
    return int(row[0]) if row else 0


def _stubbornly(path: Path, patience_s: float, *, read_only: bool) -> duckdb.DuckDBPyConnection:
    deadline = time.monotonic() + patience_s
    while True:
        try:
            return _connect(path, read_only=read_only)
        except duckdb.Error as error:
            wait_s = random.uniform(*_WAIT_S)
            if _LOCKED not in str(error) or time.monotonic() + wait_s > deadline:
                raise _translated(path, error) from error
        time.sleep(wait_s)


def _connect(path: Path, *, read_only: bool) -> duckdb.DuckDBPyConnection:
    """Never an extension from the network; what is needed is in the wheel."""
    if not read_only:
        return duckdb.connect(
            str(path),
            config={
                "autoinstall_known_extensions": "false",
                "storage_compatibility_version": _STORAGE,
                "threads": "1",
            },
        )
    connection = duckdb.connect(":memory:", config={"autoinstall_known_extensions": "false"})
    try:
        quoted = str(path).replace("'", "''")
        connection.execute(f"ATTACH '{quoted}' AS log (READ_ONLY); USE log")
    except duckdb.Error:
        connection.close()
        raise
    return connection


def _translated(path: Path, error: duckdb.Error) -> LogError:
    text = str(error)
    if _LOCKED in text:
        holder = re.search(r"held in (\S+).*?\(PID (\d+)\)", text)
        who = f"{Path(holder[1]).name} (process {holder[2]})" if holder else "another process"
        return LogLocked(f"The run log {path} is held by {who}: close it there; nothing is lost meanwhile.")
    return LogError(f"The run log {path} cannot be used: {text.splitlines()[0].rstrip('.')}.")
