"""The vocabulary: frozen types that cross every seam unchanged.

Samples and commands (commands.py) go in, one `State` comes out. Unknown is `None`, never 0; every sample says when it
was taken (`taken_at`, Unix seconds). Units stand in the names: `_w` watts, `_j` joules, `_s` seconds,
`_b` bytes.
"""

from __future__ import annotations

from enum import StrEnum

from msgspec import Struct

from genmon.commands import Restart, SetConcurrency


class RunPhase(StrEnum):
    """What the run as a whole is doing."""

    STARTING = "starting"
    RUNNING = "running"
    PAUSED = "paused"
    DRAINING = "draining"
    FINISHED = "finished"
    STOPPED = "stopped"
    FAILED = "failed"


class ServerPhase(StrEnum):
    """Where one server stands.

    waiting → starting → smoke → ready → draining → stopping → stopped, with backoff (a restart is due)
    and given_up (no more restarts) beside it.
    """

    WAITING = "waiting"
    STARTING = "starting"
    SMOKE = "smoke"
    READY = "ready"
    DRAINING = "draining"
    STOPPING = "stopping"
    STOPPED = "stopped"
    BACKOFF = "backoff"
    GIVEN_UP = "given_up"


class AnswerClass(StrEnum):
    """What an answer is worth as training data."""

    COMPLETE = "complete"
    TRUNCATED = "truncated"
    EMPTY = "empty"
    UNCLOSED_THOUGHT = "unclosed_thought"
    LOOP = "loop"
    ABORTED = "aborted"


class ShardPhase(StrEnum):
    """Where one shard of the job stands."""

    WAITING = "waiting"
    RUNNING = "running"
    DONE = "done"


class TellLevel(StrEnum):
    """How urgent a tell is."""

    LOOK = "look"
    WARN = "warn"
    ALARM = "alarm"


class GpuSample(Struct, frozen=True, kw_only=True):
    """One reading of one GPU. `energy_j` counts up from an arbitrary start; `reasons` are clock-event reasons."""

    host: str
    index: int
    uuid: str
    name: str
    taken_at: float
    power_w: float | None = None
    """1-second trailing average, as the driver reports it."""
    power_instant_w: float | None = None
    power_limit_w: float | None = None
    """Enforced limit: what the bar is drawn against."""
    power_default_limit_w: float | None = None
    energy_j: float | None = None
    sm_clock_mhz: int | None = None
    temperature_c: int | None = None
    utilization: float | None = None
    memory_used_b: int | None = None
    memory_total_b: int | None = None
    reasons: tuple[str, ...] = ()
    sm_clock_max_mhz: int | None = None
    slowed_s: dict[str, float] = {}
    """Seconds that each clock-event reason has held the clocks down, counting up from an arbitrary start."""
    lost: bool = False
    """The driver says that this GPU has fallen off the bus or must be reset."""
    trouble: str | None = None
    """Why fields are missing, in words."""
    simulated: bool = False


class UsualPower(Struct, frozen=True):
    """The watts that are normal for what a server does now."""

    low_w: float
    high_w: float
    n: int
    """Readings of earlier runs behind it; 0 for a published prior."""


class ServerState(Struct, frozen=True, kw_only=True):
    """One server as its engine sees it; rates and gauges are from the last good poll (`taken_at`)."""

    host: str
    name: str
    url: str
    phase: ServerPhase
    since: float
    """When this phase began, Unix seconds."""
    reason: str | None = None
    """One sentence: why it is not ready, or what happened last."""
    gpu_index: int | None = None
    gpu_uuid: str | None = None
    pid: int | None = None
    version: str | None = None
    mtp: bool | None = None
    """Read from the server itself, never guessed; None until it was asked."""
    cap_requested: int | None = None
    cap: int | None = None
    """Effective concurrency cap the server granted."""
    in_flight: int = 0
    """Rows this engine has sent and not got back."""
    aim: int | None = None
    """Rows in flight that the engine aims at now."""
    usual_power: UsualPower | None = None
    running: int | None = None
    queued: int | None = None
    tokens_per_s: float | None = None
    decode_tokens: int | None = None
    """Tokens decoded by this launch; goes back to 0 at a restart."""
    acceptance_length: float | None = None
    """Tokens per verify step, 1 to steps + 1; None when speculation is off."""
    kv_usage: float | None = None
    mamba_usage: float | None = None
    prefill_tokens: int | None = None
    """Prompt tokens computed by this launch."""
    retracted_tokens: int | None = None
    """Tokens of this launch's requests that were thrown out of a full KV cache, to be computed again."""
    grammar_queued: int | None = None
    cache_hit_rate: float | None = None
    passes_graphed: int | None = None
    passes_eager: int | None = None
    """Decode passes of this launch that ran as a CUDA graph, and that did not."""
    cuda_graph_max_batch: int | None = None
    """The largest batch that has a CUDA graph; a larger one runs without."""
    overlap: bool | None = None
    """Whether the overlap scheduler is on, as the server says of itself."""
    launches: int = 0
    launched_at: float | None = None
    """When its process was last started, Unix seconds."""
    argv: tuple[str, ...] = ()
    log_path: str | None = None
    taken_at: float | None = None
    external: bool = False
    simulated: bool = False


class ShardState(Struct, frozen=True):
    """One shard: `rows` positions, of which `done` are in the shard, `failed` gave up, `skipped` were bad lines."""

    phase: ShardPhase
    rows: int
    done: int
    failed: int
    skipped: int


class JobState(Struct, frozen=True, kw_only=True):
    """How far the job is. Rates are over the last minute unless their name says mean."""

    rows_total: int | None = None
    rows_done: int = 0
    rows_failed: int = 0
    rows_skipped: int = 0
    rows_in_flight: int = 0
    retries: int = 0
    tokens: int = 0
    """Completion tokens of rows finished in this run."""
    rows_per_s: float | None = None
    tokens_per_s: float | None = None
    tokens_per_s_mean: float | None = None
    eta_s: float | None = None
    eta_low_s: float | None = None
    eta_high_s: float | None = None
    classes: dict[AnswerClass, int] = {}
    answers: dict[AnswerClass, int] = {}
    """Every answer that came in this run, also of rows that were tried again."""
    disk_free_b: int | None = None
    """Room left where the job directory is."""
    shards: tuple[ShardState, ...] = ()
    energy_j: float | None = None
    """Energy of the job's GPUs since the run began, from their energy counters."""
    joules_per_token: float | None = None


class Evidence(Struct, frozen=True, array_like=True):
    """One figure that a tell rests on, as it is shown: power, 400 of 600 W."""

    name: str
    value: str
    usual: str | None = None
    """What is normal here, with its source: 480 to 560 W (prior)."""


class Tell(Struct, frozen=True, kw_only=True):
    """One thing that is wrong, with its evidence and what mends it."""

    id: str
    level: TellLevel
    sentence: str
    since: float
    server: str | None = None
    """The server it is about, when it is one."""
    mend: str | None = None
    servers: tuple[str, ...] = ()
    """All servers it is about; none for the run as a whole."""
    evidence: tuple[Evidence, ...] = ()
    wrong_if: str | None = None
    """What would prove it wrong."""
    prescription: Restart | SetConcurrency | None = None
    """The command that applies `mend`, ready to be given."""
    followed: str | None = None
    """What following it did, in figures; the tell itself is then over."""


class NotChecked(Struct, frozen=True):
    """A rule that cannot be judged, and why."""

    rule: str
    reason: str


class Event(Struct, frozen=True):
    """One line of the run's story."""

    at: float
    text: str
    server: str | None = None


class Effect(Struct, frozen=True, kw_only=True):
    """What a flag change did to one figure: the changed servers against their own past, or against the others."""

    figure: str
    """tokens_per_s, power_w, joules_per_token or acceptance_length."""
    before: float | None
    after: float | None
    change: float | None
    """Relative change, corrected by the control group where there is one: 0.1 is 10 % more."""
    low: float | None
    high: float | None
    """Its 95 % interval."""
    n_before: int
    n_after: int
    """Slices of ten seconds at full load."""
    server: str | None = None
    """None: all changed servers together."""


class Verdict(Struct, frozen=True, kw_only=True):
    """What a flag change brought, with the figures behind it.

    `word` is `better`, `worse`, `no difference yet`, or at last `no difference`.
    """

    word: str
    sentence: str
    effects: tuple[Effect, ...] = ()
    each: tuple[Effect, ...] = ()
    """The same for each changed server alone, where there are several."""
    control: tuple[str, ...] = ()
    """The unchanged servers it was compared with; none means before and after only."""
    settled: bool = False
    """Whether more waiting would change nothing."""


class ServerFlags(Struct, frozen=True, kw_only=True):
    """One server's launch flags before and after a change, one element a flag with its value."""

    server: str
    before: tuple[str, ...]
    after: tuple[str, ...]


class FlagChange(Struct, frozen=True, kw_only=True):
    """A restart of servers, with or without other flags: under way, or lately ended."""

    id: int
    what: str
    """In words: MTP on, restart, max-running-requests=64."""
    servers: tuple[str, ...]
    started_at: float
    by: str = ""
    """Who gave the command, in words."""
    flags: tuple[ServerFlags, ...] = ()
    done: tuple[str, ...] = ()
    stage: str = ""
    """What it is doing now, in words: s1: waiting for 4 rows in flight."""
    ended_at: float | None = None
    outcome: str | None = None
    """One sentence when it has ended: done, rolled back and why, cancelled."""
    rolled_back: bool = False
    canary: bool = False
    """Only the first servers were changed; the verdict decides about the others."""
    verdict: Verdict | None = None


class State(Struct, frozen=True, kw_only=True):
    """All that a view may know, at `taken_at`."""

    run: str
    phase: RunPhase
    taken_at: float
    started_at: float
    reason: str | None = None
    job: JobState = JobState()
    servers: tuple[ServerState, ...] = ()
    gpus: tuple[GpuSample, ...] = ()
    tells: tuple[Tell, ...] = ()
    """What is wrong, the first cause first."""
    not_checked: tuple[NotChecked, ...] = ()
    rings: int = 0
    """How often a view was to ring its bell since the run began."""
    changes: tuple[FlagChange, ...] = ()
    """Flag changes under way and the last few that ended, oldest first."""
    concurrency: int | None = None
    """In-flight rows a server that were asked for; None is found for each server."""
    events: tuple[Event, ...] = ()
    simulated: bool = False
    genmon_version: str = ""
