"""The one thread that writes: batches of settled rows to their files, fsynced, then told as durable.

A batch is all or nothing: until every file of it is synced no length is advanced, so that after an error (a full
disk) the same bytes are written to the same places again, and a torn write is overwritten.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Generic, TypeVar

from genmon.job.manifest import sync_directory

_GROUP_S = 0.25
"""How long a row may wait for company before the group is synced; the contract is one second."""
_RETRY_S = 1.0
_OPEN_MAX = 64
_CLOSE_PATIENCE_S = 30.0


Item = TypeVar("Item")


class Writer(Generic[Item]):
    """Writes items to files in groups.

    `lines` turns a batch into (path, bytes) pairs, to be written and synced in that order; `durable` is called
    in the writer's thread once they are on disk.
    """

    def __init__(
        self, lines: Callable[[list[Item]], list[tuple[Path, bytes]]], durable: Callable[[list[Item]], None]
    ) -> None:
        """Starts the thread."""
        self._lines, self._durable = lines, durable
        self._pending: list[Item] = []
        self._condition = threading.Condition()
        self._closing = False
        self._open: dict[Path, tuple[int, int]] = {}
        self.trouble: str | None = None
        """What keeps rows from being written, in one sentence; None when all is well."""
        self._thread = threading.Thread(target=self._run, name="writer", daemon=True)
        self._thread.start()

    def submit(self, item: Item) -> None:
        """Hand over an item; never blocks."""
        with self._condition:
            self._pending.append(item)
            if len(self._pending) == 1:
                self._condition.notify()

    def close(self) -> None:
        """Write what is left and end the thread. On a disk that stays full it gives up after half a minute."""
        with self._condition:
            self._closing = True
            self._condition.notify()
        self._thread.join()

    def _run(self) -> None:
        try:
            self._serve()
        except BaseException as error:
            # A writer that ended in silence would be a run that looks alive and keeps nothing.
            self.trouble = f"Rows are written no more ({error!r}): end the run and start it again"
            raise
        finally:
            self._close_files()

    def _serve(self) -> None:
        while True:
            with self._condition:
                self._condition.wait_for(lambda: self._pending or self._closing)
                if not self._pending:
                    return
                self._condition.wait_for(lambda: self._closing, _GROUP_S)
                batch, self._pending = self._pending, []
            if not self._write_stubbornly(self._lines(batch)):
                return
            self._durable(batch)

    def _write_stubbornly(self, parts: list[tuple[Path, bytes]]) -> bool:
        """Write a batch, however long it takes; False when closing and still not possible."""
        gave_up_at: float | None = None
        while True:
            try:
                self._write(parts)
            except OSError as error:
                where = error.filename or parts[0][0].parent
                self.trouble = f"Rows cannot be written to {where}: {error.strerror}; they are kept and tried again"
            else:
                self.trouble = None
                return True
            if self._closing:
                gave_up_at = gave_up_at or time.monotonic() + _CLOSE_PATIENCE_S
                if time.monotonic() > gave_up_at:
                    self.trouble = (self.trouble or "").partition(";")[0]
                    return False
            with self._condition:
                self._condition.wait(_RETRY_S)

    def _write(self, parts: list[tuple[Path, bytes]]) -> None:
        written: dict[Path, tuple[int, int]] = {}
        for path, data in parts:
            handle, length = written.get(path) or self._handle(path)
            view, at = memoryview(data), length
            while view:
                count = os.pwrite(handle, view, at)
                view, at = view[count:], at + count
            if os.fstat(handle).st_size > at:
                os.ftruncate(handle, at)
            os.fsync(handle)
            written[path] = (handle, at)
        self._open.update(written)
        if len(self._open) > _OPEN_MAX:
            self._close_files()

    def _handle(self, path: Path) -> tuple[int, int]:
        known = self._open.get(path)
        if known is not None:
            return known
        new = not path.exists()
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o644)
        self._open[path] = (handle, os.fstat(handle).st_size)
        if new:
            sync_directory(path.parent)
        return self._open[path]

    def _close_files(self) -> None:
        for handle, _ in self._open.values():
            os.close(handle)
        self._open.clear()
