"""What the types cannot say: ranges, and combinations that cannot work."""

from __future__ import annotations

from collections.abc import Iterator

from msgspec import Struct

from genmon.config.schema import RunConfig

_OWNED = {
    "host": "genmon binds servers to 127.0.0.1",
    "port": "it is servers.base_port",
    "nccl-port": "genmon finds a free one at each launch",
    "model-path": "it is model.path",
    "model": "it is model.path",
    "served-model-name": "it is model.served_name",
    "enable-metrics": "genmon always sets it",
    "api-key": "name an environment variable in servers.api_key_env",
    "speculative-algorithm": "it belongs to [servers.mtp]",
    "speculative-num-steps": "it is servers.mtp.steps",
    "speculative-eagle-topk": "it is servers.mtp.topk",
    "speculative-num-draft-tokens": "it is servers.mtp.draft_tokens",
    "base-gpu-id": "it is servers.gpus",
    "tp-size": "genmon runs one server a GPU",
    "tp": "genmon runs one server a GPU",
    "dp-size": "genmon runs one server a GPU",
    "dp": "genmon runs one server a GPU",
}
"""Launch flags that genmon sets itself, and where what they mean belongs."""


class Problem(Struct, frozen=True):
    """What is wrong, and with which field."""

    field: tuple[str, ...]
    sentence: str


def problem(config: RunConfig) -> Problem | None:
    """The first thing wrong with a config whose types are right; None when nothing is."""
    return next(_problems(config), None)


def _problems(config: RunConfig) -> Iterator[Problem]:
    yield from _ranges(config)
    servers, job, sampling = config.servers, config.job, config.sampling
    if not job.prompts:
        yield Problem(("job", "prompts"), "job.prompts is empty: name at least one file or glob")
    if servers.urls and config.simulation is not None:
        yield Problem(("servers", "urls"), "servers.urls and [simulation] exclude each other")
    if servers.urls and (servers.flags or servers.mtp.enabled or servers.gpus != "all"):
        sentence = "servers.urls names servers that already run, so gpus, flags and mtp have no effect: remove them"
        yield Problem(("servers", "urls"), sentence)
    for number, url in enumerate(servers.urls):
        if not url.startswith(("http://", "https://")):
            yield Problem(("servers", "urls"), f"servers.urls[{number}] is {url!r}; write it as http://host:port")
    if servers.gpus == [] and not servers.urls:
        yield Problem(("servers", "gpus"), 'servers.gpus is empty: name GPUs, or write gpus = "all"')
    if isinstance(servers.gpus, list):
        named = [gpu for gpu in servers.gpus if gpu != "cpu"]
        if len(set(named)) != len(named):
            yield Problem(("servers", "gpus"), "servers.gpus names a GPU twice: genmon runs one server a GPU")
    for flag in servers.flags:
        name = flag.lstrip("-").replace("_", "-")
        if name != flag:
            yield Problem(("servers", "flags", flag), f"servers.flags.{flag}: write flags as SGLang does, {name}")
        if name in _OWNED:
            yield Problem(("servers", "flags", flag), f"servers.flags.{flag} cannot be set here: {_OWNED[name]}")
    mtp = servers.mtp
    if mtp.enabled and mtp.topk == 1 and mtp.draft_tokens != mtp.steps + 1:
        wanted = mtp.steps + 1
        sentence = f"with topk = 1 servers.mtp.draft_tokens must be steps + 1 = {wanted}, not {mtp.draft_tokens}"
        yield Problem(("servers", "mtp", "draft_tokens"), sentence)
    if job.samples > 1 and sampling.temperature == 0:
        same = f"at temperature 0 all {job.samples} samples of a prompt would be the same"
        sentence = f"{same}: raise sampling.temperature"
        yield Problem(("job", "samples"), sentence)
    context = servers.flags.get("context-length")
    if isinstance(context, int) and sampling.max_tokens is not None and sampling.max_tokens >= context:
        sentence = (
            f"sampling.max_tokens = {sampling.max_tokens} leaves no room for a prompt in context-length = "
            f"{context}: lower the first or raise the second"
        )
        yield Problem(("sampling", "max_tokens"), sentence)


def _ranges(config: RunConfig) -> Iterator[Problem]:
    """Numbers outside what makes sense. None is unset and always fine."""
    job, sampling, servers, limits = config.job, config.sampling, config.servers, config.limits
    checks: list[tuple[tuple[str, str], object, float | None, float | None]] = [
        (("job", "shard_size"), job.shard_size, 1, None),
        (("job", "samples"), job.samples, 1, None),
        (("job", "limit"), job.limit, 1, None),
        (("sampling", "max_tokens"), sampling.max_tokens, 1, None),
        (("sampling", "temperature"), sampling.temperature, 0, None),
        (("sampling", "top_p"), sampling.top_p, 0, 1),
        (("sampling", "top_k"), sampling.top_k, -1, None),
        (("sampling", "min_p"), sampling.min_p, 0, 1),
        (("workers", "concurrency"), config.workers.concurrency, 1, None),
        (("servers", "base_port"), servers.base_port, 1024, 60000),
        (("servers", "stagger_s"), servers.stagger_s, 0, None),
        (("servers", "start_timeout_s"), servers.start_timeout_s, 1, None),
        (("servers", "hang_after_s"), servers.hang_after_s, 1, None),
        (("servers", "max_restarts"), servers.max_restarts, 0, None),
        (("limits", "retries"), limits.retries, 0, None),
        (("limits", "server_failures"), limits.server_failures, 1, None),
        (("limits", "pause_above"), limits.pause_above, 0, 1),
        (("limits", "pause_window"), limits.pause_window, 1, None),
        (("limits", "drain_s"), limits.drain_s, 0, None),
    ]
    if config.simulation is not None:
        checks.append((("simulation", "gpus"), config.simulation.gpus, 1, 64))
        checks.append((("simulation", "output_tokens"), config.simulation.output_tokens, 2, None))
    for field, value, low, high in checks:
        if not isinstance(value, int | float):
            continue
        if (low is not None and value < low) or (high is not None and value > high):
            between = f"at least {low}" if high is None else f"between {low} and {high}"
            yield Problem(field, f"{'.'.join(field)} must be {between}, not {value}")
