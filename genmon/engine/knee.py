"""Automatic concurrency: the fewest rows in flight that give one server nearly its most tokens per second.

More rows in flight make a batch faster until memory runs short (retractions) or the GPU is full; beyond that they
only wait. The server's own cap is the start and usually the answer. Below it, levels are tried downwards, each
measured with the decoder's token counter while the server is full, until one gives less; then the choice stands
until the server's flags, cap or speculation change, or its throughput drifts far from what was measured.
"""

from __future__ import annotations

import math
from statistics import fmean, stdev

from msgspec import Struct

from genmon.state import ServerPhase, ServerState

_STEP = 0.75
"""Each level tried is this share of the one before."""
_SAME = 0.99
"""A level is as good as the best when it gives at least this share of its tokens per second."""
_SMALLEST = 8
"""Below a cap of this, levels are so few that trying them costs more than it brings."""
_SETTLE_S = 10.0
_SLICE_S = 5.0
_SLICES_MIN = 6
_SLICES_MAX = 24
_SURE = 0.005
"""Standard error of a level's mean, relative, that ends its measurement early."""
_FULL = 0.95
_DRIFT = 0.2
_DRIFT_SLICES = 120
_AGAIN_S = 3600.0


class _Key(Struct, frozen=True):
    """What a measurement is valid for."""

    cap: int
    mtp: bool | None
    argv: tuple[str, ...]


class Knee:
    """Follows one server; `limit` is how many rows may be in flight, None while its cap is the limit."""

    def __init__(self) -> None:
        self.limit: int | None = None
        self._key: _Key | None = None
        self._found: dict[_Key, tuple[int, float]] = {}
        self._levels: dict[int, float] = {}
        self._settled_at: float | None = None
        self._restart_measurement()

    def hear(self, state: ServerState, in_flight: int, now: float) -> str | None:
        """Take in a server's state at `now` (monotonic seconds); a sentence when a choice was made."""
        if state.phase is not ServerPhase.READY or state.cap is None or state.decode_tokens is None:
            self._restart_measurement()
            return None
        key = _Key(state.cap, state.mtp, state.argv)
        if key != self._key:
            self._turn_to(key, now)
        wanted = self.limit or key.cap
        if not wanted * _FULL <= in_flight <= wanted or (state.queued or 0) > 0:
            self._restart_measurement()
            return None
        self._measure(state.decode_tokens, now)
        return self._watch(key, now) if self._settled_at is not None else self._search(state.name, key, now)

    def _turn_to(self, key: _Key, now: float) -> None:
        """The server is another one now: what is known of it, or the search anew."""
        self._key, self._levels = key, {}
        known = self._found.get(key)
        self.limit = known[0] if known else None
        self._settled_at = now if known or key.cap < _SMALLEST else None
        self._restart_measurement()

    def _search(self, name: str, key: _Key, now: float) -> str | None:
        slices = self._slices
        if len(slices) < _SLICES_MIN:
            return None
        mean = fmean(slices)
        if len(slices) < _SLICES_MAX and stdev(slices) / math.sqrt(len(slices)) > _SURE * mean:
            return None
        level = self.limit or key.cap
        self._levels[level] = mean
        self._restart_measurement()
        best = max(self._levels.values())
        lower = max(1, math.floor(level * _STEP))
        if mean >= _SAME * best and lower >= _SMALLEST // 2:
            self.limit = lower
            return None
        chosen = min(level for level, rate in self._levels.items() if rate >= _SAME * best)
        self.limit, self._settled_at = chosen, now
        self._found[key] = (chosen, self._levels[chosen])
        if chosen == key.cap:
            return f"{name}: auto concurrency stays at the server's cap of {chosen} ({self._levels[chosen]:,.0f} tok/s)"
        return (
            f"{name}: auto concurrency {chosen} ({self._levels[chosen]:,.0f} tok/s) "
            f"instead of the cap of {key.cap} ({self._levels[key.cap]:,.0f} tok/s)"
        )

    def _watch(self, key: _Key, now: float) -> str | None:
        """After the choice: search again when the work has become another, at most once an hour."""
        known = self._found.get(key)
        assert self._settled_at is not None
        if known is None or len(self._slices) < _DRIFT_SLICES:
            return None
        drift = fmean(self._slices) / known[1] - 1
        self._restart_measurement()
        if abs(drift) > _DRIFT and now - self._settled_at > _AGAIN_S:
            del self._found[key]
            self._turn_to(key, now)
        return None

    def _restart_measurement(self) -> None:
        self._full_since: float | None = None
        self._slice_began: tuple[float, int] | None = None
        self._slices: list[float] = []

    def _measure(self, tokens: int, now: float) -> None:
        if self._full_since is None:
            self._full_since = now
        if now - self._full_since < _SETTLE_S:
            return
        if self._slice_began is None or tokens < self._slice_began[1]:
            self._slice_began = (now, tokens)
        elif now - self._slice_began[0] >= _SLICE_S:
            began_at, began = self._slice_began
            self._slices.append((tokens - began) / (now - began_at))
            self._slice_began = (now, tokens)
