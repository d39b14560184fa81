"""The named inputs of signatures: what each means, its unit, and how it is read off a `State`."""

from __future__ import annotations

from msgspec import Struct

from genmon.figures import UNKNOWN, count, decimal, duration, share
from genmon.state import AnswerClass, GpuSample, JobState, RunPhase, ServerPhase, ServerState, State
from genmon.tells.signature import Value

STALE_S = 5.0
"""Figures older than this are not known."""
Reading = dict[str, Value]


class RunFacts(Struct, frozen=True, kw_only=True):
    """What is known of a run beside its states."""

    model: str
    quantisation: str = ""
    mtp_head: bool | None = None
    """Whether the model has a head for MTP; None when nobody knows."""
    mtp_steps: int = 3
    deadline: float | None = None
    """When the run should be done, Unix seconds."""


class Input(Struct, frozen=True):
    """One input; `unit` says how it is written."""

    unit: str
    meaning: str
    source: str
    """Where it comes from, for the sentence about what is not known."""


_METRICS, _INFO, _NVML, _RUN = "the server's metrics page", "the server's own word", "the GPU driver", "the run"

SERVER: dict[str, Input] = {
    "ready": Input("yes", "serves", _RUN),
    "given_up": Input("yes", "genmon has given it up", _RUN),
    "starting_s": Input("s", "how long this start takes already; 0 when it does not start", _RUN),
    "launches": Input("count", "times launched in this run", _RUN),
    "answered_s": Input("s", "age of the last answered poll", _RUN),
    "work": Input("yes", "rows wait for a server and the run is not held", _RUN),
    "in_flight": Input("count", "rows sent and not come back", _RUN),
    "target": Input("count", "rows in flight that are aimed at", _RUN),
    "auto": Input("yes", "how many are aimed at is found by itself", _RUN),
    "failures_hour": Input("count", "launches within an hour that followed a failure", _RUN),
    "mtp_crossover": Input("count", "requests in the batch above which MTP usually costs", "what is normal"),
    "mtp_best": Input("decimal", "the best acceptance length of this run, on any server", _RUN),
    "mtp_head": Input("yes", "the model has a head for MTP", "the model's config.json or name"),
    "mtp": Input("yes", "MTP is on", _INFO),
    "overlap": Input("yes", "the overlap scheduler is on", _INFO),
    "cap": Input("count", "requests granted to run at once", _INFO),
    "cap_requested": Input("count", "requests asked for to run at once", _INFO),
    "graph_batch": Input("count", "largest batch with a CUDA graph", _INFO),
    "running": Input("count", "requests running", _METRICS),
    "queued": Input("count", "requests waiting in the server", _METRICS),
    "tokens_per_s": Input("tokens/s", "decoded tokens per second", _METRICS),
    "tokens_per_s_request": Input("tokens/s", "decoded tokens per second and running request", _METRICS),
    "decoded": Input("tokens", "tokens decoded, counting up", _METRICS),
    "prefilled": Input("tokens", "prompt tokens computed, counting up", _METRICS),
    "acceptance_length": Input("decimal", "tokens per verify step", _METRICS),
    "kv_usage": Input("share", "share of the KV cache in use", _METRICS),
    "mamba_usage": Input("share", "share of the state cache in use", _METRICS),
    "retracted": Input("tokens", "tokens thrown out of a full KV cache, counting up", _METRICS),
    "grammar_queued": Input("count", "requests waiting for a grammar", _METRICS),
    "cache_hit_rate": Input("share", "prompt tokens found in the cache", _METRICS),
    "passes_graphed": Input("count", "decode passes run as a CUDA graph, counting up", _METRICS),
    "passes_eager": Input("count", "decode passes run without a CUDA graph, counting up", _METRICS),
    "gpu_lost": Input("yes", "the GPU has fallen off the bus", _NVML),
    "gpu_answered_s": Input("s", "age of the GPU's last sample", _NVML),
    "power_w": Input("W", "power, 1-second average", _NVML),
    "power_limit_w": Input("W", "enforced power limit", _NVML),
    "power_default_limit_w": Input("W", "power limit that the GPU boots with", _NVML),
    "power_fraction": Input("share", "power over the enforced limit", _NVML),
    "joules_per_token": Input("J/token", "energy counter over decoded tokens, 15 s", "the energy and token counters"),
    "utilization": Input("share", "time in which a kernel ran", _NVML),
    "sm_clock_mhz": Input("MHz", "SM clock", _NVML),
    "sm_clock_max_mhz": Input("MHz", "highest SM clock", _NVML),
    "temperature_c": Input("°C", "temperature", _NVML),
    "power_capped_s": Input("s", "seconds slowed by the power limit, counting up", _NVML),
    "thermal_s": Input("s", "seconds slowed for heat by the driver, counting up", _NVML),
    "hw_slowed_s": Input("s", "seconds slowed for heat or by the power brake in hardware, counting up", _NVML),
}
"""Of one server and its GPU."""

SHARES: dict[str, AnswerClass] = {
    "empty": AnswerClass.EMPTY,
    "loop": AnswerClass.LOOP,
    "unclosed": AnswerClass.UNCLOSED_THOUGHT,
    "truncated": AnswerClass.TRUNCATED,
}
JOB: dict[str, Input] = {
    "work": Input("yes", "rows are left and the run is not held", _RUN),
    "rows_left": Input("count", "rows not done", _RUN),
    "rows_done": Input("count", "rows done, counting up", _RUN),
    "rows_in_flight": Input("count", "rows sent and not come back", _RUN),
    "lanes": Input("count", "rows that the ready servers could hold", _RUN),
    "tokens": Input("tokens", "tokens of finished rows, counting up", _RUN),
    "eta_s": Input("s", "time to the end at this pace", _RUN),
    "eta_low_s": Input("s", "time to the end, the early end of its interval", _RUN),
    "deadline_s": Input("s", "time to the deadline", "tells.deadline in the run file"),
    "disk_free_b": Input("B", "room on the disk of the job directory", "the file system"),
    "changed_s": Input("s", "time since flags were last changed", _RUN),
    "answers_judged": Input("count", "the last answers that the shares are of, at most 200", _RUN),
    **{f"{name}_share": Input("share", f"share of {name} answers among the last", _RUN) for name in SHARES},
    "tokens_per_row": Input("tokens", "tokens a finished row, over 10 min", _RUN),
}
"""Of the run as a whole."""

_SLOWED = {
    "power_capped_s": ("power cap",),
    "thermal_s": ("thermal slow-down",),
    "hw_slowed_s": ("hardware thermal slow-down", "power brake"),
}
_STARTING = (ServerPhase.STARTING, ServerPhase.SMOKE)


def written(name: str, value: Value, *, of: dict[str, Input]) -> str:
    """A value as people read it, without its unit where the sentence says it."""
    if value is None:
        return UNKNOWN
    match of[name].unit:
        case "yes":
            return "yes" if value else "no"
        case "W" | "MHz" | "°C":
            return f"{value:.0f}"
        case "share":
            return share(value)
        case "J/token" | "decimal":
            return decimal(value, 1 if value >= 3 and of[name].unit == "J/token" else 2)
        case "s":
            return duration(value)
        case "B":
            return f"{value / 1e9:.1f} GB"
        case _:
            return count(value)


def of_server(state: State, server: ServerState, gpu: GpuSample | None, facts: RunFacts) -> Reading:
    """The inputs of one server now, but those that need a past."""
    now, ready = state.taken_at, server.phase is ServerPhase.READY
    answered_s = None if server.taken_at is None else max(0.0, now - server.taken_at)
    fresh = ready and answered_s is not None and answered_s <= STALE_S
    reading: Reading = {
        "ready": ready,
        "given_up": server.phase is ServerPhase.GIVEN_UP,
        "starting_s": now - server.since if server.phase in _STARTING else 0.0,
        "launches": server.launches,
        "answered_s": answered_s if ready else None,
        "work": _work(state) and (_left(state.job) or 0) > state.job.rows_in_flight,
        "in_flight": server.in_flight,
        "target": server.aim,
        "auto": state.concurrency is None,
        "mtp_head": facts.mtp_head,
        "mtp": server.mtp,
        "overlap": server.overlap,
        "cap": server.cap,
        "cap_requested": server.cap_requested,
        "graph_batch": server.cuda_graph_max_batch,
    }
    if fresh:
        running, rate = server.running, server.tokens_per_s
        if rate == 0 and server.in_flight == 0:
            running = 0  # SGLang's gauges stay at the last batch while it idles
        reading |= {
            "running": running,
            "queued": server.queued,
            "tokens_per_s": rate,
            "tokens_per_s_request": rate / running if running and rate is not None else None,
            "decoded": server.decode_tokens,
            "prefilled": server.prefill_tokens,
            "acceptance_length": server.acceptance_length,
            "kv_usage": server.kv_usage,
            "mamba_usage": server.mamba_usage,
            "retracted": server.retracted_tokens,
            "grammar_queued": server.grammar_queued,
            "cache_hit_rate": server.cache_hit_rate,
            "passes_graphed": server.passes_graphed,
            "passes_eager": server.passes_eager,
        }
    return reading if gpu is None else reading | _of_gpu(gpu, now)


def _of_gpu(gpu: GpuSample, now: float) -> Reading:
    age_s = max(0.0, now - gpu.taken_at)
    reading: Reading = {"gpu_lost": gpu.lost, "gpu_answered_s": age_s}
    if age_s > STALE_S:
        return reading
    fraction = gpu.power_w / gpu.power_limit_w if gpu.power_w is not None and gpu.power_limit_w else None
    slowed = {
        name: sum(gpu.slowed_s[each] for each in reasons if each in gpu.slowed_s)
        if any(each in gpu.slowed_s for each in reasons)
        else None
        for name, reasons in _SLOWED.items()
    }
    return (
        reading
        | slowed
        | {
            "power_w": gpu.power_w,
            "power_limit_w": gpu.power_limit_w,
            "power_default_limit_w": gpu.power_default_limit_w,
            "power_fraction": fraction,
            "energy_j": gpu.energy_j,
            "utilization": gpu.utilization,
            "sm_clock_mhz": gpu.sm_clock_mhz,
            "sm_clock_max_mhz": gpu.sm_clock_max_mhz,
            "temperature_c": gpu.temperature_c,
        }
    )


def of_job(state: State, facts: RunFacts) -> Reading:
    """The inputs of the run as a whole."""
    job, now = state.job, state.taken_at
    ended = [change.ended_at for change in state.changes if change.ended_at is not None and not change.rolled_back]
    lanes = [server.aim for server in state.servers if server.phase is ServerPhase.READY and server.aim is not None]
    return {
        "work": _work(state) and bool(_left(job)),
        "rows_left": _left(job),
        "rows_done": job.rows_done,
        "rows_in_flight": job.rows_in_flight,
        "lanes": sum(lanes) if lanes else None,
        "tokens": job.tokens,
        "eta_s": job.eta_s,
        "eta_low_s": job.eta_low_s,
        "deadline_s": None if facts.deadline is None else facts.deadline - now,
        "disk_free_b": job.disk_free_b,
        "changed_s": now - max(ended) if ended else None,
    }


def _work(state: State) -> bool:
    return state.phase is RunPhase.RUNNING


def _left(job: JobState) -> int | None:
    if job.rows_total is None:
        return None
    return max(0, job.rows_total - job.rows_done - job.rows_failed - job.rows_skipped)
