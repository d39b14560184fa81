"""One look at a run, in plain lines: `genmon status`."""

from __future__ import annotations

import time

from genmon.batch.lines import progress_line, tell_line
from genmon.figures import UNKNOWN, count, decimal, duration, share, watts
from genmon.state import GpuSample, ServerState, State


def status_lines(state: State, directory: str) -> list[str]:
    """The run in one line, then a line a server, then what is wrong."""
    gpus = {sample.uuid: sample for sample in state.gpus}
    lines = [f"{state.run}  {directory}", f"  {progress_line(state)}"]
    lines += [f"  {_server(server, gpus.get(server.gpu_uuid or ''), state.taken_at)}" for server in state.servers]
    lines += [f"  {tell_line(tell)}" for tell in state.tells]
    if state.not_checked:
        lines.append(f"  not checked: {', '.join(each.rule for each in state.not_checked)} (why: genmon tells)")
    if (age_s := time.time() - state.taken_at) > 5:
        lines.append(f"  this picture is {duration(age_s)} old")
    return lines


def _server(server: ServerState, gpu: GpuSample | None, now: float) -> str:
    mtp = "MTP ?" if server.mtp is None else "MTP on" if server.mtp else "MTP off"
    parts = [
        f"{server.name}",
        f"GPU {UNKNOWN if server.gpu_index is None else server.gpu_index}",
        f"{server.phase.value} {duration(now - server.since)}",
        watts(gpu.power_w if gpu else None, gpu.power_limit_w if gpu else None),
        f"{count(server.tokens_per_s)} tok/s",
        f"{server.in_flight}/{UNKNOWN if server.cap is None else server.cap} in flight",
        f"{mtp}, acceptance {decimal(server.acceptance_length)}",
        f"KV {share(server.kv_usage)}",
    ]
    return " · ".join(parts) + (f" · {server.reason}" if server.reason else "")
