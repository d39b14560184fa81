"""What polls of a server say over time: rates from counters, and whether it still makes progress."""

from __future__ import annotations

import time

from msgspec.structs import replace

from genmon.fleet.http import SglangHttp
from genmon.fleet.metrics import Metrics
from genmon.state import ServerState

_RATE_OVER_S = 3.0
"""A rate is taken over at least this long, so that one poll that came late does not look like a stall."""
NO_METRICS = "without --enable-metrics: counts are from /v1/loads, token counts are unknown"


class Pulse:
    """Polls one launch of one server; the last good values stay, with their age, when a poll fails."""

    def __init__(self, http: SglangHttp) -> None:
        """`http` is closed by its owner."""
        self._http = http
        self._decoded: list[tuple[float, float]] = []
        self._progress: object = None
        self._progressed_at = time.monotonic()
        self._readable = False
        self._busy = False

    async def take(self, state: ServerState, in_flight: int) -> ServerState:
        """The state after one poll. Raises `ServerError` when the server does not answer."""
        if not in_flight or not self._busy:  # work that has just come cannot be late
            self.progressed()
        self._busy = in_flight > 0
        metrics = await self._http.metrics()
        if metrics is None:
            loads = await self._http.loads()
            # Used tokens grow with each decoded one, also when no throughput is reported.
            self._note((loads.running, loads.queued, loads.used_tokens))
            return replace(
                state,
                reason=NO_METRICS,
                running=loads.running,
                queued=loads.queued,
                tokens_per_s=loads.tokens_per_s,
                taken_at=time.time(),
            )
        # A long prompt is progress too: SGLang computes waiting prompts before it decodes.
        counters = (metrics.decode_tokens, metrics.prefill_tokens)
        moved = counters != self._progress
        if counters != (None, None):
            self._note(counters)
        if not in_flight and not moved:
            metrics = await self._idle(metrics)
        # With nothing running the gauge still holds what the last request had.
        speculating = state.mtp and metrics.acceptance_length and metrics.running
        return replace(
            state,
            reason=None if state.reason == NO_METRICS else state.reason,
            running=_whole(metrics.running),
            queued=_whole(metrics.queued),
            tokens_per_s=self._rate(metrics.decode_tokens, time.monotonic()),
            decode_tokens=_whole(metrics.decode_tokens),
            acceptance_length=metrics.acceptance_length if speculating else None,
            kv_usage=metrics.kv_usage,
            mamba_usage=metrics.mamba_usage,
            prefill_tokens=_whole(metrics.prefill_tokens),
            retracted_tokens=_whole(metrics.retracted_tokens),
            grammar_queued=_whole(metrics.grammar_queued),
            cache_hit_rate=metrics.cache_hit_rate,
            # The page has only the kinds that there were: the other is 0.
            passes_graphed=_whole(
                metrics.passes_graphed if metrics.passes_eager is None else metrics.passes_graphed or 0
            ),
            passes_eager=_whole(metrics.passes_eager if metrics.passes_graphed is None else metrics.passes_eager or 0),
            taken_at=time.time(),
        )

    async def _idle(self, metrics: Metrics) -> Metrics:
        """The page of a server that seems to do nothing, with its gauges put right.

        SGLang writes the gauges at each batch: when there is none any more the page keeps the last one's, one request
        running and half of the mamba states taken, for half a minute and longer (seen on an H200). The scheduler's own
        word in `/v1/loads` is of now; the shares in use are not in it.
        """
        loads = await self._http.loads()
        metrics.running, metrics.queued = float(loads.running), float(loads.queued)
        if not loads.running:
            metrics.full_token_usage = metrics.token_usage = metrics.mamba_usage = None
        return metrics

    def progressed(self) -> None:
        """Note that it made progress, or had nothing to do."""
        self._progressed_at = time.monotonic()

    def stalled_s(self) -> float:
        """Seconds without a token although there was work; 0 while progress was never readable."""
        return time.monotonic() - self._progressed_at if self._readable and self._busy else 0.0

    def _note(self, progress: object) -> None:
        self._readable = True
        if progress != self._progress:
            self._progress = progress
            self.progressed()

    def _rate(self, decoded: float | None, now: float) -> float | None:
        """Tokens per second from the counter; None before two readings and after the counter went backwards."""
        if decoded is None:
            return None
        if self._decoded and decoded < self._decoded[-1][1]:
            self._decoded.clear()
        self._decoded.append((now, decoded))
        while len(self._decoded) > 2 and now - self._decoded[1][0] >= _RATE_OVER_S:
            self._decoded.pop(0)
        (first_at, first), (last_at, last) = self._decoded[0], self._decoded[-1]
        return (last - first) / (last_at - first_at) if last_at > first_at else None


def _whole(value: float | None) -> int | None:
    return None if value is None else round(value)
