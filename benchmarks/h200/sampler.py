"""genmon's own GPU sampler on a real driver: each field, what a cycle costs, and whether its counters agree.

    python -m benchmarks.h200.sampler FILE.json [BURN_PYTHON]

Three things are found out: (1) every field of a sample, or the reason why it is not there, with the milliseconds that
each NVML call costs, at genmon's own pace of 1 Hz; (2) the energy counter against the integral of the power that was
sampled at 10 Hz, over a load that begins and ends; (3) the unit of the counters of clock-event reasons: how far they
move while the power cap bit is set, against the wall clock. BURN_PYTHON is an interpreter with torch, for the load.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import time
from collections import defaultdict
from itertools import pairwise
from pathlib import Path
from types import ModuleType
from typing import cast

import msgspec
import pynvml

from benchmarks.h200.recorder import fields
from genmon.gpu.nvml import Nvml
from genmon.state import GpuSample

_REASON_FIELDS = {"power cap": 74, "sw thermal": 269, "hw thermal": 270, "power brake": 271}
_CYCLES = 12
_BURN_S = 10.0


class Timed:
    """pynvml that notes how long each of its calls took, in ms."""

    def __init__(self, module: ModuleType) -> None:
        self._module = module
        self.took_ms: dict[str, list[float]] = defaultdict(list)

    def __getattr__(self, name: str) -> object:
        found = getattr(self._module, name)
        if not name.startswith("nvmlDevice"):
            return found

        def timed(*arguments: object) -> object:
            began = time.perf_counter()
            try:
                return found(*arguments)
            finally:
                self.took_ms[name].append((time.perf_counter() - began) * 1000)

        return timed


def spread(values: list[float]) -> dict[str, float]:
    """Median and worst."""
    return {"median": round(statistics.median(values), 3), "max": round(max(values), 3), "n": len(values)}


def cost(pace_s: float) -> tuple[GpuSample, dict[str, object]]:
    """Samples at a pace; the last one and what they cost."""
    timed = Timed(pynvml)
    driver = Nvml(cast("ModuleType", timed))
    info, cycles = driver.infos()[0], []
    timed.took_ms.clear()
    for _ in range(_CYCLES):
        began = time.perf_counter()
        sample = driver.sample("here", info)
        cycles.append((time.perf_counter() - began) * 1000)
        time.sleep(pace_s)
    calls = {name.removeprefix("nvmlDevice"): spread(took) for name, took in timed.took_ms.items()}
    return sample, {"pace_s": pace_s, "cycle_ms": spread(cycles), "calls_ms": calls}


def load(python: str) -> dict[str, object]:
    """A burst of work, sampled at 10 Hz: energy two ways, and the reasons' counters beside the reasons' bits."""
    driver = Nvml()
    info = driver.infos()[0]
    handle = pynvml.nvmlDeviceGetHandleByIndex(0)
    rows: list[tuple[float, GpuSample, dict[int, int]]] = []
    burning = subprocess.Popen(
        [python, str(Path(__file__).with_name("burn.py")), str(_BURN_S)], stdout=subprocess.PIPE, text=True
    )
    ended_at: float | None = None
    while ended_at is None or time.time() < ended_at + 3:
        rows.append((time.time(), driver.sample("here", info), fields(handle, list(_REASON_FIELDS.values()))))
        if ended_at is None and burning.poll() is not None:
            ended_at = time.time()
        time.sleep(max(0.0, rows[-1][0] + 0.1 - time.time()))
    return {"burn": burning.communicate()[0].split(), **energy(rows), "reasons": reasons(rows)}


Row = tuple[float, GpuSample, dict[int, int]]


def energy(rows: list[Row]) -> dict[str, object]:
    """Joules by the counter, and by the trapezoids under each of the two power readings."""
    sums = {"power_w": 0.0, "power_instant_w": 0.0}
    for (at, sample, _), (next_at, following, _) in pairwise(rows):
        for name in sums:
            first, second = getattr(sample, name), getattr(following, name)
            sums[name] += (first + second) / 2 * (next_at - at)
    counted = (rows[-1][1].energy_j or 0.0) - (rows[0][1].energy_j or 0.0)
    return {
        "wall_s": round(rows[-1][0] - rows[0][0], 2),
        "counter_j": round(counted, 1),
        "integrated_j": {name: round(value, 1) for name, value in sums.items()},
        "counter_over_integrated": {name: round(counted / value, 4) for name, value in sums.items() if value},
        "power_instant_max_w": max(sample.power_instant_w or 0.0 for _, sample, _ in rows),
    }


def reasons(rows: list[Row]) -> dict[str, object]:
    """How far each counter moved, and for how many seconds its bit was seen."""
    found: dict[str, object] = {}
    for name, number in _REASON_FIELDS.items():
        moved = rows[-1][2].get(number, 0) - rows[0][2].get(number, 0) if number in rows[0][2] else None
        found[name] = {"counter_moved": moved}
    for bit in sorted({bit for _, sample, _ in rows for bit in sample.reasons}):
        seen_s = sum(later - at for (at, sample, _), (later, _, _) in pairwise(rows) if bit in sample.reasons)
        found[f"bit {bit}, seconds"] = round(seen_s, 2)
    steps = [
        (at - rows[0][0], now[74] - before[74])
        for (_, _, before), (at, _, now) in pairwise(rows)
        if 74 in now and 74 in before
    ]
    found["power cap, steps of the counter"] = [[round(at, 2), step] for at, step in steps if step][:40]
    return found


def main() -> None:
    sample, slow = cost(1.0)
    _, fast = cost(0.1)
    names = {name: getattr(sample, name) for name in GpuSample.__struct_fields__}
    report: dict[str, object] = {
        "driver": pynvml.nvmlSystemGetDriverVersion(),
        "fields": names | {"uuid": "GPU-zeroed"},
        "cost_at_1_hz": slow,
        "cost_at_10_hz": fast,
    }
    if len(sys.argv) > 2:
        report["load"] = load(sys.argv[2])
    Path(sys.argv[1]).write_bytes(msgspec.json.format(msgspec.json.encode(report), indent=1))


if __name__ == "__main__":
    main()
