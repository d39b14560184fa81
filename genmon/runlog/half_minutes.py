"""What earlier runs drew and decoded, in half-minutes of steady decoding: what is normal, for those who ask."""

from __future__ import annotations

from pathlib import Path

import msgspec
from msgspec import Struct

from genmon.runlog.database import reading
from genmon.runlog.questions import records

_MOST = 20_000
"""The newest half-minutes; of one model a week of eight GPUs has 160,000, and their medians change little."""
_QUERY = """
WITH served AS (
    SELECT run, launch, time_bucket(INTERVAL 30 SECOND, taken_at) AS half_minute, median(running) AS running,
        median(tokens_per_s / running) AS tokens_per_s_request, median(acceptance_length) AS acceptance_length,
        sum(tokens) AS tokens
    FROM server_samples WHERE phase = 'ready' AND running > 0 AND tokens_per_s > 0
    GROUP BY ALL HAVING sum(samples) >= 20
), drawn AS (
    SELECT run, launch, time_bucket(INTERVAL 30 SECOND, taken_at) AS half_minute, any_value(gpu_uuid) AS gpu_uuid,
        any_value(gpu_name) AS gpu_name, median(power_w / power_limit_w) AS power_fraction, sum(energy_j) AS energy_j
    FROM gpu_samples WHERE power_limit_w > 0 GROUP BY ALL
)
SELECT drawn.gpu_uuid, gpu_name, coalesce(flags['quantization'], '') AS quantisation, mtp, running, power_fraction,
    tokens_per_s_request, acceptance_length, energy_j / nullif(tokens, 0) AS joules_per_token
FROM served JOIN drawn USING (run, launch, half_minute) JOIN launches USING (run, launch)
WHERE mtp IS NOT NULL AND run IN (SELECT run FROM runs WHERE model = ? AND simulated = ?)
ORDER BY half_minute DESC LIMIT ?
"""


class HalfMinute(Struct, frozen=True, kw_only=True):
    """Medians over half a minute of one server that decoded all the while."""

    gpu_uuid: str | None
    gpu_name: str | None
    quantisation: str
    mtp: bool
    running: float
    power_fraction: float | None
    tokens_per_s_request: float | None
    acceptance_length: float | None
    joules_per_token: float | None


def half_minutes(path: Path, model: str, *, simulated: bool) -> list[HalfMinute]:
    """The newest half-minutes of all runs of a model. Raises `LogError`."""
    with reading(path) as connection:
        return [msgspec.convert(row, HalfMinute) for row in records(connection, _QUERY, model, simulated, _MOST)]
