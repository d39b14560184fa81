"""Where MTP stops paying: above it, MTP off decodes more tokens a second."""

from __future__ import annotations

import math
from collections.abc import Mapping
from itertools import pairwise

from msgspec import Struct


class Crossing(Struct, frozen=True, kw_only=True):
    """Requests in flight at which both are alike, with the measured levels around it.

    `at` is None where every level was on one side: then MTP paid at all of them (`high` is None) or at none.
    """

    at: float | None
    low: int | None
    high: int | None


def crossing(off: Mapping[int, float], on: Mapping[int, float]) -> Crossing | None:
    """From tokens a second by concurrency; None when no level was measured with both.

    Between the last level where MTP pays and the first where it does not, the gain is taken as straight over the
    logarithm of the concurrency.
    """
    levels = sorted(off.keys() & on.keys())
    gains = [(level, math.log(on[level] / off[level])) for level in levels if off[level] > 0 and on[level] > 0]
    if not gains:
        return None
    for (low, gain), (high, loss) in pairwise(gains):
        if gain > 0 >= loss:
            return Crossing(at=low * (high / low) ** (gain / (gain - loss)), low=low, high=high)
    if gains[0][1] <= 0:
        return Crossing(at=None, low=None, high=gains[0][0])
    return Crossing(at=None, low=gains[-1][0], high=None)
