"""The run log as the engine sees it: records go in, nothing is ever waited for.

A thread of its own opens the database every few seconds for a short burst. When somebody else holds it, or the disk
is full, the spool goes on and the log catches up later.
"""

from __future__ import annotations

import math
import random
import threading
import time
from pathlib import Path

from genmon.errors import LogError, LogLocked
from genmon.runlog.records import Record
from genmon.runlog.spool import Spool, remove_segment, spool_root

_PERIOD_S = (4.0, 6.0)
"""Between two bursts, at random, so that several engines do not keep in step."""
_RETRY_S = (0.05, 0.4)
_TROUBLE_AFTER_S = 30.0
"""A file held for less is somebody's question, and no trouble."""
_LAST_PATIENCE_S = 10.0
_THIN_FIRST_S = 60.0
_THIN_EVERY_S = 3600.0


class NoLog:
    """A log that cannot be written at all, and why."""

    def __init__(self, trouble: str) -> None:
        """`trouble` is the reason, in one sentence."""
        self.trouble = trouble

    def put(self, record: Record) -> None:
        """Lost."""

    def close(self) -> None:
        """Nothing to close."""


class RunLog:
    """One run's way into the log."""

    def __init__(
        self, path: Path, run: str, secrets: frozenset[str] = frozenset(), thin_after_s: float = math.inf
    ) -> None:
        """`path` is the database, `run` the key of the run; `secrets` never reach a disk. Samples of any run that are
        older than `thin_after_s` seconds become one a minute.

        Raises:
            OSError: the spool beside the database cannot be made.
        """
        self._path, self._run = path, run
        self._spool = Spool(spool_root(path) / run, secrets)
        self._trouble: str | None = None
        self._failing_since: float | None = None
        self._leftovers_due = True
        self._thin_after_s, self._thin_at = thin_after_s, time.monotonic() + _THIN_FIRST_S
        self._wait_s = 0.0
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._flush_for_ever, name="run log", daemon=True)
        self._thread.start()

    @property
    def trouble(self) -> str | None:
        """What keeps the log from being written, in one sentence; None when all is well."""
        return self._spool.trouble or self._trouble

    def put(self, record: Record) -> None:
        """Write a record down; returns at once."""
        self._spool.put(record)

    def close(self) -> None:
        """Write what is left. A database that stays locked is not waited for long: the next start takes the rest in."""
        self._closing.set()
        self._thread.join()
        self._spool.close()
        deadline = time.monotonic() + _LAST_PATIENCE_S
        while not self._flush() and time.monotonic() < deadline:
            time.sleep(random.uniform(*_RETRY_S))
        self._spool.release()

    def _flush_for_ever(self) -> None:
        while not self._closing.wait(self._wait_s):
            self._flush()

    def _flush(self) -> bool:
        """One burst; False when it has to be tried again."""
        try:
            self._take_in()
        except (LogError, OSError) as error:
            now = time.monotonic()
            self._failing_since = self._failing_since or now
            patient = isinstance(error, LogLocked) and now - self._failing_since < _TROUBLE_AFTER_S
            self._trouble = None if patient else str(error)
            self._wait_s = random.uniform(*(_RETRY_S if patient else _PERIOD_S))
            return False
        self._failing_since = self._trouble = None
        self._wait_s = random.uniform(*_PERIOD_S)
        return True

    def _take_in(self) -> None:
        # Imported here: DuckDB takes a third of a second, and only this thread needs it.
        from genmon.runlog.database import writing
        from genmon.runlog.ingest import take_in
        from genmon.runlog.leftovers import take_in_leftovers
        from genmon.runlog.thin import thin

        if self._leftovers_due:
            try:
                take_in_leftovers(self._path)
            except LogLocked:
                raise
            except (LogError, OSError):
                pass  # what one dead engine left must not keep this run out of the log; it stays for the next start
            self._leftovers_due = False
        folder = self._spool.folder
        with writing(self._path) as connection:
            self._spool.turn()
            numbers = self._spool.complete()
            for number in numbers[:1]:
                take_in(connection, folder, self._run, number)
        for number in numbers[1:]:
            remove_segment(folder, number - 1)
            with writing(self._path) as connection:
                take_in(connection, folder, self._run, number)
        if numbers:
            remove_segment(folder, numbers[-1])
        if math.isfinite(self._thin_after_s) and time.monotonic() > self._thin_at and not self._closing.is_set():
            with writing(self._path) as connection:
                more = thin(connection, time.time() - self._thin_after_s)
            self._thin_at = time.monotonic() + (0 if more else _THIN_EVERY_S)


def open_log(path: Path, run: str, secrets: frozenset[str], thin_after_s: float) -> RunLog | NoLog:
    """The log of a run; one that says its trouble when not even a spool can be made."""
    try:
        return RunLog(path, run, secrets, thin_after_s)
    except OSError as error:
        return NoLog(f"This run is not logged: {error.filename or path} cannot be written: {error.strerror}.")
