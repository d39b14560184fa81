"""Labelled scenarios: a box, how long it is watched, and the rule whose tell must come first (None for a healthy one)."""

from __future__ import annotations

import csv
import gzip
from collections.abc import Callable, Iterator
from itertools import groupby
from pathlib import Path

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from genmon.state import AnswerClass, RunPhase, ServerPhase, State
from genmon.tells.inputs import RunFacts
from tests.scenarios import FACTS, PRO_6000, START, Box, change, gpus, job, servers

CAPTURE = Path(__file__).parent / "captures" / "h200-nvml-1hz.csv"
RESULTS = Path(__file__).parent.parent / "benchmarks" / "h200" / "results"
LayOver = Callable[[State, float], State]


class Replay:
    """States of a real engine on a real H200, as `benchmarks/h200` recorded them."""

    def __init__(self, name: str) -> None:
        self.path = RESULTS / f"{name}.states.jsonl.gz"
        self.step_s = 1.0
        self.rows: int | None = None

    def states(self, seconds: float) -> Iterator[State]:
        """All of them; what the engine aimed at was not recorded yet."""
        with gzip.open(self.path, "rt") as file:
            for line in file:
                if '"type":"state"' in line:
                    state = msgspec.json.decode(line, type=State)
                    aim = state.concurrency or (state.servers[0].cap if state.servers else None)
                    yield servers(state, aim=aim)


class Scenario(Struct, frozen=True):
    """`box` makes a new box each time: a box moves on while it is watched."""

    name: str
    expected: str | None
    box: Callable[[], Box | Replay]
    seconds: float = 160.0
    facts: RunFacts = FACTS


def after(at_s: float, lay_over: LayOver) -> LayOver:
    """Nothing until then."""
    return lambda state, at: state if at < at_s else lay_over(state, at)


def _argv(state: State, *words: str) -> State:
    return servers(state, argv=(*state.servers[0].argv, *words))


def _stuck(state: State, at: float) -> State:
    return servers(state, decode_tokens=100_000, prefill_tokens=50_000, tokens_per_s=0.0)


def _slowed(reason: str, share: float) -> LayOver:
    """Clocks and watts are down as well."""
    return lambda state, at: gpus(
        state, slowed_s={**state.gpus[0].slowed_s, reason: at * share}, sm_clock_mhz=1200, power_w=300.0
    )


def _silent(state: State, at: float) -> State:
    return servers(state, taken_at=START + 60)


def _driver_silent(state: State, at: float) -> State:
    return gpus(state, taken_at=START + 60)


def _crashing(state: State, at: float) -> State:
    """Ready for 40 s, then a minute of back-off and start, again and again."""
    launch, within = divmod(at, 100)
    phase = ServerPhase.READY if within < 40 else ServerPhase.BACKOFF if within < 60 else ServerPhase.STARTING
    return servers(state, phase=phase, since=START + at - within % 40, launches=int(launch) + 1)


def _restarted(state: State, at: float) -> State:
    """Healthy: restarted once by a flag change; caches and drafts settle in the first minute."""
    if at < 300:
        return state
    if at < 400:
        state = servers(state, phase=ServerPhase.STARTING, since=START + 300, launches=2, in_flight=0, running=None)
        return replace(gpus(state, power_w=119.0, utilization=0.0), changes=(change(START + 299),))
    state = servers(state, launches=2, since=START + 400, decode_tokens=int((at - 400) * 1700))
    if at < 430:
        state = servers(gpus(state, power_w=250.0, utilization=0.5), acceptance_length=1.1, tokens_per_s=200.0)
    return replace(state, changes=(change(START + 299, START + 400),))


def _retracting(state: State, at: float) -> State:
    return servers(state, retracted_tokens=int(at * 200), kv_usage=0.99, queued=6)


def _stuck_after_retraction(state: State, at: float) -> State:
    if at < 1800:
        return servers(state, retracted_tokens=0)
    rate = state.servers[0].tokens_per_s or 0.0
    slow = int(1800 * rate + (at - 1800) * rate * 0.08)
    return servers(state, retracted_tokens=4000, tokens_per_s=rate * 0.08, decode_tokens=slow)


def _answers(**shares: float) -> LayOver:
    def lay_over(state: State, at: float) -> State:
        total = int(at * 3)
        counts = {AnswerClass(name): int(total * share) for name, share in shares.items()}
        return job(state, answers={**counts, AnswerClass.COMPLETE: total - sum(counts.values())})

    return lay_over


def _drift(state: State, at: float) -> State:
    """400 tokens a row before the change of flags, 150 after."""
    rows = int(at * 4)
    before = min(rows, 3600 * 4)
    state = job(state, rows_done=rows, tokens=before * 400 + (rows - before) * 150)
    return replace(state, changes=(change(START + 3590, START + 3600),)) if at >= 3600 else state


def _tail(state: State, at: float) -> State:
    left = max(1, 20 - int(at / 20))
    state = job(state, rows_total=10_000, rows_done=10_000 - left, rows_in_flight=left)
    return servers(state, in_flight=left // 2, running=left // 2, aim=32)


def _gap(state: State, at: float) -> State:
    """Healthy: a round ends every half-minute, and for two seconds nothing runs."""
    if int(at) % 30 > 1:
        return state
    return gpus(
        servers(state, running=0, in_flight=0, tokens_per_s=0.0), power_w=120.0, utilization=0.1, sm_clock_mhz=1300
    )


def _paused(state: State, at: float) -> State:
    """Healthy: held by the user; nothing is in flight."""
    state = gpus(servers(state, in_flight=0, running=0, tokens_per_s=0.0), power_w=119.0, utilization=0.0)
    return replace(state, phase=RunPhase.PAUSED)


def _bursts(state: State, at: float) -> State:
    """Healthy: single samples of the power cap, and of low power, as in prefill bursts."""
    if int(at) % 7:
        return state
    return gpus(state, reasons=("power cap",), sm_clock_mhz=1290, power_w=640.0, power_instant_w=907.0)


def _lost(state: State, at: float) -> State:
    return gpus(state, lost=True, power_w=None, trouble="GPU: GPU is lost")


def _two_slow(state: State, at: float) -> State:
    return servers(gpus(state, 1, power_w=230.0), "s1", tokens_per_s=300.0)


def recorded() -> Iterator[Scenario]:
    """The windows recorded on H200s, played again and again; the label follows from what was running."""
    with CAPTURE.open() as file:
        for (window, c), rows in groupby(
            csv.DictReader(file), key=lambda row: (row["window"], int(row["concurrency"]))
        ):
            run = window.rpartition("-")[0]
            mtp, useless = not run.endswith("off"), run == "useless"
            if not mtp:
                expected = "mtp-off" if c < 32 else None
            else:
                expected = "mtp-useless" if useless else "mtp-hurts" if c >= 64 else None
            yield Scenario(f"recorded {window} C={c}", expected, _player(list(rows), c, mtp=mtp, useless=useless))


def replayed() -> Iterator[Scenario]:
    """Runs of genmon itself. In `hold` the run is paused while others use the server, whose gauges stick when it idles."""
    for name, expected in (
        ("mtp-off", None),
        ("mtp-on", None),
        ("hold", None),
        ("saturation-2", None),
        ("saturation-3", None),
        ("low-concurrency", "mtp-off"),
    ):
        yield Scenario(f"replayed {name}", expected, lambda name=name: Replay(name))  # type: ignore[misc]


def _player(rows: list[dict[str, str]], c: int, *, mtp: bool, useless: bool) -> Callable[[], Box]:
    first_j = float(rows[0]["energy_j"])
    length, gained_j = len(rows), float(rows[-1]["energy_j"]) - first_j

    def play(state: State, at: float) -> State:
        rounds, place = divmod(int(at), length)
        row = rows[place]
        rate = float(row["tokens_per_s"])
        state = servers(state, tokens_per_s=rate, decode_tokens=int(rate * at))
        return gpus(
            state,
            power_w=float(row["power_w"]),
            power_instant_w=float(row["power_instant_w"]),
            energy_j=rounds * gained_j * length / (length - 1) + float(row["energy_j"]) - first_j,
            utilization=float(row["utilization"]) / 100,
            sm_clock_mhz=int(row["sm_clock_mhz"]),
            temperature_c=int(row["temperature_c"]),
            reasons=("power cap",) if int(row["reasons"]) & 4 else (),
        )

    acceptance = 1.0 if useless else 2.8
    return lambda: Box(running=c, mtp=mtp, acceptance=acceptance, lay_over=play)


FAULTS: tuple[Scenario, ...] = (
    Scenario("C=1 without MTP, 600 W card", "mtp-off", lambda: Box(running=1, mtp=False, gpu=PRO_6000, limit_w=600, power=0.67)),
    Scenario("C=1 without MTP, H200", "mtp-off", lambda: Box(running=1, mtp=False)),
    Scenario("C=16 without MTP, H200", "mtp-off", lambda: Box(running=16, mtp=False)),
    Scenario("C=1 without MTP, no GPU known", "mtp-off", lambda: Box(running=1, mtp=False, lay_over=lambda s, _: replace(s, gpus=()))),
    Scenario("useless MTP at the same watts, C=1", "mtp-useless", lambda: Box(running=1, acceptance=1.02)),
    Scenario("useless MTP at the same watts, C=8", "mtp-useless", lambda: Box(running=8, acceptance=1.1)),
    Scenario("MTP above the crossover", "mtp-hurts", lambda: Box(running=80, cap=96)),
    Scenario("acceptance collapses on other prompts", "acceptance-collapse", lambda: Box(lay_over=after(3600, lambda s, _: servers(s, acceptance_length=1.7))), 4000),
    Scenario("MTP asked for, not there", "mtp-refused", lambda: Box(running=8, mtp=False, argv=("python", "--speculative-algorithm", "NEXTN"))),
    Scenario("overlap scheduler off at C=1", "overlap-off", lambda: Box(running=1, power=0.65, mtp=False, server={"overlap": False}, sample={"utilization": 0.88})),
    Scenario("overlap scheduler off at C=32", "overlap-off", lambda: Box(running=32, power=0.72, mtp=False, server={"overlap": False}, sample={"utilization": 0.86})),
    Scenario("SGLang's own cap of 48", "spec-cap-48", lambda: Box(running=48, cap=48, server={"cap_requested": 48})),
    Scenario("16 of 128 granted with the radix cache", "mamba-cap", lambda: Box(running=16, cap=16, argv=("python",), server={"cap_requested": 128, "kv_usage": 0.05})),
    Scenario("29 of 32 granted without it", "state-cap", lambda: Box(running=29, cap=29, server={"cap_requested": 32})),
    Scenario("batch beyond the CUDA graphs", "graph-overflow", lambda: Box(running=40, power=0.6, speed=0.3, server={"passes_graphed": 100, "cuda_graph_max_batch": 24}, lay_over=lambda s, at: servers(s, passes_eager=int(at * 10)))),
    Scenario("weights in the machine's memory", "offload", lambda: Box(running=8, power=0.36, speed=0.3, lay_over=lambda s, _: _argv(s, "--cpu-offload-gb", "20"))),
    Scenario("KV cache full", "kv-full", lambda: Box(server={"kv_usage": 0.985, "queued": 12})),
    Scenario("retractions", "retractions", lambda: Box(lay_over=after(60, _retracting))),
    Scenario("stuck after a retraction", "stuck-after-retraction", lambda: Box(lay_over=_stuck_after_retraction), 2100),
    Scenario("scheduler too careful", "conservative", lambda: Box(running=20, cap=64, server={"queued": 12, "kv_usage": 0.5, "aim": 32, "in_flight": 32})),
    Scenario("grammar", "grammar", lambda: Box(server={"grammar_queued": 5})),
    Scenario("prompts only", "prefill-bound", lambda: Box(running=8, lay_over=lambda s, at: servers(s, prefill_tokens=int(at * 9000)))),
    Scenario("an idle server while rows wait", "idle", lambda: Box(servers=4, lay_over=lambda s, _: gpus(servers(s, "s2", in_flight=0, running=0, tokens_per_s=0.0), 2, power_w=119.0, utilization=0.0))),
    Scenario("client starved", "client-starved", lambda: Box(running=6, cap=48, server={"aim": 32})),
    Scenario("one row at a time by command, MTP on", "concurrency-low", lambda: Box(running=1, cap=48, concurrency=1)),
    Scenario("somebody else on the GPU", "other-tenant", lambda: Box(rows=0, server={"in_flight": 0, "running": 0, "tokens_per_s": 0.0}, sample={"utilization": 0.97})),
    Scenario("wedged", "wedged", lambda: Box(lay_over=after(60, _stuck))),
    Scenario("wedged at C=1", "wedged", lambda: Box(running=1, lay_over=after(60, _stuck))),
    Scenario("metrics do not come", "not-answering", lambda: Box(lay_over=after(60, _silent))),
    Scenario("driver does not answer", "gpu-silent", lambda: Box(lay_over=after(60, _driver_silent))),
    Scenario("lost GPU", "gpu-lost", lambda: Box(servers=4, lay_over=after(60, _lost))),
    Scenario("given up", "given-up", lambda: Box(lay_over=after(60, lambda s, _: servers(s, phase=ServerPhase.GIVEN_UP, launches=6)))),
    Scenario("crashing again and again", "crash-loop", lambda: Box(lay_over=_crashing), 400),
    Scenario("a start that takes long", "slow-start", lambda: Box(server={"phase": ServerPhase.STARTING, "since": START - 550})),
    Scenario("power brake", "hw-slowed", lambda: Box(lay_over=after(60, _slowed("power brake", 0.4)))),
    Scenario("hot, in hardware", "hw-slowed", lambda: Box(power=0.5, lay_over=_slowed("hardware thermal slow-down", 0.2))),
    Scenario("hot", "thermal", lambda: Box(power=0.55, speed=0.8, lay_over=_slowed("thermal slow-down", 0.3))),
    Scenario("clocks locked", "clocks-locked", lambda: Box(power=0.5, sample={"sm_clock_mhz": 1000})),
    Scenario("limit lowered to 400 W", "power-capped", lambda: Box(limit_w=400, power=0.99, sample={"power_default_limit_w": 700.0})),
    Scenario("starved for CPU", "cpu-bound", lambda: Box(power=0.35, speed=0.5, sample={"utilization": 0.5})),
    Scenario("MTP, and the GPU waits", "cpu-bound", lambda: Box(running=4, power=0.4, sample={"utilization": 0.7})),
    Scenario("something unknown waits", "waits", lambda: Box(running=8, power=0.4)),
    Scenario("suddenly slow", "slowed-down", lambda: Box(running=8, lay_over=after(1800, lambda s, _: servers(s, tokens_per_s=200.0)))  , 2000),
    Scenario("empty answers", "answers-empty", lambda: Box(lay_over=_answers(empty=0.05))),
    Scenario("loops", "answers-loop", lambda: Box(lay_over=_answers(loop=0.04))),
    Scenario("unclosed thoughts", "answers-unclosed", lambda: Box(lay_over=_answers(unclosed_thought=0.1, truncated=0.3))),
    Scenario("truncated answers", "answers-truncated", lambda: Box(lay_over=_answers(truncated=0.4))),
    Scenario("shorter answers since a change", "length-drift", lambda: Box(step_s=2, lay_over=_drift), 5400),
    Scenario("disk fills before the end", "disk-filling", lambda: Box(lay_over=lambda s, at: job(s, disk_free_b=int(2e11 - at * 2e7))), 1200),
    Scenario("past the deadline", "late", Box, 300, RunFacts(model="m", mtp_head=True, deadline=START + 7200)),
    Scenario("the last rows", "long-tail", lambda: Box(servers=2, lay_over=_tail)),
)  # fmt: skip

HEALTHY: tuple[Scenario, ...] = (
    Scenario("MTP on, C=1", None, lambda: Box(running=1)),
    Scenario("MTP on, C=8", None, lambda: Box(running=8)),
    Scenario("MTP on, C=32", None, Box),
    Scenario("MTP off, C=32", None, lambda: Box(mtp=False)),
    Scenario("MTP off, C=64", None, lambda: Box(running=64, mtp=False)),
    Scenario("RTX PRO 6000 at C=16", None, lambda: Box(running=16, cap=16, gpu=PRO_6000, limit_w=600, power=0.9)),
    Scenario("a GPU nobody has published about", None, lambda: Box(running=16, gpu="NVIDIA X", limit_w=300, power=0.3)),
    Scenario("eight GPUs", None, lambda: Box(servers=8)),
    Scenario("gaps between rounds", None, lambda: Box(running=8, lay_over=_gap)),
    Scenario("a restart by flag change", None, lambda: Box(lay_over=_restarted), 900),
    Scenario("paused by the user", None, lambda: Box(lay_over=_paused)),
    Scenario("prefill bursts at the power cap", None, lambda: Box(running=24, lay_over=_bursts)),
    Scenario("no GPU known", None, lambda: Box(lay_over=lambda state, _: replace(state, gpus=()))),
    Scenario("some truncated answers", None, lambda: Box(lay_over=_answers(truncated=0.08, empty=0.004))),
    Scenario("nothing left to send", None, lambda: Box(rows=0, lay_over=_paused)),
)
