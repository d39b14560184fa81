"""What the dispatcher knows of each server: its room, what is in flight there, and whether it is to be trusted."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass, field

from genmon.engine.knee import Knee
from genmon.job.row import Row
from genmon.state import ServerPhase, ServerState

_REST_MAX_S = 30.0
_OVERDUE_FACTOR = 3.0
_OVERDUE_MIN_S = 600.0


@dataclass(eq=False)
class Flight:
    """One row in flight: what is expected of it, and where its lane stood when it left."""

    row: Row
    task: asyncio.Task[None]
    expected_tokens: int
    progress_at_start: float
    since: float
    overdue: bool = False


@dataclass
class Lane:
    """One server as the queue sees it."""

    name: str
    state: ServerState
    concurrency: int | None = None
    held: bool = False
    """While True nothing new is sent to it: it is about to be restarted."""
    flights: dict[asyncio.Task[None], Flight] = field(default_factory=dict)
    outstanding_tokens: int = 0
    progress: float = 0.0
    """Tokens that a typical running request has been given since the lane was opened: the clock that
    judges a request, so that a slow server makes nothing overdue."""
    heard_at: float = field(default_factory=time.monotonic)
    failures_in_a_row: int = 0
    resting_until: float = 0.0
    knee: Knee = field(default_factory=Knee)

    @property
    def launch(self) -> str:
        """Which launch of the server answers now."""
        return f"{self.name}#{self.state.launches}"

    @property
    def limit(self) -> int:
        """Rows that may be in flight: what was asked for, never above the server's effective cap.

        None asked for means the knee of the server's throughput (knee.py). A server whose cap nobody could tell
        is trusted with what the run file says, or with one row.
        """
        if self.concurrency is None:
            return self.knee.limit or self.state.cap or 1
        return min(self.concurrency, self.state.cap) if self.state.cap else self.concurrency

    @property
    def room(self) -> int:
        """Rows that may be sent now."""
        if self.held or self.state.phase is not ServerPhase.READY or time.monotonic() < self.resting_until:
            return 0
        return max(0, self.limit - len(self.flights))

    @property
    def invested_tokens(self) -> float:
        """Tokens that the rows in flight have been given: what it would cost to generate them again."""
        return sum(self.progress - flight.progress_at_start for flight in self.flights.values())

    def hear(self, state: ServerState) -> str | None:
        """Take in a new state of the server; a sentence when its concurrency was chosen."""
        now = time.monotonic()
        if state.launches != self.state.launches:
            self.failures_in_a_row, self.resting_until = 0, 0.0
        if state.tokens_per_s and self.flights:
            self.progress += state.tokens_per_s * (now - self.heard_at) / len(self.flights)
        self.state, self.heard_at = state, now
        return self.knee.hear(state, len(self.flights), now) if self.concurrency is None else None

    def failed(self, *, gone: bool) -> None:
        """Note a failed request. A server that cannot be reached, or fails thrice in a row, rests a while."""
        self.failures_in_a_row += 1
        if gone or self.failures_in_a_row >= 3:
            self.resting_until = time.monotonic() + min(_REST_MAX_S, 0.5 * 2 ** min(self.failures_in_a_row, 8))

    def answered(self) -> None:
        """Note an answer: the server is well."""
        self.failures_in_a_row, self.resting_until = 0, 0.0

    def overdue(self) -> list[Flight]:
        """Flights whose server has meanwhile given a typical request several times what they may need."""
        now = time.monotonic()
        return [
            flight
            for flight in self.flights.values()
            if now - flight.since > _OVERDUE_MIN_S
            and self.progress - flight.progress_at_start > _OVERDUE_FACTOR * flight.expected_tokens
        ]
