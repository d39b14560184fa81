"""The figures of the results, as tables.

python -m benchmarks.h200.report
"""

from __future__ import annotations

import gzip
import json
import statistics
from collections.abc import Iterator
from pathlib import Path

import msgspec

from genmon.state import RunPhase, State

RESULTS = Path(__file__).with_name("results")
_WARM_S = 4.0
"""After the first row is in flight, until the rates are those of full batches."""


def states(run: str) -> Iterator[State]:
    """A recorded run, a state a second."""
    with gzip.open(RESULTS / f"{run}.states.jsonl.gz", "rt") as file:
        for line in file:
            record = json.loads(line)
            if record.pop("type") == "state":
                yield msgspec.convert(record, State)


def row(name: str, run: str, in_flight: int, begin_s: float = 0.0, end_s: float = 1e9) -> str:
    """One state of the server: medians of what genmon showed, and J/token from the two counters."""
    full: list[State] = []
    for state in states(run):
        at = state.taken_at - state.started_at
        server = state.servers[0] if state.servers else None
        if not (server and state.gpus and server.decode_tokens and begin_s <= at <= end_s):
            continue
        if server.in_flight == in_flight and state.phase in (RunPhase.RUNNING, RunPhase.DRAINING):
            full.append(state)
    full = [state for state in full if state.taken_at >= full[0].taken_at + _WARM_S]
    first, last = full[0], full[-1]
    tokens = (last.servers[0].decode_tokens or 0) - (first.servers[0].decode_tokens or 0)
    energy_j = (last.gpus[0].energy_j or 0.0) - (first.gpus[0].energy_j or 0.0)
    took_s = last.taken_at - first.taken_at
    acceptance = [each.servers[0].acceptance_length for each in full if each.servers[0].acceptance_length]
    cells = [
        f"{name}",
        f"{in_flight}",
        f"{tokens / took_s:.0f}",
        f"{statistics.median(each.servers[0].tokens_per_s or 0.0 for each in full):.0f}",
        f"{energy_j / took_s:.0f}",
        f"{statistics.median(each.gpus[0].power_w or 0.0 for each in full):.0f}",
        f"{energy_j / tokens:.2f}",
        f"{statistics.mean(acceptance):.2f}" if acceptance else "–",
        f"{took_s:.0f}",
    ]
    return "| " + " | ".join(cells) + " |"


def main() -> None:
    print("| run | in flight | tok/s | tok/s, median | W, counter | W, median | J/token | acceptance | s |")
    print("| --- " * 9 + "|")
    print(row("MTP off", "low-concurrency", 4))
    print(row("MTP off, C=16", "toggle", 16, 105, 190))
    print(row("MTP on, C=16 (the same run, later)", "toggle", 16, 333, 414))
    print(row("MTP off", "second-process", 32, 0, 18))
    print(row("MTP off, a second process on the GPU", "second-process", 32, 20, 30))
    print(row("MTP off", "saturation-2", 64))
    print(row("MTP off", "saturation-3", 64))
    print(row("MTP off, the job, until the kill", "mtp-off", 64, 70, 100))
    print(row("MTP on, the job", "mtp-on", 64))
    print(row("MTP off, starved client, 16 tokens a row", "starved", 64, 5, 19))
    print()
    speeds: dict[str, list[float]] = {"bench": [], "saturation": []}
    for path in sorted(RESULTS.glob("bench-*.json")):
        speeds["bench"].append(json.loads(path.read_text())["output_throughput"])
    for path in sorted(RESULTS.glob("saturation-*-figures.json")):
        speeds["saturation"].append(json.loads(path.read_text())["tokens_per_s"])
    print("sglang.bench_serving at C=64:", ", ".join(f"{speed:.1f}" for speed in speeds["bench"]), "tok/s")
    print("genmon at C=64:             ", ", ".join(f"{speed:.1f}" for speed in speeds["saturation"]), "tok/s")
    means = {name: statistics.mean(values) for name, values in speeds.items()}
    print(f"genmon over bench_serving: {means['saturation'] / means['bench']:.1%}")


if __name__ == "__main__":
    main()
