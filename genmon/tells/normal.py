"""What is normal here: bands of watts, tokens/s, J/token and acceptance, learned from earlier runs or published.

A band from history comes with its n; until there is one a published prior stands in, marked as such, and a tell that
rests on a prior never says more than `look`.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from statistics import median, quantiles
from typing import Protocol

from msgspec import Struct

from genmon.tells.crossover import Crossing

MIN_READINGS = 5
"""Half-minute readings before history is believed."""
_LEAST_WIDTH = 0.12
"""Two cards of one kind differ by 9 % at the same work (measured on H200)."""
FIGURES = ("power_fraction", "tokens_per_s_request", "joules_per_token", "acceptance_length")


class Setting(Struct, frozen=True, kw_only=True):
    """What decides what is normal."""

    gpu_uuid: str | None
    gpu_name: str | None
    model: str
    quantisation: str
    mtp: bool
    running: float
    """Requests in the batch."""


class Band(Struct, frozen=True, kw_only=True):
    """Where a figure usually lies."""

    low: float
    usual: float
    high: float
    n: int = 0
    """Half-minute readings behind it; 0 for a prior."""
    source: str = "history"

    @property
    def prior(self) -> bool:
        """Whether it is published by others and not learned here."""
        return self.n == 0


class Normal(Protocol):
    """What a figure of `FIGURES` usually is."""

    def band(self, figure: str, setting: Setting) -> Band | None:
        """Its band; None when nobody knows."""
        ...

    def crossover(self, setting: Setting) -> Band | None:
        """Requests in the batch above which MTP costs tokens/s."""
        ...


class Reading(Struct, frozen=True, kw_only=True):
    """Medians over half a minute of decoding, as a run log holds them."""

    setting: Setting
    figures: dict[str, float]


class Learned:
    """Normal by history: the same card first, then cards of the same name."""

    def __init__(self, readings: Iterable[Reading]) -> None:
        """`readings` of earlier runs, in any order."""
        self._values: dict[tuple[object, ...], list[float]] = defaultdict(list)
        for reading in readings:
            for card in (reading.setting.gpu_uuid, reading.setting.gpu_name):
                for figure, value in reading.figures.items():
                    self._values[_key(card, reading.setting, figure)].append(value)

    def band(self, figure: str, setting: Setting) -> Band | None:
        """Where all but 2 % at either end of at least five readings lay, and no narrower than `_LEAST_WIDTH`."""
        for card in (setting.gpu_uuid, setting.gpu_name):
            values = self._values.get(_key(card, setting, figure), [])
            if card is not None and len(values) >= MIN_READINGS:
                cuts = quantiles(values, n=50, method="inclusive")
                usual = median(values)
                low, high = min(cuts[0], (1 - _LEAST_WIDTH) * usual), max(cuts[-1], (1 + _LEAST_WIDTH) * usual)
                return Band(low=low, usual=usual, high=high, n=len(values))
        return None

    def crossover(self, setting: Setting) -> Band | None:
        """Nothing: the readings of both sides of it are rarely there; a sweep finds it."""
        return None


class Swept:
    """Where MTP stopped paying in the last sweep of this model, by the GPUs' name."""

    def __init__(self, crossings: Mapping[str, tuple[Crossing, int]]) -> None:
        """`crossings` by GPU name, each with the number of levels that it was measured at."""
        self._crossings = crossings

    def band(self, figure: str, setting: Setting) -> Band | None:
        """Nothing: a sweep's points are too few for a band."""
        return None

    def crossover(self, setting: Setting) -> Band | None:
        """The crossover, or the end of what was measured when MTP paid everywhere, or nowhere."""
        known = self._crossings.get(setting.gpu_name or "")
        if known is None:
            return None
        found, levels = known
        low, high = found.low or 1, found.high or 2 * (found.low or 1)
        usual = found.at if found.at is not None else high if found.low is None else low
        return Band(low=low, usual=usual, high=high, n=levels, source="the last sweep")


class Priors:
    """Published by others: wide, and only a reason to look."""

    def band(self, figure: str, setting: Setting) -> Band | None:
        """The prior of a GPU by its name, its power fraction only."""
        if figure != "power_fraction":
            return None
        for name, mtp, from_running, to_running, low, high, source in _POWER:
            fits = name in (setting.gpu_name or "") and mtp in (None, setting.mtp)
            if fits and from_running <= setting.running <= to_running:
                return Band(low=low, usual=(low + high) / 2, high=high, source=source)
        return None

    def crossover(self, setting: Setting) -> Band | None:
        """Between 32 and 64 on an H200; elsewhere gains are published for small batches only."""
        if "H200" in (setting.gpu_name or ""):
            return Band(low=32, usual=32, high=64, source="measured on an H200 with a 27B model")
        return Band(low=8, usual=8, high=64, source="published gains are at small batches; an H200 lost above 32")


class Chain:
    """The first of several that knows."""

    def __init__(self, normals: Sequence[Normal]) -> None:
        """`normals`, the most trusted first."""
        self._normals = normals

    def band(self, figure: str, setting: Setting) -> Band | None:
        """The first band there is."""
        return next((band for each in self._normals if (band := each.band(figure, setting)) is not None), None)

    def crossover(self, setting: Setting) -> Band | None:
        """The first crossover there is."""
        return next((band for each in self._normals if (band := each.crossover(setting)) is not None), None)


_MANY = 10_000
_POWER: tuple[tuple[str, bool | None, int, int, float, float, str], ...] = (
    ("RTX PRO 6000", False, 1, 2, 0.78, 0.92, "27B and 80B-A3B on an RTX PRO 6000, c=1"),
    ("RTX PRO 6000", None, 32, _MANY, 0.88, 1.02, "RTX PRO 6000, c=32"),
    ("RTX 5090", False, 1, 2, 0.80, 0.95, "27B Q4 on an RTX 5090, c=1"),
    ("RTX 5090", True, 1, 2, 0.90, 1.02, "27B Q4 with MTP on an RTX 5090, c=1"),
    # SGLang 0.5.11 with a 27B model of bf16 on three cards: 0.62 to 0.80 at c=1, by card and by MTP.
    ("H200", None, 1, 12, 0.60, 0.84, "27B bf16 on three H200"),
    ("H200", None, 13, 47, 0.68, 0.97, "27B bf16 on three H200"),
    ("H200", None, 48, _MANY, 0.60, 1.02, "27B bf16 on an H200; others by arXiv 2605.11999"),
    ("H100", None, 4, 16, 0.55, 0.80, "ML.ENERGY v3, H100, batch 8"),
    ("H100", None, 24, 127, 0.65, 0.95, "ML.ENERGY v3, H100, batch 32 to 96"),
    ("H100", None, 128, _MANY, 0.80, 1.02, "ML.ENERGY v3, H100, batch 128 and more"),
    ("B200", None, 4, 16, 0.60, 0.87, "ML.ENERGY v3, B200, batch 8"),
    ("B200", None, 128, _MANY, 0.45, 1.02, "ML.ENERGY v3, B200, batch 128 to 256"),
)
"""(part of the GPU's name, MTP or None for both, from and to requests in the batch, low, high, source)."""


def bucket(running: float) -> int:
    """Batches are compared within powers of two: 1, 2, 3 to 5, 6 to 11, …"""
    return round(math.log2(max(1.0, running)))


def _key(card: str | None, setting: Setting, figure: str) -> tuple[object, ...]:
    return (card, setting.model, setting.quantisation, setting.mtp, bucket(setting.running), figure)
