"""A link whose states a test injects, and the states to inject."""

from __future__ import annotations

import asyncio
import math
import random

from msgspec.structs import replace

from genmon.commands import Command, Plan, Restart, ServerPlan
from genmon.errors import Refused
from genmon.history import History
from genmon.state import (
    AnswerClass,
    Event,
    GpuSample,
    JobState,
    RunPhase,
    ServerPhase,
    ServerState,
    ShardPhase,
    ShardState,
    State,
    Tell,
    TellLevel,
)
from genmon.wire.link import LogLines

NOW = 1_780_000_000.0
FLAGS = (
    *("--model-path", "Qwen/Qwen3.6-27B", "--served-model-name", "Qwen3.6-27B", "--enable-metrics"),
    *("--reasoning-parser", "qwen3", "--tool-call-parser", "qwen3_coder", "--mem-fraction-static", "0.80"),
    *("--max-running-requests", "128", "--context-length", "8192", "--trust-remote-code"),
)
MTP = ("--speculative-algorithm", "NEXTN", "--speculative-num-steps", "3")


class ScriptedLink:
    """Shows what it is given; remembers what it was told."""

    def __init__(self, state: State | None, history: History | None = None) -> None:
        self.state = state
        self.connected = True
        self.trouble: str | None = None
        self.history = history or History()
        self.arrived = asyncio.Event()
        self.asked: list[Command] = []
        self.done: list[Command] = []
        self.followed: list[str | None] = []
        self.refusal: str | None = None
        self._log: list[LogLines] = []

    def show(self, state: State) -> None:
        self.state = state
        self.arrived.set()

    def lose(self) -> None:
        self.connected, self.trouble = False, "The engine is gone; looking for it."
        self.arrived.set()

    def log(self, server: str, *lines: str) -> None:
        self._log.append(LogLines(server=server, lines=lines))
        self.arrived.set()

    def take_log(self) -> tuple[LogLines, ...]:
        taken, self._log = tuple(self._log), []
        return taken

    async def plan(self, command: Command) -> Plan:
        self.asked.append(command)
        if self.refusal:
            raise Refused(self.refusal)
        if isinstance(command, Restart):
            mtp = ("speculative-algorithm NEXTN", "speculative-num-steps 3")
            before = ("max-running-requests 128", *(mtp if command.mtp is False else ()))
            after = ("max-running-requests 128", *(() if command.mtp is False else mtp))
            plans = tuple(ServerPlan(server=name, before=before, after=after, in_flight=7) for name in command.servers)
            return Plan(sentence=f"Restart {', '.join(command.servers)}.", servers=plans)
        return Plan(sentence="This is what would happen.")

    async def do(self, command: Command) -> str:
        if self.refusal:
            raise Refused(self.refusal)
        self.done.append(command)
        return "Done as told."

    async def follow(self, server: str | None) -> None:
        self.followed.append(server)


def server(number: int, now: float = NOW, **fields: object) -> ServerState:
    base = ServerState(
        host="box",
        name=f"s{number}",
        url=f"http://127.0.0.1:{30000 + number}",
        phase=ServerPhase.READY,
        since=now - 7300.0,
        gpu_index=number,
        gpu_uuid=f"GPU-{number}",
        version="0.5.11",
        mtp=True,
        cap=16,
        cap_requested=128,
        in_flight=16,
        running=16,
        queued=0,
        tokens_per_s=1204.8 + 7 * number,
        decode_tokens=9_000_000,
        acceptance_length=2.81 - 0.01 * number,
        kv_usage=0.23,
        mamba_usage=0.87,
        launches=1,
        argv=("python", "-m", "sglang.launch_server", *FLAGS, *MTP),
        log_path="/job/logs/s0.log",
        taken_at=now - 0.4,
    )
    return replace(base, **fields)


def gpu(number: int, now: float = NOW, **fields: object) -> GpuSample:
    base = GpuSample(
        host="box",
        index=number,
        uuid=f"GPU-{number}",
        name="NVIDIA RTX PRO 6000 Blackwell",
        taken_at=now - 0.3,
        power_w=529.0 + 3 * number,
        power_instant_w=533.0,
        power_limit_w=600.0,
        power_default_limit_w=600.0,
        energy_j=4.1e7,
        sm_clock_mhz=2280,
        temperature_c=67 + number,
        utilization=0.98,
        memory_used_b=88 << 30,
        memory_total_b=96 << 30,
        reasons=("power cap",),
    )
    return replace(base, **fields)


def shards(done: int, total: int = 181) -> tuple[ShardState, ...]:
    made = [
        ShardState(ShardPhase.DONE, 5000, 4988 if n % 17 == 3 else 5000, 12 if n % 17 == 3 else 0, 0)
        for n in range(done)
    ]
    made += [ShardState(ShardPhase.RUNNING, 5000, 2210, 0, 0)]
    return tuple(made + [ShardState(ShardPhase.WAITING, 5000, 0, 0, 0)] * (total - len(made)))[:total]


def healthy(count: int = 4, now: float = NOW, **fields: object) -> State:
    state = State(
        run="regenerate",
        phase=RunPhase.RUNNING,
        taken_at=now,
        started_at=now - 93_000.0,
        servers=tuple(server(n, now) for n in range(count)),
        gpus=tuple(gpu(n, now) for n in range(count)),
        job=JobState(
            rows_total=902_087,
            rows_done=312_408,
            rows_failed=37,
            rows_skipped=2,
            rows_in_flight=16 * count,
            retries=911,
            tokens=1_412_000_000,
            rows_per_s=1.07 * count / 4,
            tokens_per_s=1208.0 * count,
            tokens_per_s_mean=1188.0 * count,
            eta_s=551_000.0,
            eta_low_s=520_000.0,
            eta_high_s=590_000.0,
            classes={AnswerClass.COMPLETE: 306_000, AnswerClass.TRUNCATED: 6_200, AnswerClass.LOOP: 208},
            shards=shards(62),
            energy_j=1.96e8,
            joules_per_token=0.44,
        ),
        events=tuple(
            Event(now - 60 * (12 - n), text)
            for n, text in enumerate(
                [
                    "s0: starting",
                    "s0: smoke",
                    "s0: ready",
                    "s1: starting",
                    "s1: ready",
                    "s2: starting",
                    "s2: ready",
                    "s3: starting",
                    "s3: ready",
                    "s1: auto concurrency stays at the server's cap of 16 (1,212 tok/s)",
                ]
            )
        ),
        genmon_version="0.1.0",
    )
    return replace(state, **fields)


def starting(gpus: int = 4, now: float = NOW) -> State:
    unknown = {"cap": None, "mtp": None, "tokens_per_s": None, "acceptance_length": None, "kv_usage": None}
    servers = tuple(
        server(
            n,
            now,
            phase=ServerPhase.STARTING if n < 2 else ServerPhase.WAITING,
            since=now - 42.0,
            in_flight=0,
            queued=None,
            mamba_usage=None,
            version=None,
            taken_at=None,
            **unknown,
        )
        for n in range(gpus)
    )
    idle = tuple(gpu(n, now, power_w=79.0, temperature_c=31, memory_used_b=1 << 29, reasons=()) for n in range(gpus))
    job = JobState(rows_total=902_087, shards=shards(0))
    return healthy(
        gpus, now, phase=RunPhase.STARTING, started_at=now - 43.0, servers=servers, gpus=idle, job=job, events=()
    )


def one_down(gpus: int = 4, now: float = NOW) -> State:
    state = healthy(gpus, now)
    down = server(
        gpus - 1,
        now,
        phase=ServerPhase.BACKOFF,
        since=now - 8.0,
        reason="CUDA out of memory: tried to allocate 2.50 GiB (third restart in a row, the next in 22 s)",
        in_flight=0,
        tokens_per_s=None,
        acceptance_length=None,
        cap=None,
        mtp=None,
        kv_usage=None,
        mamba_usage=None,
        queued=None,
        launches=4,
    )
    idle = gpu(gpus - 1, now, power_w=81.0, temperature_c=39, memory_used_b=1 << 29)
    tell = Tell(
        id="down",
        level=TellLevel.ALARM,
        sentence=f"GPU {gpus - 1} has served nothing for 4 min: its server runs out of memory at start.",
        since=now - 240.0,
        server=f"s{gpus - 1}",
        mend="f: lower mem-fraction-static",
    )
    return replace(state, servers=(*state.servers[:-1], down), gpus=(*state.gpus[:-1], idle), tells=(tell,))


def the_tell(now: float = NOW) -> State:
    """The story: four GPUs of 600 W, one of them at one row in flight with MTP off."""
    state = healthy(4, now)
    slow = server(
        0, now, mtp=False, in_flight=1, running=1, cap=1, cap_requested=1, tokens_per_s=64.4, acceptance_length=None
    )
    drawn = gpu(0, now, power_w=400.0, reasons=())
    tell = Tell(
        id="mtp-off",
        level=TellLevel.WARN,
        sentence="GPU 0 draws 400 of 600 W at C=1 and 6.2 J/token, 14 times the others', and MTP is off.",
        since=now - 95.0,
        server="s0",
        mend="m: turn MTP on",
    )
    return replace(state, servers=(slow, *state.servers[1:]), gpus=(drawn, *state.gpus[1:]), tells=(tell,))


def finished(gpus: int = 4, now: float = NOW) -> State:
    state = healthy(gpus, now)
    job = replace(
        state.job,
        rows_done=902_048,
        rows_in_flight=0,
        shards=shards(181),
        eta_s=None,
        rows_per_s=None,
        tokens_per_s=None,
    )
    servers = tuple(
        server(n, now, phase=ServerPhase.STOPPED, in_flight=0, tokens_per_s=None, acceptance_length=None)
        for n in range(gpus)
    )
    return replace(state, phase=RunPhase.FINISHED, reason="every row is done", job=job, servers=servers)


def past_of(state: State, seconds: int = 300) -> History:
    """A history that led to this state, with noise from a fixed seed."""
    history, noise = History(), random.Random(7)
    for second in range(seconds, -1, -1):
        at = state.taken_at - second
        servers = tuple(
            replace(
                each,
                tokens_per_s=each.tokens_per_s
                and each.tokens_per_s * (1 + 0.04 * math.sin(at / 19) + noise.gauss(0, 0.02)),
                acceptance_length=each.acceptance_length and each.acceptance_length + noise.gauss(0, 0.06),
            )
            for each in state.servers
        )
        gpus = tuple(
            replace(each, power_w=each.power_w and each.power_w * (1 + noise.gauss(0, 0.012))) for each in state.gpus
        )
        history.add(replace(state, taken_at=at, servers=servers, gpus=gpus))
    return history
