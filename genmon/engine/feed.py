"""The queue of rows: what came back first, then the job's next ones, read ahead by a thread in small chunks."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterator
from itertools import islice

from genmon.job.row import Row

_CHUNK = 256
"""Rows read ahead: enough that the thread is asked a few times a second at most, small beside what is in flight."""


class RowFeed:
    """Rows to generate, in the job's order, with returned rows ahead of fresh ones."""

    def __init__(self, pending: Iterator[Row]) -> None:
        self._pending = pending
        self._returned: deque[Row] = deque()
        self._fresh: deque[Row] = deque()
        self._reading: asyncio.Task[None] | None = None
        self._exhausted = False
        self.on_rows = asyncio.Event()
        """Set whenever a row may have become available, or the last one was read."""
        self.trouble: BaseException | None = None
        """What stopped the reader, if anything did."""

    @property
    def empty(self) -> bool:
        """True once every row was handed out and none was given back."""
        return self._exhausted and not self._fresh and not self._returned

    def take(self) -> Row | None:
        """The next row, or None when there is none at hand; then `on_rows` tells when to ask again."""
        if len(self._fresh) < _CHUNK // 2 and not self._exhausted and self._reading is None:
            self._reading = asyncio.create_task(self._read())
        if self._returned:
            return self._returned.popleft()
        return self._fresh.popleft() if self._fresh else None

    def give_back(self, row: Row) -> None:
        """Return a row that was not finished; it is handed out again before any fresh one."""
        self._returned.append(row)
        self.on_rows.set()

    async def close(self) -> None:
        """Wait for the reader's current chunk, so that nothing reads the job after it is closed."""
        if self._reading is not None:
            await asyncio.wait([self._reading])

    async def _read(self) -> None:
        try:
            chunk = await asyncio.to_thread(lambda: list(islice(self._pending, _CHUNK)))
        except Exception as error:  # noqa: BLE001 - kept, and raised by the engine as the reason the run stopped
            self.trouble, chunk = error, []
        self._fresh.extend(chunk)
        self._exhausted = not chunk
        self._reading = None
        self.on_rows.set()
