"""How fast the job goes, and when it will be done, with its spread."""

from __future__ import annotations

import math
from collections import deque

_BUCKET_S = 5.0
_BUCKETS = 240
"""20 minutes of history: long enough to average over answers of many minutes, short enough to follow a change."""
_RECENT_S = 60.0


class Pace:
    """Rows per second from buckets of five seconds, and an ETA whose spread is that of the buckets' mean."""

    def __init__(self, started_at: float) -> None:
        """`started_at`: when sending began, in the clock of the later calls, seconds."""
        self._started_at = started_at
        self._buckets: deque[tuple[int, int]] = deque(maxlen=_BUCKETS)

    def add(self, rows: int, at: float) -> None:
        """Note rows that became durable at `at`."""
        number = int((at - self._started_at) // _BUCKET_S)
        if self._buckets and self._buckets[-1][0] == number:
            self._buckets[-1] = (number, self._buckets[-1][1] + rows)
        else:
            self._buckets.append((number, rows))

    def rows_per_s(self, now: float) -> float | None:
        """Rows per second over the last minute; None before the first row."""
        if not self._buckets:
            return None
        span_s = min(_RECENT_S, now - self._started_at)
        first = int((now - span_s - self._started_at) // _BUCKET_S)
        rows = sum(count for number, count in self._buckets if number >= first)
        return rows / max(span_s, 1.0)

    def eta_s(self, remaining: int, now: float) -> tuple[float, float, float] | None:
        """Seconds to go as (expected, low, high), or None while too little is known.

        The mean rate over the history and its standard error; low and high are two errors away. Buckets
        correlate (a long answer spans many), so the error is taken over blocks of twelve where there are enough.
        """
        if remaining <= 0:
            return (0.0, 0.0, 0.0)
        current = int((now - self._started_at) // _BUCKET_S)
        first = max(self._buckets[0][0], current - _BUCKETS) if self._buckets else current
        if current - first < 3:
            return None
        counts = [0] * (current - first)
        for number, rows in self._buckets:
            if first <= number < current:
                counts[number - first] += rows
        block = 12 if len(counts) >= 60 else 1
        sums = [sum(counts[i : i + block]) for i in range(0, len(counts) - block + 1, block)]
        mean = sum(sums) / len(sums)
        if mean <= 0:
            return None
        variance = sum((value - mean) ** 2 for value in sums) / max(len(sums) - 1, 1)
        error = 2 * math.sqrt(variance / len(sums))
        per_row_s = block * _BUCKET_S
        low = remaining * per_row_s / (mean + error)
        high = remaining * per_row_s / (mean - error) if mean > error else math.inf
        return (remaining * per_row_s / mean, low, high)
