"""Tokens a second by concurrency and MTP in the last sweep of a model, for those who ask where MTP stops paying."""

from __future__ import annotations

from pathlib import Path

import msgspec
from msgspec import Struct

from genmon.runlog.database import reading
from genmon.runlog.questions import records

_QUERY = """
WITH measured AS (
    FROM sweep_points WHERE model = ? AND simulated = ? AND tokens_per_s > 0 AND gpu_name IS NOT NULL
        AND cardinality(changed) = 0
), newest AS (
    SELECT gpu_name, arg_max(run, measured_at) AS run FROM measured GROUP BY gpu_name
)
SELECT gpu_name, mtp, concurrency, avg(tokens_per_s) AS tokens_per_s
FROM measured JOIN newest USING (gpu_name, run) GROUP BY gpu_name, mtp, concurrency
"""


class Level(Struct, frozen=True, kw_only=True):
    """One concurrency with or without MTP."""

    gpu_name: str
    mtp: bool
    concurrency: int
    tokens_per_s: float


def levels(path: Path, model: str, *, simulated: bool) -> list[Level]:
    """The levels of the last sweep of each kind of GPU, without varied flags. Raises `LogError`."""
    with reading(path) as connection:
        return [msgspec.convert(row, Level) for row in records(connection, _QUERY, model, simulated)]
