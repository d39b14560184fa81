"""`genmon check`: whether a run could run, said before anything starts. It changes nothing."""

from __future__ import annotations

import asyncio
import fcntl
import os
import shutil
from collections.abc import Callable, Iterator
from difflib import get_close_matches
from pathlib import Path
from typing import Literal, TextIO

from msgspec import Struct

from genmon.config.schema import RunConfig
from genmon.errors import GenmonError, ServerError
from genmon.fleet.flags.compose import run_flags
from genmon.fleet.flags.problems import problems
from genmon.fleet.http import SglangHttp
from genmon.fleet.interpreter import Interpreter, known_flags, probe
from genmon.fleet.ports import is_free
from genmon.gpu.nvml import Nvml
from genmon.gpu.source import GpuInfo
from genmon.job.manifest import grew, read_manifest
from genmon.job.prompts import Skipped, find_files, rows

_BYTES_A_TOKEN = 4.0
"""Of English text; other scripts come to less."""
_OVERHEAD = 1.3
"""Prompts, JSON and the sidecar beside the answers."""
_UNKNOWN_TOKENS = 2000
_BUSY_B = 2 << 30
"""Memory in use on a GPU beyond which somebody is on it; a bare driver takes up to about 1 GiB."""
_HIGH_FRACTION = 0.93
_NUMBERING = ("shard_size", "samples", "field", "id_field")
"""Settings that number the rows: a job goes on only with those it began with."""


class Finding(Struct, frozen=True):
    """One line of the report."""

    level: Literal["ok", "warn", "FAIL"]
    what: str
    sentence: str


def check(config: RunConfig, out: TextIO, *, open_nvml: Callable[[], Nvml] = Nvml) -> int:
    """Write a line for each thing looked at; 0 when the run could start, 1 when it could not.

    `open_nvml` opens the NVIDIA driver.
    """
    failed = warned = 0
    for finding in _findings(config, open_nvml):
        failed += finding.level == "FAIL"
        warned += finding.level == "warn"
        out.write(f"{finding.level:<4}  {finding.what + ':':<10} {finding.sentence}\n")
        out.flush()
    simulated = " (SIMULATED)" if config.simulation is not None else ""
    if failed:
        out.write(f"could not run{simulated}: mend what says FAIL\n")
    else:
        out.write(f"could run{simulated}" + (f"; look at {warned} warn\n" if warned else "\n"))
    return 1 if failed else 0


def _findings(config: RunConfig, open_nvml: Callable[[], Nvml]) -> Iterator[Finding]:
    yield _ok("run file", f"{config.name}: {config.model.name}")
    key = config.servers.api_key_env
    if key and not os.environ.get(key):
        yield _fail("API key", f"the environment variable {key} (servers.api_key_env) is not set")
    if config.simulation is not None:
        count, version = config.simulation.gpus, config.simulation.version
        yield _ok("GPUs", f"simulated: SIMULATED, {count} × {config.simulation.gpu}; no real GPU is used")
        yield _ok("SGLang", f"simulated: SIMULATED, the protocol of {version}; none is launched")
        yield from _flags(config, version, None)
        yield _ports(config, count)
    elif config.servers.urls:
        yield from asyncio.run(_reachable(config))
    else:
        yield _model(config)
        count, findings = _gpus(config, open_nvml)
        yield from findings
        interpreter = probe(config.servers.python, config.servers.env)
        if interpreter.sglang is None:
            yield _fail("SGLang", interpreter.trouble or "not found")
        else:
            yield _ok("SGLang", f"{interpreter.sglang} on Python {interpreter.python} ({interpreter.path})")
            yield from _flags(config, interpreter.sglang, interpreter)
        yield _ports(config, count)
    yield from _sampling(config)
    row_count, findings = _prompts(config)
    yield from findings
    yield from _output(config, row_count)


def _model(config: RunConfig) -> Finding:
    path = config.model.path
    if Path(path).is_dir():
        if (Path(path) / "config.json").exists():
            return _ok("model", f"{path} is there")
        return _fail("model", f"{path} has no config.json: name the folder that holds it and the weights")
    if path.startswith(("/", ".", "~")):
        return _fail("model", f"model.path names {path}, which is no folder")
    return _ok("model", f"{path} is a hub name: SGLang takes it from its cache or downloads it")


def _gpus(config: RunConfig, open_nvml: Callable[[], Nvml]) -> tuple[int, list[Finding]]:
    """How many servers there would be, and what is to be said of their GPUs."""
    wanted = config.servers.gpus
    if wanted != "all" and all(gpu == "cpu" for gpu in wanted):
        return len(wanted), [_ok("GPUs", f"none asked for: {len(wanted)} on the CPU")]
    try:
        nvml = open_nvml()
    except GenmonError as error:
        return 1 if wanted == "all" else len(wanted), [_fail("GPUs", str(error))]
    try:
        infos = nvml.infos()
        used_b = {info.uuid: nvml.memory_used_b(info.uuid) for info in infos}
    finally:
        nvml.close()
    chosen = [info for info in infos if wanted == "all" or info.index in wanted or info.uuid in wanted]
    found = [_gpu(config, info, used_b[info.uuid]) for info in chosen]
    if not infos:
        found.append(_fail("GPUs", "the driver sees none"))
    there = ", ".join(str(info.index) for info in infos) or "none"
    named = [gpu for gpu in wanted if gpu != "cpu"] if wanted != "all" else []
    keys = {key for info in infos for key in (info.index, info.uuid)}
    found += [
        _fail("GPUs", f"servers.gpus names {gpu}, which is not here; there is {there}")
        for gpu in named
        if gpu not in keys
    ]
    twice = [info.index for info in infos if info.index in named and info.uuid in named]
    found += [_fail("GPUs", f"servers.gpus names GPU {index} twice, by index and by UUID") for index in twice]
    spare = len(infos) - len(chosen)
    if chosen and spare:
        found.append(_ok("GPUs", f"{spare} more on this machine that servers.gpus does not name"))
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
        return _ok("GPUs", words)
    busy = f"{words}: {used_b / 2**30:.0f} GiB are in use already"
    fraction = config.servers.flags.get("mem-fraction-static")
    if total_b and isinstance(fraction, int | float) and total_b - used_b < fraction * total_b:
        free = f"{(total_b - used_b) / 2**30:.0f} GiB are free and mem-fraction-static = {fraction} asks for"
        return Finding("warn", "GPUs", f"{busy}; {free} {fraction * total_b / 2**30:.0f} GiB")
    return Finding("warn", "GPUs", busy)


def _flags(config: RunConfig, version: str, interpreter: Interpreter | None) -> Iterator[Finding]:
    flags = run_flags(config)
    known = known_flags(interpreter) if interpreter else None
    found = problems(flags, version)
    told = " ".join(each.sentence for each in found if each.fatal)
    failed = False
    for flag in flags:
        if known and flag not in known and f"--{flag}:" not in told:
            failed = True
            near = get_close_matches(flag, known, 1)
            yield _fail("flags", f"SGLang {version} has no --{flag}" + (f"; did you mean {near[0]}?" if near else ""))
    for each in found:
        yield Finding("FAIL" if each.fatal else "warn", "flags", each.sentence)
    fraction = flags.get("mem-fraction-static")
    if fraction is not None and not (isinstance(fraction, int | float) and 0 < fraction < 1):
        failed = True
        yield _fail("flags", f"mem-fraction-static must be between 0 and 1, not {fraction}")
    elif isinstance(fraction, int | float) and fraction > _HIGH_FRACTION:
        sentence = (
            f"mem-fraction-static = {fraction} leaves little for activations and CUDA graphs: 0.80 to 0.90 is usual"
        )
        yield Finding("warn", "flags", sentence)
    if not failed and not any(each.fatal for each in found):
        how = "its own source accepts them" if known else "as far as that version is known"
        yield _ok("flags", f"{len(flags)} for SGLang {version}; {how}")


def _ports(config: RunConfig, count: int) -> Finding:
    first = config.servers.base_port
    taken = [port for port in range(first, first + count) if not is_free(port)]
    if taken:
        sentence = f"{', '.join(map(str, taken))} taken: genmon takes the next free ones"
        return Finding("warn", "ports", sentence)
    return _ok("ports", f"{first} to {first + count - 1} free" if count > 1 else f"{first} free")


async def _reachable(config: RunConfig) -> list[Finding]:
    name = config.servers.api_key_env
    key = os.environ.get(name) if name else None
    return list(await asyncio.gather(*(_one_reachable(url, key) for url in config.servers.urls)))


async def _one_reachable(url: str, key: str | None) -> Finding:
    http = SglangHttp(url, key)
    try:
        if not await http.answers():
            return _fail("server", f"{url} cannot be reached")
        info = await http.info()
    except ServerError as error:
        return _fail("server", f"{url} answers, but not as SGLang does: {error}")
    finally:
        await http.close()
    version = f"SGLang {info.version}" if info.version else "SGLang of unknown version"
    cap = f"cap {info.cap}" if info.cap is not None else "cap unknown"
    simulated = " (SIMULATED)" if info.simulated else ""
    return _ok("server", f"{url}: {version}, MTP {'on' if info.mtp else 'off'}, {cap}{simulated}")


def _sampling(config: RunConfig) -> Iterator[Finding]:
    flags, sampling, launched = config.servers.flags, config.sampling, not config.servers.urls
    if sampling.max_tokens is None:
        sentence = "no sampling.max_tokens: an answer that never ends runs to the model's whole context"
        yield Finding("warn", "sampling", sentence)
    if launched and sampling.thinking and "reasoning-parser" not in flags:
        sentence = "thinking is on without servers.flags.reasoning-parser: thoughts will stand in the answers"
        yield Finding("warn", "sampling", sentence)
    cap, asked = flags.get("max-running-requests"), config.workers.concurrency
    if isinstance(cap, int) and isinstance(asked, int) and asked > cap:
        sentence = (
            f"workers.concurrency = {asked} is above max-running-requests = {cap}: never more than {cap} are sent"
        )
        yield Finding("warn", "sampling", sentence)


def _prompts(config: RunConfig) -> tuple[int, list[Finding]]:
    """How many rows there are, and what is to be said of them. Every record is read once, streamed."""
    try:
        files = find_files(config.job.prompts)
    except GenmonError as error:
        return 0, [_fail("prompts", str(error).removesuffix("."))]
    good, bad, first = 0, 0, None
    for made in rows(files, config.job):
        if isinstance(made, Skipped):
            bad += 1
            first = first or made
        else:
            good += len(made.rows)
    where = f"{first.source} line {first.line}: {first.reason}" if first else ""
    named = _plural(len(files), "file")
    if not good:
        return 0, [_fail("prompts", f"no usable row in {named}" + (f"; the first bad one is {where}" if first else ""))]
    found = [_ok("prompts", f"{_plural(good, 'row')} in {named}")]
    if first is not None:
        found.append(Finding("warn", "prompts", f"{_plural(bad, 'bad line')} will be skipped; the first is {where}"))
    return good, found


def _output(config: RunConfig, count: int) -> Iterator[Finding]:
    output = config.output
    folder = output
    while not folder.exists() and folder != folder.parent:
        folder = folder.parent
    if not folder.is_dir():
        yield _fail("output", f"{folder} is a file: job.output names a directory")
        return
    if not os.access(folder, os.W_OK | os.X_OK):
        yield _fail("output", f"{folder} cannot be written to")
        return
    if _locked(output):
        yield _fail("output", f"another genmon has {_shown(output)} open: wait for it, or stop it")
    elif (output / "job.json").exists():
        yield from _resumed(config)
    elif output.exists() and any(output.iterdir()):
        yield Finding("warn", "output", f"{_shown(output)} holds files that are no job's; they are left alone")
    else:
        yield _ok("output", f"{_shown(output)} is new")
    if count:
        yield _disk(config, folder, count)


def _resumed(config: RunConfig) -> Iterator[Finding]:
    """Whether the job that is there already would go on."""
    try:
        manifest = read_manifest(config.output)
        sizes = [path.stat().st_size for path in find_files(config.job.prompts)]
    except GenmonError as error:
        yield _fail("output", str(error).removesuffix("."))
        return
    mend = "undo that, or choose a new job.output"
    changed = [
        f"job.{name} was {getattr(manifest, name)} when the job began and is {getattr(config.job, name)}"
        for name in _NUMBERING
        if getattr(manifest, name) != getattr(config.job, name)
    ]
    if manifest.limit != config.job.limit and not grew(manifest.limit, config.job.limit):
        changed.append(f"job.limit was {manifest.limit or 'none'} when the job began and is {config.job.limit}")
    if manifest.simulated != (config.simulation is not None):
        there, here = ("SIMULATED", "real") if manifest.simulated else ("real", "SIMULATED")
        changed.append(f"the job there is {there} and this run is {here}")
    if sizes != [each.size for each in manifest.inputs]:
        changed.append("the prompt files are not those the job began with")
    for each in changed:
        yield _fail("output", f"{each}: {mend}")
    if not changed:
        yield _ok("output", f"{_shown(config.output)} holds this job already: it goes on where it ended")


def _disk(config: RunConfig, folder: Path, count: int) -> Finding:
    most = config.sampling.max_tokens
    tokens = most or _UNKNOWN_TOKENS
    needed_b = count * tokens * _BYTES_A_TOKEN * _OVERHEAD
    free_b = shutil.disk_usage(folder).free
    basis = f"{_plural(count, 'row')} of {'up to' if most else 'about'} {tokens:,} tokens"
    words = f"{_size(needed_b)} {'at most' if most else 'expected'} ({basis}), {_size(free_b)} free"
    # Most answers end long before max_tokens: only a disk that a fifth of it would fill is hopeless.
    if free_b < needed_b * 0.2:
        return _fail("disk", words)
    return Finding("warn" if free_b < needed_b else "ok", "disk", words)


def _locked(directory: Path) -> bool:
    """Whether an engine has a job directory open; its lock is tried for an instant, and given back."""
    try:
        handle = os.open(directory / "lock", os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(handle)
    return False


def _size(size_b: float) -> str:
    return f"{size_b / 1e9:,.1f} GB" if size_b >= 1e8 else f"{size_b / 1e6:,.1f} MB"


def _plural(count: int, noun: str) -> str:
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def _shown(path: Path) -> str:
    return str(path.relative_to(Path.cwd())) if path.is_relative_to(Path.cwd()) else str(path)


def _ok(what: str, sentence: str) -> Finding:
    return Finding("ok", what, sentence)


def _fail(what: str, sentence: str) -> Finding:
    return Finding("FAIL", what, sentence)
