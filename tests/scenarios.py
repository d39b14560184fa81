"""Boxes as states, one a second: the simulated box's physics, with what goes wrong laid over it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from msgspec.structs import replace

from genmon.sim import physics
from genmon.state import AnswerClass, FlagChange, GpuSample, JobState, RunPhase, ServerPhase, ServerState, State
from genmon.tells.inputs import RunFacts

START = 1_800_000_000.0
FACTS = RunFacts(model="Qwen3.6-27B", mtp_head=True)
H200 = "NVIDIA H200"
PRO_6000 = "NVIDIA RTX PRO 6000 Blackwell Workstation Edition"


@dataclass
class Box:
    """Servers that decode as measured ones do. `lay_over` changes a state, knowing the seconds since the start."""

    running: int = 32
    mtp: bool = True
    servers: int = 1
    cap: int = 64
    gpu: str = H200
    limit_w: float = 700.0
    power: float | None = None
    """Share of the limit; None as measured on the H200."""
    acceptance: float = physics.ACCEPTANCE_LENGTH
    speed: float = 1.0
    concurrency: int | None = None
    rows: int | None = 100_000
    argv: tuple[str, ...] = ("python", "-m", "sglang.launch_server", "--disable-radix-cache")
    ready_s: float = 600.0
    """How long it has been ready at the start."""
    gap_every_s: int = 0
    """A second without work this often: the gap between two rounds."""
    step_s: float = 1.0
    server: dict[str, object] = field(default_factory=dict)
    sample: dict[str, object] = field(default_factory=dict)
    job: dict[str, object] = field(default_factory=dict)
    lay_over: Callable[[State, float], State] = lambda state, _: state
    """Of the whole state, after `server`, `sample` and `job` were laid over."""
    _decoded: float = 0.0
    _energy_j: float = 5_000_000.0

    def states(self, seconds: float) -> Iterator[State]:
        """The states of a while, one every `step_s`."""
        at = 0.0
        while at <= seconds:
            yield self.lay_over(self._state(at), at)
            at += self.step_s

    def _state(self, at: float) -> State:
        now = START + at
        idle = bool(self.gap_every_s) and int(at) % self.gap_every_s == 0
        running = 0 if idle else self.running
        rate = physics.tokens_per_s(running, self.mtp) * self.speed
        if self.mtp and running:
            rate *= self.acceptance / physics.ACCEPTANCE_LENGTH
        watts = physics.power_w(running, self.mtp) if self.power is None or not running else self.power * self.limit_w
        self._decoded += rate * self.step_s
        self._energy_j += watts * self.step_s
        server = ServerState(
            host="box",
            name="s0",
            url="http://127.0.0.1:30000",
            phase=ServerPhase.READY,
            since=START - self.ready_s,
            version="0.5.11",
            mtp=self.mtp,
            cap_requested=self.cap,
            cap=self.cap,
            in_flight=self.running,
            aim=self.running,
            running=running,
            queued=0,
            tokens_per_s=rate,
            decode_tokens=int(self._decoded),
            prefill_tokens=int(self._decoded * 0.5),
            acceptance_length=self.acceptance if self.mtp else None,
            kv_usage=0.4,
            mamba_usage=running / self.cap,
            grammar_queued=0,
            cache_hit_rate=0.0,
            passes_graphed=int(at * 20),
            passes_eager=0,
            cuda_graph_max_batch=self.cap,
            overlap=True,
            launches=1,
            argv=(*self.argv, *(("--speculative-algorithm", "NEXTN") if self.mtp else ())),
            taken_at=now,
        )
        sample = GpuSample(
            host="box",
            index=0,
            uuid="GPU-0",
            name=self.gpu,
            taken_at=now,
            power_w=watts,
            power_instant_w=watts,
            power_limit_w=self.limit_w,
            power_default_limit_w=self.limit_w,
            energy_j=self._energy_j,
            sm_clock_mhz=1980,
            sm_clock_max_mhz=1980,
            temperature_c=60,
            utilization=0.98 if running else 0.0,
            memory_used_b=110 << 30,
            memory_total_b=140 << 30,
            slowed_s={"power cap": at * 0.01, "thermal slow-down": 0.0, "hardware thermal slow-down": 0.0},
        )
        done = int(self._decoded * self.servers // 400)
        job = JobState(
            rows_total=self.rows,
            rows_done=done,
            rows_in_flight=self.running * self.servers,
            tokens=done * 400,
            eta_s=36_000.0,
            eta_low_s=30_000.0,
            answers={AnswerClass.COMPLETE: done},
            disk_free_b=10**12,
        )
        return State(
            run="test",
            phase=RunPhase.RUNNING,
            taken_at=now,
            started_at=START - self.ready_s,
            job=replace(job, **self.job),
            servers=tuple(
                replace(server, name=f"s{number}", gpu_index=number, gpu_uuid=f"GPU-{number}", **self.server)
                for number in range(self.servers)
            ),
            gpus=tuple(
                replace(sample, index=number, uuid=f"GPU-{number}", **self.sample) for number in range(self.servers)
            ),
            concurrency=self.concurrency,
        )


def servers(state: State, which: str = "", **fields: object) -> State:
    """The state with fields of servers (all, or one) changed."""
    return replace(
        state,
        servers=tuple(replace(each, **fields) if which in ("", each.name) else each for each in state.servers),
    )


def gpus(state: State, which: int | None = None, **fields: object) -> State:
    """The state with fields of GPUs (all, or one) changed."""
    return replace(
        state, gpus=tuple(replace(each, **fields) if which in (None, each.index) else each for each in state.gpus)
    )


def job(state: State, **fields: object) -> State:
    """The state with fields of the job changed."""
    return replace(state, job=replace(state.job, **fields))


def change(at: float, ended_at: float | None = None) -> FlagChange:
    """A flag change of s0."""
    return FlagChange(id=1, what="MTP on", servers=("s0",), started_at=at, ended_at=ended_at)
