"""NVML at 10 Hz into a gzipped CSV, beside a run, until SIGTERM.

    python -m benchmarks.h200.recorder FILE.csv.gz [HZ]

Plain pynvml and no part of genmon, so that it can contradict genmon. Reads only. The `_raw` columns are the counters
of clock-event reasons (fields 74, 269, 270, 271) as the driver gives them; their unit is what `sampler.py` finds out.
"""

from __future__ import annotations

import csv
import gzip
import signal
import sys
import time
from typing import cast

import pynvml

_FIELDS = {
    "power_average_w": 185,
    "power_instant_w": 186,
    "energy_j": 83,
    "power_cap_raw": 74,
    "sw_thermal_raw": 269,
    "hw_thermal_raw": 270,
    "power_brake_raw": 271,
}
_MILLI = ("power_average_w", "power_instant_w", "energy_j")
COLUMNS = (
    "at",
    *_FIELDS,
    "gpu_share",
    "memory_share",
    "memory_used_mb",
    "sm_mhz",
    "memory_mhz",
    "temperature_c",
    "reasons",
    "processes",
    "cost_ms",
)


def fields(handle: object, ids: list[int]) -> dict[int, int]:
    """The valid ones among NVML's fields, as whole numbers."""
    found = {}
    for each in pynvml.nvmlDeviceGetFieldValues(handle, ids):
        if each.nvmlReturn == 0:
            member = {1: "uiVal", 2: "ulVal", 3: "ullVal"}[each.valueType]
            found[cast("int", each.fieldId)] = int(getattr(each.value, member))
    return found


def row(handle: object) -> list[object]:
    """One reading, in the order of `COLUMNS`."""
    at, began = time.time(), time.perf_counter()
    values = fields(handle, list(_FIELDS.values()))
    cells: list[object] = [f"{at:.3f}"]
    for name, number in _FIELDS.items():
        value = values.get(number)
        cells.append("" if value is None else f"{value / 1000:.2f}" if name in _MILLI else value)
    use = pynvml.nvmlDeviceGetUtilizationRates(handle)
    cells += [use.gpu, use.memory, pynvml.nvmlDeviceGetMemoryInfo(handle).used >> 20]
    cells += [pynvml.nvmlDeviceGetClockInfo(handle, kind) for kind in (1, 2)]
    cells += [pynvml.nvmlDeviceGetTemperature(handle, 0), pynvml.nvmlDeviceGetCurrentClocksEventReasons(handle)]
    cells += [len(pynvml.nvmlDeviceGetComputeRunningProcesses(handle))]
    return [*cells, f"{(time.perf_counter() - began) * 1000:.1f}"]


def main() -> None:
    period_s = 1 / float(sys.argv[2]) if len(sys.argv) > 2 else 0.1
    ended: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, _: ended.append(number))
    pynvml.nvmlInit()
    handle = pynvml.nvmlDeviceGetHandleByIndex(0)
    with gzip.open(sys.argv[1], "wt", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(COLUMNS)
        due = time.time()
        while not ended:
            writer.writerow(row(handle))
            due = max(due + period_s, time.time())
            time.sleep(max(0.0, due - time.time()))


if __name__ == "__main__":
    main()
