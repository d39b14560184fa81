"""What a sweep writes into the run log: each of its points, measured or not."""

from __future__ import annotations

import time

from genmon.runlog.records import SweepPoint
from genmon.sweep.result import Point, Skipped, Sweep


def record(key: str, sweep: Sweep, made: Point | Skipped) -> SweepPoint:
    """A point of the sweep that the log calls `key`."""
    point = made if isinstance(made, Point) else None
    return SweepPoint(
        run=key,
        name=sweep.run,
        measured_at=time.time(),
        model=sweep.model,
        host=sweep.host,
        simulated=sweep.simulated,
        genmon=sweep.genmon_version,
        sglang=sweep.sglang_version,
        variant=made.variant,
        concurrency=made.concurrency,
        skipped=made.reason if isinstance(made, Skipped) else None,
        mtp=point.mtp if point else None,
        changed={flag: str(value) for flag, value in point.changed.items()} if point else {},
        server=point.server if point else None,
        gpu_uuid=point.gpu_uuid if point else None,
        gpu_name=point.gpu_name if point else None,
        cap=point.cap if point else None,
        tokens_per_s=point.tokens_per_s if point else None,
        tokens_per_s_low=point.tokens_per_s_low if point else None,
        tokens_per_s_high=point.tokens_per_s_high if point else None,
        slices=point.slices if point else None,
        seconds=point.seconds if point else None,
        power_w=point.power_w if point else None,
        power_limit_w=point.power_limit_w if point else None,
        joules_per_token=point.joules_per_token if point else None,
        acceptance_length=point.acceptance_length if point else None,
        ttft_s=point.ttft_s if point else None,
        itl_s=point.itl_s if point else None,
        streams=point.streams if point else None,
        tokens_per_row=point.tokens_per_row if point else None,
    )
