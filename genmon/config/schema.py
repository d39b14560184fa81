"""The run file's shape: what a run is, as frozen types with their defaults.

Each field is one key of the run file; `load.py` reads them and names file, line and field when one is wrong.
"""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from msgspec import Struct

FlagValue = str | int | float | bool | list[str | int | float]


class ModelConfig(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The model to serve."""

    path: str
    """What SGLang's --model-path takes: a folder or a hub name."""
    served_name: str | None = None
    """The name requests use; default: the last part of `path`."""

    @property
    def name(self) -> str:
        """The name requests use."""
        return self.served_name or self.path.rstrip("/").rsplit("/", 1)[-1]


class MtpConfig(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Multi-token prediction: SGLang's NEXTN speculative decoding."""

    enabled: bool = False
    steps: int = 3
    topk: int = 1
    draft_tokens: int = 4


class ServersConfig(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Servers to launch, one a GPU, or (`urls`) servers that already run."""

    gpus: Literal["all"] | list[int | str] = "all"
    """GPU indices or UUIDs; "cpu" for a server that binds no GPU."""
    python: str = "python"
    """The interpreter that has SGLang."""
    base_port: int = 30000
    flags: dict[str, FlagValue] = {}
    """SGLang launch flags by their own names, without the dashes; true for a flag without a value."""
    mtp: MtpConfig = MtpConfig()
    env: dict[str, str] = {}
    stagger_s: float = 5.0
    """Seconds between launches, so that first launches do not compile the same kernels side by side."""
    start_timeout_s: float = 1800.0
    hang_after_s: float = 120.0
    """A server that decodes nothing for this long while rows are in flight is restarted."""
    max_restarts: int = 5
    """Restarts in a row without a finished row before a server is given up."""
    max_down: int = 1
    """Servers that may be away at once while flags are changed."""
    urls: list[str] = []
    """Servers that already run, http://host:port each; nothing is launched then."""
    api_key_env: str | None = None
    """Name of the environment variable that holds the servers' API key."""


class JobConfig(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What to generate, and where it goes."""

    prompts: list[str]
    """Prompt files or globs: .jsonl, .jsonl.gz, .jsonl.zst, .parquet."""
    output: str
    """The job directory."""
    field: str | None = None
    """Field that holds the prompt (a string, a list of turns, or messages); default: found in each record."""
    id_field: str | None = None
    """Field that holds the row's id; default: id, custom_id, or a hash of the row."""
    shard_size: int = 5000
    samples: int = 1
    """Completions a prompt."""
    limit: int | None = None
    """Only the first so many prompts."""


class SamplingConfig(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Sampling of every row; a row's own parameters win. None leaves it to the server."""

    max_tokens: int | None = None
    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    min_p: float | None = None
    seed: int | None = None
    """Seed of sample 0 of every row; sample k gets seed + k."""
    thinking: bool | None = None


class WorkersConfig(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How many rows are in flight."""

    concurrency: Literal["auto"] | int = "auto"
    """Rows in flight a server, never above its effective cap; auto finds the fewest that give nearly all tokens/s."""


class LimitsConfig(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """When to try again, and when to stop and ask."""

    retries: int = 2
    """New tries of a row whose answer was empty, unclosed or a loop; after them it has failed."""
    retry_truncated: bool = False
    """Whether a truncated answer is tried again too; otherwise it is kept, classed truncated."""
    server_failures: int = 8
    """Times a row may be in flight on a server that fails before the row itself is suspected and has failed."""
    pause_above: float = 0.05
    """Share of empty, unclosed or looping answers that pauses the run; 1.0 never pauses."""
    pause_window: int = 200
    """Answers the share is taken over."""
    drain_s: float = 600.0
    """Seconds that a drain waits for rows in flight before it gives them back to the queue."""


class TellsConfig(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What to look for beside genmon's own rules, and whom to call."""

    rules: str | None = None
    """A file of rules of your own; `genmon tells` shows the table and says how to write one."""
    deadline: str | None = None
    """When the run should be done, as 2026-12-24T18:00 (local time) or with an offset."""
    notify: Literal["look", "warn", "alarm"] = "alarm"
    """The least level that rings, notifies and posts."""
    bell: bool = False
    """Ring the bell of the terminals that look."""
    desktop: bool = False
    """Call notify-send on this machine."""
    webhook: str | None = None
    """A URL that gets each tell as a JSON POST when it comes up."""


class LogConfig(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The run log: one DuckDB file of all runs."""

    path: str | None = None
    """The file, on a local disk; default: genmon/genmon.duckdb in $XDG_DATA_HOME (~/.local/share)."""
    thin_after_days: float = 14.0
    """Samples older than this become one a minute; sums stay exact."""


class SimulationConfig(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A simulated box instead of real GPUs and servers. All it touches says SIMULATED."""

    gpus: int = 4
    gpu: Literal["h200"] = "h200"
    version: Literal["0.5.11", "0.5.23"] = "0.5.11"
    """The SGLang version whose protocol is spoken."""
    startup_s: float = 3.0
    output_tokens: int = 400
    """Mean completion length, tokens."""
    empty_share: float = 0.0
    loop_share: float = 0.0
    unclosed_share: float = 0.0
    abort_share: float = 0.0
    error_share: float = 0.0
    """Share of requests answered 500."""
    crash_after_s: float | None = None
    """Every server crashes this long after it was ready."""
    hang_after_s: float | None = None
    """Every server stops decoding this long after it was ready."""
    seed: int = 0


class RunConfig(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One run file."""

    model: ModelConfig
    job: JobConfig
    name: str = ""
    """Default: the file's name without its ending."""
    servers: ServersConfig = ServersConfig()
    sampling: SamplingConfig = SamplingConfig()
    workers: WorkersConfig = WorkersConfig()
    limits: LimitsConfig = LimitsConfig()
    tells: TellsConfig = TellsConfig()
    log: LogConfig = LogConfig()
    simulation: SimulationConfig | None = None

    @property
    def output(self) -> Path:
        """The job directory."""
        return Path(self.job.output)
