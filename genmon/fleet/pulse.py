"""What polls of a server say over time: rates from counters, and whether it still makes progress."""

from __future__ import annotations

import time

from msgspec.structs import replace

from genmon.fleet.http import SglangHttp
from genmon.state import ServerState

_RATE_OVER_S = 3.0
"""A rate is taken over at least this long, so that one poll that came late does not look like a stall."""


class Pulse:
    """Polls one server; the last good values stay, with their age, when a poll fails."""

    def __init__(self, http: SglangHttp) -> None:
        """One launch of one server."""
        self._http = http
        self._counted: list[tuple[float, float]] = []
        self.progressed_at = time.monotonic()
        """When it last decoded a token or had nothing to do, monotonic seconds."""
        self.readable = False
        """Whether progress could be read at all."""

    async def take(self, state: ServerState, in_flight: int) -> ServerState:
        """The state after one poll. Raises `ServerError` when the server does not answer."""
        metrics = await self._http.metrics()
        now = time.monotonic()
        if in_flight == 0:
            self.progressed_at = now
        if metrics is None:
            loads = await self._http.loads()
            self.readable = self.readable or loads.tokens_per_s is not None
            if loads.tokens_per_s:
                self.progressed_at = now
            return replace(
                state,
                running=loads.running,
                queued=loads.queued,
                tokens_per_s=loads.tokens_per_s,
                taken_at=time.time(),
            )
        speculating = state.mtp and metrics.acceptance_length
        return replace(
            state,
            running=_whole(metrics.running),
            queued=_whole(metrics.queued),
            tokens_per_s=self._rate(metrics.decode_tokens, now),
            decode_tokens=_whole(metrics.decode_tokens),
            acceptance_length=metrics.acceptance_length if speculating else None,
            kv_usage=metrics.kv_usage,
            mamba_usage=metrics.mamba_usage,
            taken_at=time.time(),
        )

    def stalled_s(self) -> float:
        """Seconds without a decoded token although there was work; 0 while progress cannot be read."""
        return time.monotonic() - self.progressed_at if self.readable else 0.0

    def _rate(self, decoded: float | None, now: float) -> float | None:
        """Tokens per second from the counter; None before two readings and after the counter went backwards."""
        if decoded is None:
            return None
        self.readable = True
        if self._counted and decoded < self._counted[-1][1]:
            self._counted.clear()
        if self._counted and decoded > self._counted[-1][1]:
            self.progressed_at = now
        self._counted.append((now, decoded))
        while len(self._counted) > 2 and now - self._counted[1][0] >= _RATE_OVER_S:
            self._counted.pop(0)
        (first_at, first), (last_at, last) = self._counted[0], self._counted[-1]
        return (last - first) / (last_at - first_at) if last_at > first_at else None


def _whole(value: float | None) -> int | None:
    return None if value is None else round(value)
