"""What a real SGLang 0.5.11 on a real H200 said under genmon, and what genmon makes of it.

Dummy weights and simulated acceptance: the text means nothing, the figures are of this set-up.
The captures are in tests/captures/h200, the recorded states and NVML rows in benchmarks/h200/results.
"""

from __future__ import annotations

import asyncio
import csv
import gzip
import itertools
import json
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from aiohttp import web

from genmon.fleet.http import SglangHttp
from genmon.fleet.logtail import End, diagnose
from genmon.fleet.metrics import parse
from genmon.fleet.pulse import Pulse
from genmon.state import RunPhase, ServerPhase, ServerState, State
from genmon.tells.inputs import RunFacts
from genmon.tells.table import shipped
from genmon.tells.watch import Watch

CAPTURES = Path(__file__).parent / "captures" / "h200"
RESULTS = Path(__file__).parents[1] / "benchmarks" / "h200" / "results"
PATHS = {"/metrics": "metrics", "/server_info": "server_info", "/v1/loads": "v1_loads", "/model_info": "model_info"}


def body(mode: str, name: str) -> str:
    return (CAPTURES / mode / f"{name}.http").read_text().partition("\n\n")[2]


def states(run: str) -> Iterator[State]:
    with gzip.open(RESULTS / f"{run}.states.jsonl.gz", "rt") as file:
        for line in file:
            record = json.loads(line)
            if record.pop("type") == "state":
                yield msgspec.convert(record, State)


async def polled(mode: str, moment: str, in_flight: int, mtp: bool) -> list[ServerState]:
    """What two polls make of a server that answers as the recorded one did."""

    async def answer(request: web.Request) -> web.Response:
        return web.Response(text=body(mode, f"{PATHS[request.path]}_{moment}"), content_type="text/plain")

    app = web.Application()
    app.router.add_get("/{path:.*}", answer)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    http = SglangHttp(f"http://127.0.0.1:{runner.addresses[0][1]}", None)
    try:
        info = await http.info()
        assert (info.version, info.mtp, info.cap) == ("0.5.11", mtp, 64)
        pulse, seen = Pulse(http), []
        state = ServerState(host="box", name="s0", url="", phase=ServerPhase.READY, since=0.0, mtp=info.mtp)
        for _ in range(2):
            state = await pulse.take(state, in_flight)
            seen.append(state)
        return seen
    finally:
        await http.close()
        await runner.cleanup()


def test_metrics_of_both_modes_are_read() -> None:
    off, on = parse(body("mtp-off", "metrics_busy")), parse(body("mtp-on", "metrics_busy"))
    assert off.decode_tokens == 267_496
    assert (off.running, off.queued, off.acceptance_length) == (4, 0, 0)
    assert (on.decode_tokens, on.prefill_tokens, on.acceptance_length) == (67_352, 30_790, 2.825)
    # The full pool's share is the mamba states' here: the KV cache is nearly empty.
    assert on.token_usage == 1.0
    assert on.mamba_usage == 1.0
    assert on.kv_usage == pytest.approx(0.0211, abs=1e-4)


def test_a_busy_server_is_seen_as_it_is() -> None:
    seen = asyncio.run(polled("mtp-on", "busy", in_flight=64, mtp=True))[-1]
    assert seen.acceptance_length == 2.825
    assert seen.mtp is True
    assert asyncio.run(polled("mtp-off", "busy", in_flight=4, mtp=False))[-1].acceptance_length is None


def test_an_idle_servers_page_still_says_running_and_is_not_believed() -> None:
    """Two seconds after its last request the page said 1 running and 56 % of the mamba states; the scheduler said 0."""
    page = parse(body("mtp-off", "metrics_idle"))
    assert (page.running, page.mamba_usage) == (1, 0.5625)
    _, idle = asyncio.run(polled("mtp-off", "idle", in_flight=0, mtp=False))
    assert (idle.running, idle.queued) == (0, 0)
    assert idle.mamba_usage is None
    assert idle.kv_usage is None


def test_logs_end_as_they_ended() -> None:
    for mode in ("mtp-off", "mtp-on"):
        text = (CAPTURES / mode / "server.log").read_text()
        assert diagnose(text, 137, was_ready=True).kind is End.CLEAN  # 137: exit code of a clean SIGTERM
    killed = (CAPTURES / "mtp-off" / "killed.log").read_text().split("=== genmon")[1]
    assert diagnose(killed, 137, was_ready=True).kind is End.KILLED


def test_the_killed_servers_rows_were_generated_again_and_none_was_lost() -> None:
    seen = list(states("mtp-off"))
    assert [state.servers[0].launches for state in seen if state.servers][-1] == 2
    assert (seen[-1].phase, seen[-1].job.rows_done, seen[-1].job.retries) == (RunPhase.FINISHED, 480, 64)
    assert "verify    clean" in (RESULTS / "mtp-off-verify.txt").read_text()


def tells(run: str) -> set[str]:
    """All tells that came up when a recorded run is watched."""
    watch, found = Watch(shipped(), RunFacts(model="Qwen3.6-27B", mtp_head=True)), set()
    for state in states(run):
        watch.see(state)
        found |= {tell.id for tell in watch.tells}
    return found


def test_full_servers_bring_no_tell() -> None:
    """64 in flight, MTP off and on: gaps between rounds, prefill bursts at the cap and a restart are no trouble."""
    assert tells("mtp-off") == set()
    assert tells("mtp-on") == set()
    assert tells("saturation-2") == set()


def test_mtp_off_is_told_and_turning_it_on_brought_tokens() -> None:
    assert "mtp-off" in tells("toggle")
    change = [state.changes for state in states("toggle")][-1][-1]
    assert change.verdict is not None
    assert change.verdict.word == "better"
    effect = {each.figure: each for each in change.verdict.effects}
    assert effect["tokens_per_s"].change == pytest.approx(0.42, abs=0.01)
    assert effect["joules_per_token"].change == pytest.approx(-0.27, abs=0.01)


@pytest.mark.parametrize("part", ["hold", "off", "on", "toggle"])
def test_the_energy_counter_is_the_integral_of_the_power(part: str) -> None:
    """At 10 Hz, over minutes: within 1 %. The recorder is no part of genmon."""
    with gzip.open(RESULTS / f"{part}.nvml.csv.gz", "rt") as file:
        rows = [(float(r["at"]), float(r["power_average_w"]), float(r["energy_j"])) for r in csv.DictReader(file)]
    integral = sum((b[0] - a[0]) * (a[1] + b[1]) / 2 for a, b in itertools.pairwise(rows))
    assert rows[-1][2] - rows[0][2] == pytest.approx(integral, rel=0.01)


def test_the_reasons_counter_counts_nanoseconds() -> None:
    """Ten seconds of matrix products at the power cap: the counter moved by that many nanoseconds."""
    reasons = json.loads((RESULTS / "sampler.json").read_text())["load"]["reasons"]
    assert reasons["power cap"]["counter_moved"] / 1e9 == pytest.approx(reasons["bit power cap, seconds"], abs=0.2)
