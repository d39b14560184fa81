"""The machine under a run: the model's folder, the GPUs, the ports."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from genmon.check.finding import Finding, fail, ok, warn
from genmon.config.schema import RunConfig
from genmon.errors import GenmonError
from genmon.fleet.ports import is_free
from genmon.gpu.nvml import Nvml
from genmon.gpu.source import GpuInfo

_BUSY_B = 2 << 30
"""Memory in use on a GPU beyond which somebody is on it; a bare driver takes up to about 1 GiB."""


def model(config: RunConfig) -> Finding:
    """Whether the model is there, as far as that can be seen without loading it."""
    path = config.model.path
    if Path(path).is_dir():
        if (Path(path) / "config.json").exists():
            return ok("model", f"{path} is there")
        return fail("model", f"{path} has no config.json: name the folder that holds it and the weights")
    if path.startswith(("/", ".", "~")):
        return fail("model", f"model.path names {path}, which is no folder")
    return ok("model", f"{path} is a hub name: SGLang takes it from its cache or downloads it")


def gpus(config: RunConfig, open_nvml: Callable[[], Nvml]) -> tuple[int, list[Finding]]:
    """How many servers there would be, and what is to be said of their GPUs."""
    wanted = config.servers.gpus
    if wanted != "all" and all(gpu == "cpu" for gpu in wanted):
        return len(wanted), [ok("GPUs", f"none asked for: {len(wanted)} on the CPU")]
    try:
        nvml = open_nvml()
    except GenmonError as error:
        return 1 if wanted == "all" else len(wanted), [fail("GPUs", str(error))]
    try:
        infos = nvml.infos()
        used_b = {info.uuid: nvml.memory_used_b(info.uuid) for info in infos}
    finally:
        nvml.close()
    chosen = [info for info in infos if wanted == "all" or info.index in wanted or info.uuid in wanted]
    found = [_gpu(config, info, used_b[info.uuid]) for info in chosen]
    if not infos:
        found.append(fail("GPUs", "the driver sees none"))
    there = ", ".join(str(info.index) for info in infos) or "none"
    named = [gpu for gpu in wanted if gpu != "cpu"] if wanted != "all" else []
    keys = {key for info in infos for key in (info.index, info.uuid)}
    found += [
        fail("GPUs", f"servers.gpus names {gpu}, which is not here; there is {there}")
        for gpu in named
        if gpu not in keys
    ]
    twice = [info.index for info in infos if info.index in named and info.uuid in named]
    found += [fail("GPUs", f"servers.gpus names GPU {index} twice, by index and by UUID") for index in twice]
    spare = len(infos) - len(chosen)
    if chosen and spare:
        found.append(ok("GPUs", f"{spare} more on this machine that servers.gpus does not name"))
    return max(1, len(infos) if wanted == "all" else len(wanted)), found


def _gpu(config: RunConfig, info: GpuInfo, used_b: int | None) -> Finding:
    total_b = info.memory_total_b
    memory = f"{total_b / 2**30:.0f} GiB" if total_b else "memory unknown"
    limit = f"limit {info.power_limit_w:.0f} W" if info.power_limit_w else "power limit unknown"
    default_w = info.power_default_limit_w
    if info.power_limit_w and default_w and round(default_w) != round(info.power_limit_w):
        limit += f" (default {default_w:.0f} W)"
    words = f"{info.index}: {info.name}, {memory}, {limit}, {info.uuid}"
    if used_b is None or used_b <= _BUSY_B:
        return ok("GPUs", words)
    busy = f"{words}: {used_b / 2**30:.0f} GiB are in use already"
    fraction = config.servers.flags.get("mem-fraction-static")
    if total_b and isinstance(fraction, int | float) and total_b - used_b < fraction * total_b:
        free = f"{(total_b - used_b) / 2**30:.0f} GiB are free and mem-fraction-static = {fraction} asks for"
        return warn("GPUs", f"{busy}; {free} {fraction * total_b / 2**30:.0f} GiB")
    return warn("GPUs", busy)


def ports(config: RunConfig, count: int) -> Finding:
    """Whether the ports from `base_port` on are free."""
    first = config.servers.base_port
    taken = [port for port in range(first, first + count) if not is_free(port)]
    if taken:
        sentence = f"{', '.join(map(str, taken))} taken: genmon takes the next free ones"
        return warn("ports", sentence)
    return ok("ports", f"{first} to {first + count - 1} free" if count > 1 else f"{first} free")
