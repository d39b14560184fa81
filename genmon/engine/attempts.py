"""One attempt at a row, as it ended."""

from __future__ import annotations

from enum import StrEnum

from msgspec import Struct

from genmon.engine.generate import Generation
from genmon.job.row import Row


class Fate(StrEnum):
    """What became of an attempt."""

    DONE = "done"
    """Its answer was kept."""
    RETRY = "retry"
    """Its answer was bad; the row is tried again."""
    FAILED = "failed"
    """The row was given up."""
    SERVER = "server"
    """The server failed it; the row went back to the queue."""
    RETURNED = "returned"
    """It was taken back unfinished, and the row went back to the queue."""


class Attempt(Struct, frozen=True, kw_only=True):
    """One attempt at one row."""

    row: Row
    number: int
    launch: str
    """Which launch of which server: `server#number`."""
    started_at: float
    latency_s: float
    fate: Fate
    made: Generation | None = None
    trouble: str | None = None
    """What went wrong, in a sentence."""
