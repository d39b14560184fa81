"""The recent past of one server or of the run: two minutes by seconds, an hour and a half by spans of 30 s."""

from __future__ import annotations

from collections import deque
from itertools import takewhile
from statistics import median

from genmon.tells.inputs import Reading
from genmon.tells.signature import Value

_SECONDS_KEPT = 130.0
_SPAN_S = 30.0
_SPANS_KEPT = 180
_JOULES_OVER_S = 15.0
_ROWS_OVER_S = 600.0
COUNTERS = frozenset(
    {
        "decoded",
        "prefilled",
        "retracted",
        "passes_graphed",
        "passes_eager",
        "energy_j",
        "power_capped_s",
        "thermal_s",
        "hw_slowed_s",
        "rows_done",
        "tokens",
    }
)
"""Inputs that count up: a step back is a new start from 0, never a loss. A rate of any other input is its change."""

FACTS = frozenset(
    {
        "ready",
        "auto",
        "mtp",
        "mtp_head",
        "overlap",
        "cap",
        "cap_requested",
        "graph_batch",
        "power_limit_w",
        "power_default_limit_w",
        "sm_clock_max_mhz",
    }
)
"""Inputs that are what they are: the newest value counts, whatever was before."""


class Past:
    """Readings, oldest first."""

    def __init__(self) -> None:
        self._seconds: deque[tuple[float, Reading]] = deque()
        self._spans: deque[tuple[float, Reading]] = deque(maxlen=_SPANS_KEPT)
        self._span_from: float | None = None
        self._raw: Reading = {}
        self._counted: dict[str, float] = {}
        self._medians: dict[tuple[str, float], Value] = {}
        self._windows: dict[float, list[tuple[float, Reading]]] = {}
        self._long_medians: dict[tuple[str, float], Value] = {}
        """Kept until the next span is closed."""

    def add(self, at: float, reading: Reading) -> None:
        """Take in a reading; one that is not newer than the last is left out."""
        if self._seconds and at <= self._seconds[-1][0]:
            return
        reading = self._monotone(reading)
        self._seconds.append((at, reading))
        self._medians.clear()
        self._windows.clear()
        if "energy_j" in reading:
            reading["joules_per_token"] = self._ratio("energy_j", "decoded", _JOULES_OVER_S)
        if "rows_done" in reading:
            reading["tokens_per_row"] = self._ratio("tokens", "rows_done", _ROWS_OVER_S)
        if self._span_from is None:
            self._span_from = at
        elif at - self._span_from >= _SPAN_S:
            self._close_span(at)
        while at - self._seconds[0][0] > _SECONDS_KEPT:
            self._seconds.popleft()

    def forget_seconds(self) -> None:
        """What was true of the last launch is not of this one; the spans stay, to compare with."""
        self._seconds.clear()
        self._medians.clear()
        self._windows.clear()
        self._long_medians.clear()
        self._span_from = None

    def latest(self, name: str) -> Value:
        """The newest value."""
        return self._seconds[-1][1].get(name) if self._seconds else None

    def median(self, name: str, over_s: float) -> Value:
        """The median over the last seconds of this launch, by spans beyond two minutes; None before half has passed."""
        if name in FACTS:
            return self.latest(name)
        key, kept = (name, over_s), self._medians if over_s <= _SECONDS_KEPT else self._long_medians
        if key not in kept:
            kept[key] = self._median(name, over_s) if kept is self._medians else self._long_median(name, over_s)
        return kept[key]

    def rate(self, name: str, over_s: float) -> Value:
        """What it gained a second, over at least half of the time asked for."""
        if not self._seconds:
            return None
        at, newest = self._seconds[-1]
        last = newest.get(name)
        if last is None:
            return None
        for first_at, reading in reversed(self._window(over_s)):
            first = reading.get(name)
            if first is not None:
                return (last - first) / (at - first_at) if at - first_at >= over_s / 2 else None
        return None

    def spans(self, name: str, since: float, until: float) -> list[float]:
        """The spans' medians that lie within a time."""
        return [
            float(value)
            for at, reading in self._spans
            if since <= at - _SPAN_S and at <= until and (value := reading.get(name)) is not None
        ]

    def _median(self, name: str, over_s: float) -> Value:
        if not self._seconds:
            return None
        window = self._window(over_s)
        values = [value for _, reading in window if (value := reading.get(name)) is not None]
        spanned_s = window[0][0] - window[-1][0]
        return median(values) if values and spanned_s * 2 >= over_s else None

    def _window(self, over_s: float) -> list[tuple[float, Reading]]:
        """The readings of the last seconds of this launch, newest first; by spans where the seconds end."""
        window = self._windows.get(over_s)
        if window is None:
            at, newest = self._seconds[-1]
            since, launch = at - over_s - 1e-6, newest.get("launches")
            window = list(takewhile(lambda each: each[0] >= since, reversed(self._seconds)))
            if over_s > _SECONDS_KEPT:
                older = takewhile(lambda each: each[0] >= since, reversed(self._spans))
                window += [each for each in older if each[0] < window[-1][0] and each[1].get("launches") == launch]
            self._windows[over_s] = window
        return window

    def _long_median(self, name: str, over_s: float) -> Value:
        if not self._seconds:
            return None
        at, newest = self._seconds[-1]
        launch = newest.get("launches")
        values = [
            value
            for when, reading in self._spans
            if at - over_s <= when and reading.get("launches") == launch and (value := reading.get(name)) is not None
        ]
        return median(values) if len(values) * 2 * _SPAN_S >= over_s else None

    def _monotone(self, reading: Reading) -> Reading:
        """Counters as sums that never fall, whatever was restarted meanwhile."""
        for name in COUNTERS & reading.keys():
            value = reading[name]
            if value is None:
                continue
            before = self._raw.get(name)
            gained = value if before is None or value < before else value - before
            total = self._counted.get(name, 0.0) + (0.0 if before is None else gained)
            self._raw[name], self._counted[name], reading[name] = value, total, total
        return reading

    def _ratio(self, above: str, below: str, over_s: float) -> Value:
        gained, by = self.rate(above, over_s), self.rate(below, over_s)
        return gained / by if gained is not None and by else None

    def _close_span(self, at: float) -> None:
        since = self._span_from or at
        within = [reading for when, reading in self._seconds if when > since]
        closed: Reading = {}
        for name, value in self._seconds[-1][1].items():
            if name in COUNTERS:
                closed[name] = value
            elif not isinstance(value, bool):
                known = [each for reading in within if (each := reading.get(name)) is not None]
                closed[name] = median(known) if known else None
        self._spans.append((at, closed))
        self._long_medians.clear()
        self._span_from = at
