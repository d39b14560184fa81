"""What a sweep answers: the best setting for throughput and for energy, where MTP stops paying, days and kWh."""

from __future__ import annotations

import math

from msgspec import Struct

from genmon.sweep.result import Point, Sweep
from genmon.tells.crossover import crossing

_JOULES_PER_KWH = 3.6e6
_SECONDS_PER_DAY = 86400.0


class Cost(Struct, frozen=True):
    """What the job's remaining rows would take with one setting on all GPUs; unknown is None."""

    days: float | None
    energy_kwh: float | None


class Crossover(Struct, frozen=True, kw_only=True):
    """Where MTP stops paying: above `concurrency` rows in flight MTP off decodes more tokens a second.

    `low` and `high` are the measured levels around it; None on either side means that the sweep did not reach it.
    """

    changed: str
    concurrency: float | None
    low: int | None
    high: int | None


class Answer(Struct, frozen=True, kw_only=True):
    """The sweep in a few figures."""

    fastest: Point | None
    thriftiest: Point | None
    """Fewest joules a token."""
    crossovers: tuple[Crossover, ...]


def answer(sweep: Sweep) -> Answer:
    """What a sweep answers."""
    measured = [point for point in sweep.points if point.joules_per_token is not None]
    return Answer(
        fastest=max(sweep.points, key=lambda point: point.tokens_per_s, default=None),
        thriftiest=min(measured, key=lambda point: point.joules_per_token or math.inf, default=None),
        crossovers=tuple(_crossovers(sweep)),
    )


def cost(sweep: Sweep, point: Point) -> Cost:
    """Days and kWh of the job's remaining rows with this setting on all of the sweep's GPUs."""
    if sweep.rows_left is None or sweep.tokens_per_row is None or not sweep.gpus or point.tokens_per_s <= 0:
        return Cost(None, None)
    tokens = sweep.rows_left * sweep.tokens_per_row
    days = tokens / (point.tokens_per_s * sweep.gpus) / _SECONDS_PER_DAY
    joules = point.joules_per_token
    return Cost(days, tokens * joules / _JOULES_PER_KWH if joules is not None else None)


def _crossovers(sweep: Sweep) -> list[Crossover]:
    """One for each varied flag set that was measured with MTP off and on."""
    rates: dict[str, dict[bool, dict[int, float]]] = {}
    for point in sweep.points:
        changed = ", ".join(f"{name}={value}" for name, value in point.changed.items())
        rates.setdefault(changed, {}).setdefault(point.mtp, {})[point.concurrency] = point.tokens_per_s
    found = []
    for changed, arms in rates.items():
        made = crossing(arms.get(False, {}), arms.get(True, {}))
        if made is not None:
            found.append(Crossover(changed=changed, concurrency=made.at, low=made.low, high=made.high))
    return found
