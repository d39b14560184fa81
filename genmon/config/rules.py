"""What the types cannot say: ranges, and combinations that cannot work."""

from __future__ import annotations

import math
from collections.abc import Iterator
from datetime import datetime
from urllib.parse import urlsplit

from msgspec import Struct

from genmon.config.schema import RunConfig

_ONE_A_GPU = "genmon runs one server a GPU"
OWNED = {
    "host": "genmon binds servers to 127.0.0.1",
    "port": "it is servers.base_port",
    "nccl-port": "genmon finds a free one at each launch",
    "model-path": "it is model.path",
    "model": "it is model.path",
    "served-model-name": "it is model.served_name",
    "enable-metrics": "genmon always sets it",
    "uvicorn-access-log-exclude-prefixes": "genmon sets it, so that its own polls do not fill the log",
    "api-key": "name an environment variable in servers.api_key_env",
    "speculative-algorithm": "it is servers.mtp.enabled",
    "speculative-num-steps": "it is servers.mtp.steps",
    "speculative-eagle-topk": "it is servers.mtp.topk",
    "speculative-num-draft-tokens": "it is servers.mtp.draft_tokens",
    "base-gpu-id": "it is servers.gpus",
    "config": "genmon passes the flags of this file, and would not see those of another",
}
"""Launch flags that genmon sets itself, and where what they mean belongs."""
PARALLEL = ("tp-size", "tp", "tensor-parallel-size", "dp-size", "dp", "data-parallel-size", "pp-size", "pp", "nnodes")
"""Flags for one server on several GPUs; a value of 1 says nothing and is let pass."""


class Problem(Struct, frozen=True):
    """What is wrong, and with which field."""

    field: tuple[str, ...]
    sentence: str


def problem(config: RunConfig) -> Problem | None:
    """The first thing wrong with a config whose types are right; None when nothing is."""
    return next(_problems(config), None)


def _problems(config: RunConfig) -> Iterator[Problem]:
    yield from _ranges(config)
    yield from _servers(config)
    yield from _flags(config)
    yield from _tells(config)
    job, sampling = config.job, config.sampling
    if not config.model.path:
        yield Problem(("model", "path"), "model.path is empty: name a folder or a hub name")
    if not job.output:
        yield Problem(("job", "output"), "job.output is empty: name the job directory")
    if not job.prompts or not all(job.prompts):
        yield Problem(("job", "prompts"), "job.prompts is empty: name at least one file or glob")
    greedy = "temperature 0" if sampling.temperature == 0 else "top_k 1" if sampling.top_k == 1 else None
    if job.samples > 1 and greedy is not None:
        same = f"at {greedy} all {job.samples} samples of a prompt would be the same"
        yield Problem(("job", "samples"), f"{same}: raise sampling.{greedy.split()[0]}")
    context = config.servers.flags.get("context-length")
    if isinstance(context, int) and sampling.max_tokens is not None and sampling.max_tokens >= context:
        sentence = (
            f"sampling.max_tokens = {sampling.max_tokens} leaves no room for a prompt in context-length = "
            f"{context}: lower the first or raise the second"
        )
        yield Problem(("sampling", "max_tokens"), sentence)


def _servers(config: RunConfig) -> Iterator[Problem]:
    servers = config.servers
    if servers.urls and config.simulation is not None:
        yield Problem(("servers", "urls"), "servers.urls and [simulation] exclude each other: remove one")
    if servers.urls and (servers.flags or servers.mtp.enabled or servers.gpus != "all"):
        sentence = "servers.urls names servers that already run, so gpus, flags and mtp have no effect: remove them"
        yield Problem(("servers", "urls"), sentence)
    for number, url in enumerate(servers.urls):
        if not _is_root(url):
            yield Problem(("servers", "urls"), f"servers.urls[{number}] is {url!r}: write it as http://host:port")
        elif url.rstrip("/") in [each.rstrip("/") for each in servers.urls[:number]]:
            yield Problem(("servers", "urls"), f"servers.urls names {url} twice: name each server once")
    gpus = servers.gpus if isinstance(servers.gpus, list) else ["all"]
    if not gpus:
        yield Problem(("servers", "gpus"), 'servers.gpus is empty: name GPUs, or write gpus = "all"')
    named = [gpu for gpu in gpus if gpu != "cpu"]
    if len(set(named)) != len(named):
        yield Problem(("servers", "gpus"), f"servers.gpus names a GPU twice: {_ONE_A_GPU}")
    for gpu in named:
        if isinstance(gpu, int) and gpu < 0:
            yield Problem(("servers", "gpus"), f"servers.gpus names {gpu}: indices begin at 0")
    if "PROMETHEUS_MULTIPROC_DIR" in servers.env:
        sentence = (
            "servers.env.PROMETHEUS_MULTIPROC_DIR cannot be set: servers that share one show each other's metrics as "
            "their own; remove it, SGLang makes a folder for each"
        )
        yield Problem(("servers", "env", "PROMETHEUS_MULTIPROC_DIR"), sentence)
    mtp = servers.mtp
    if mtp.enabled and mtp.topk == 1 and mtp.draft_tokens != mtp.steps + 1:
        wanted = mtp.steps + 1
        sentence = f"with topk = 1 servers.mtp.draft_tokens must be steps + 1 = {wanted}, not {mtp.draft_tokens}"
        yield Problem(("servers", "mtp", "draft_tokens"), sentence)


def _flags(config: RunConfig) -> Iterator[Problem]:
    for flag, value in config.servers.flags.items():
        field = ("servers", "flags", flag)
        name = flag.lstrip("-").replace("_", "-")
        if name in OWNED:
            yield Problem(field, f"servers.flags.{flag} cannot be set here: {OWNED[name]}")
        if name in PARALLEL and value != 1:
            yield Problem(field, f"servers.flags.{flag} = {value} is not supported: {_ONE_A_GPU}")
        if name != flag:
            yield Problem(
                field, f"servers.flags.{flag}: write flags as SGLang does, without the dashes in front: {name}"
            )
        if isinstance(value, float) and not math.isfinite(value):
            yield Problem(field, f"servers.flags.{flag} must be a finite number, not {value}")


def _tells(config: RunConfig) -> Iterator[Problem]:
    tells = config.tells
    if tells.deadline is not None:
        try:
            datetime.fromisoformat(tells.deadline)
        except ValueError:
            sentence = f"tells.deadline is {tells.deadline!r}: write it as 2026-12-24T18:00"
            yield Problem(("tells", "deadline"), sentence)
    if tells.webhook is not None and not tells.webhook.startswith(("http://", "https://")):
        yield Problem(("tells", "webhook"), f"tells.webhook is {tells.webhook!r}: write a URL, https://host/path")


def _is_root(url: str) -> bool:
    """Whether a URL is a scheme, a host, perhaps a port, and no path."""
    try:
        parts = urlsplit(url)
        _ = parts.port  # raises on a port that is none
    except ValueError:
        return False
    return parts.scheme in ("http", "https") and bool(parts.hostname) and parts.path in ("", "/") and not parts.query


def _ranges(config: RunConfig) -> Iterator[Problem]:
    """Numbers outside what makes sense. None is unset and always fine.

    Those of sampling are SGLang's own (`SamplingParams.verify`): it would refuse every single row.
    """
    job, sampling, servers, limits = config.job, config.sampling, config.servers, config.limits
    checks: list[tuple[tuple[str, ...], object, float | None, float | None]] = [
        (("job", "shard_size"), job.shard_size, 1, None),
        (("job", "samples"), job.samples, 1, None),
        (("job", "limit"), job.limit, 1, None),
        (("sampling", "max_tokens"), sampling.max_tokens, 1, None),
        (("sampling", "temperature"), sampling.temperature, 0, None),
        (("sampling", "top_p"), sampling.top_p, 0, 1),
        (("sampling", "top_k"), sampling.top_k, -1, None),
        (("sampling", "min_p"), sampling.min_p, 0, 1),
        (("workers", "concurrency"), config.workers.concurrency, 1, None),
        (("servers", "base_port"), servers.base_port, 1024, 65000),
        (("servers", "stagger_s"), servers.stagger_s, 0, None),
        (("servers", "start_timeout_s"), servers.start_timeout_s, 1, None),
        (("servers", "hang_after_s"), servers.hang_after_s, 1, None),
        (("servers", "max_restarts"), servers.max_restarts, 0, None),
        (("servers", "max_down"), servers.max_down, 1, None),
        (("servers", "mtp", "steps"), servers.mtp.steps, 1, None),
        (("servers", "mtp", "topk"), servers.mtp.topk, 1, None),
        (("servers", "mtp", "draft_tokens"), servers.mtp.draft_tokens, 1, None),
        (("limits", "retries"), limits.retries, 0, None),
        (("limits", "server_failures"), limits.server_failures, 1, None),
        (("limits", "pause_above"), limits.pause_above, 0, 1),
        (("limits", "pause_window"), limits.pause_window, 1, None),
        (("limits", "drain_s"), limits.drain_s, 0, None),
        (("log", "thin_after_days"), config.log.thin_after_days, 0, None),
    ]
    simulation = config.simulation
    if simulation is not None:
        checks += [
            (("simulation", "gpus"), simulation.gpus, 1, 64),
            (("simulation", "startup_s"), simulation.startup_s, 0, None),
            (("simulation", "output_tokens"), simulation.output_tokens, 2, None),
            (("simulation", "crash_after_s"), simulation.crash_after_s, 0, None),
            (("simulation", "hang_after_s"), simulation.hang_after_s, 0, None),
            (("simulation", "empty_share"), simulation.empty_share, 0, 1),
            (("simulation", "loop_share"), simulation.loop_share, 0, 1),
            (("simulation", "unclosed_share"), simulation.unclosed_share, 0, 1),
            (("simulation", "abort_share"), simulation.abort_share, 0, 1),
            (("simulation", "error_share"), simulation.error_share, 0, 1),
        ]
    for field, value, low, high in checks:
        if not isinstance(value, int | float):
            continue
        endless = isinstance(value, float) and not math.isfinite(value)
        if endless or (low is not None and value < low) or (high is not None and value > high):
            between = f"at least {low}" if high is None else f"between {low} and {high}"
            yield Problem(field, f"{'.'.join(field)} must be {between}, not {value}")
    if sampling.top_p == 0:
        yield Problem(("sampling", "top_p"), "sampling.top_p must be above 0: SGLang refuses 0")
    if sampling.top_k == 0:
        yield Problem(("sampling", "top_k"), "sampling.top_k must be -1 (off) or at least 1: SGLang refuses 0")
