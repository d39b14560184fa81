"""What is written down of a run: one type a table, one field a column (sql/0001.sql says what each means).

Times are Unix seconds here and TIMESTAMP (UTC) in the file. Unknown is None and NULL, never 0.
"""

from __future__ import annotations

from typing import ClassVar

from msgspec import Struct

from genmon.state import Effect, Evidence, ServerFlags


class Record(Struct, frozen=True, kw_only=True):
    """One line of the spool, one row of `table`."""

    table: ClassVar[str]
    key: ClassVar[tuple[str, ...]] = ()
    """A record replaces the one with the same values of these; none means that records only ever come to it."""
    run: str


class Run(Record, frozen=True, kw_only=True):
    """A run as it began."""

    table: ClassVar[str] = "runs"
    name: str
    model: str
    host: str
    simulated: bool
    genmon: str
    sglang: str | None
    git_revision: str | None
    project_directory: str
    job_directory: str
    config: str
    started_at: float
    rows_total: int | None


class RunEnd(Record, frozen=True, kw_only=True):
    """How a run ended."""

    table: ClassVar[str] = "run_ends"
    ended_at: float
    outcome: str
    reason: str


class Launch(Record, frozen=True, kw_only=True):
    """One launch of one server, as far as it has come."""

    table: ClassVar[str] = "launches"
    key: ClassVar[tuple[str, ...]] = ("run", "launch")
    launch: str
    server: str
    number: int
    host: str
    gpu_index: int | None
    gpu_uuid: str | None
    simulated: bool
    external: bool
    sglang: str | None
    pid: int | None
    argv: tuple[str, ...]
    flags: dict[str, str]
    flag_set: str
    mtp: bool | None
    cap: int | None
    started_at: float
    ready_s: float | None
    ended_at: float | None
    end_reason: str | None


class GpuReading(Record, frozen=True, kw_only=True):
    """One sample of one GPU, with what its energy counter gained since the sample before."""

    table: ClassVar[str] = "gpu_samples"
    taken_at: float
    host: str
    gpu_uuid: str
    gpu_index: int
    gpu_name: str
    launch: str | None
    simulated: bool
    seconds: float | None
    energy_j: float | None
    power_w: float | None
    power_instant_w: float | None
    power_limit_w: float | None
    power_default_limit_w: float | None
    sm_clock_mhz: float | None
    temperature_c: float | None
    utilization: float | None
    memory_used_b: float | None
    memory_total_b: float | None
    reasons: tuple[str, ...]
    trouble: str | None
    samples: int = 1


class ServerReading(Record, frozen=True, kw_only=True):
    """One sample of one server, with what its token counter gained since the sample before."""

    table: ClassVar[str] = "server_samples"
    taken_at: float
    launch: str
    simulated: bool
    phase: str
    seconds: float | None
    tokens: int | None
    tokens_per_s: float | None
    in_flight: float
    running: float | None
    queued: float | None
    acceptance_length: float | None
    kv_usage: float | None
    mamba_usage: float | None
    samples: int = 1


class Request(Record, frozen=True, kw_only=True):
    """One attempt at one row."""

    table: ClassVar[str] = "requests"
    row_id: str
    position: int
    attempt: int
    launch: str
    simulated: bool
    started_at: float
    latency_s: float
    outcome: str
    answer_class: str | None
    finish_reason: str | None
    prompt_tokens: int | None
    completion_tokens: int | None
    reasoning_tokens: int | None
    acceptance_length: float | None
    trouble: str | None


class TellRecord(Record, frozen=True, kw_only=True):
    """A tell, from when it came up until it went."""

    table: ClassVar[str] = "tells"
    key: ClassVar[tuple[str, ...]] = ("run", "tell", "since_at")
    tell: str
    level: str
    sentence: str
    server: str | None
    mend: str | None
    evidence: tuple[Evidence, ...]
    followed: str | None
    since_at: float
    gone_at: float | None


class CommandRecord(Record, frozen=True, kw_only=True):
    """A command that was given, and what it did."""

    table: ClassVar[str] = "commands"
    given_at: float
    given_by: str
    command: str
    arguments: str
    obeyed: bool
    effect: str


class ChangeRecord(Record, frozen=True, kw_only=True):
    """A change of launch flags, as far as it has come, with its verdict."""

    table: ClassVar[str] = "changes"
    key: ClassVar[tuple[str, ...]] = ("run", "change")
    change: int
    what: str
    given_by: str
    servers: tuple[str, ...]
    flags: tuple[ServerFlags, ...]
    canary: bool
    started_at: float
    ended_at: float | None
    outcome: str | None
    rolled_back: bool
    verdict: str | None
    verdict_sentence: str | None
    verdict_settled: bool | None
    effects: tuple[Effect, ...]
    control: tuple[str, ...]


class SweepPoint(Record, frozen=True, kw_only=True):
    """One point of a sweep, or why it was not measured; `run` is the key of the sweep."""

    table: ClassVar[str] = "sweep_points"
    name: str
    measured_at: float
    model: str
    host: str
    simulated: bool
    genmon: str
    sglang: str | None
    variant: str
    mtp: bool | None
    changed: dict[str, str]
    concurrency: int | None
    server: str | None
    gpu_uuid: str | None
    gpu_name: str | None
    cap: int | None
    tokens_per_s: float | None
    tokens_per_s_low: float | None
    tokens_per_s_high: float | None
    slices: int | None
    seconds: float | None
    power_w: float | None
    power_limit_w: float | None
    joules_per_token: float | None
    acceptance_length: float | None
    ttft_s: float | None
    itl_s: float | None
    streams: int | None
    tokens_per_row: float | None
    skipped: str | None


RECORDS: dict[str, type[Record]] = {
    kind.table: kind
    for kind in (
        Run,
        Launch,
        GpuReading,
        ServerReading,
        Request,
        TellRecord,
        CommandRecord,
        ChangeRecord,
        SweepPoint,
        RunEnd,
    )
}
"""By table, in the order in which they are taken in: a run before what happened in it."""
