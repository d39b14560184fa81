"""`genmon check`: whether a run could run, said before anything starts."""

from __future__ import annotations

import os
import shutil
import socket
from collections.abc import Iterator
from difflib import get_close_matches
from pathlib import Path
from typing import TextIO
from urllib.parse import urlparse

from msgspec import Struct

from genmon.config.schema import RunConfig
from genmon.errors import GenmonError
from genmon.fleet.flags import problems, run_flags
from genmon.fleet.interpreter import Interpreter, known_flags, probe
from genmon.fleet.ports import is_free
from genmon.gpu.nvml import list_gpus
from genmon.job.prompts import Skipped, find_files, rows

_BYTES_A_TOKEN = 4.5
_UNKNOWN_TOKENS = 2000
_SIDECAR_B = 400
_LOCAL_FLAGS = frozenset({"host", "port", "nccl-port"})


class Finding(Struct, frozen=True):
    """One line of the report: ok, warn or FAIL."""

    level: str
    what: str
    sentence: str


def check(config: RunConfig, out: TextIO) -> int:
    """Write a line for each thing looked at; 0 when the run could start, 1 when it could not."""
    failed = 0
    for finding in _findings(config):
        failed += finding.level == "FAIL"
        out.write(f"{finding.level:<5} {finding.what:<12} {finding.sentence}\n")
        out.flush()
    out.write("could not run: mend what says FAIL\n" if failed else "could run\n")
    return 1 if failed else 0


def _findings(config: RunConfig) -> Iterator[Finding]:
    yield _ok("run file", f"{config.name}: {config.model.name}")
    if config.simulation is not None:
        yield _ok(
            "servers",
            f"SIMULATED: {config.simulation.gpus} GPUs, SGLang {config.simulation.version}'s protocol",
        )
        yield from _flags(config, config.simulation.version, None)
    elif config.servers.urls:
        for url in config.servers.urls:
            yield _reachable(url)
    else:
        yield from _gpus(config)
        interpreter = probe(config.servers.python)
        if interpreter.sglang is None:
            yield _fail("SGLang", interpreter.trouble or "not found")
        else:
            yield _ok("SGLang", f"{interpreter.sglang} on Python {interpreter.python} ({interpreter.path})")
            yield from _flags(config, interpreter.sglang, interpreter)
        yield _ports(config)
    yield from _prompts(config)


def _gpus(config: RunConfig) -> Iterator[Finding]:
    wanted = config.servers.gpus
    if wanted != "all" and all(gpu == "cpu" for gpu in wanted):
        yield _ok("GPUs", f"none asked for: {len(wanted)} servers on the CPU")
        return
    try:
        infos = list_gpus()
    except GenmonError as error:
        yield _fail("GPUs", f"{error}")
        return
    for info in infos:
        memory = f"{info.memory_total_b / 2**30:.0f} GiB" if info.memory_total_b else "memory unknown"
        limit = f"{info.power_limit_w:.0f} W" if info.power_limit_w else "power limit unknown"
        yield _ok("GPUs", f"{info.index}: {info.name}, {memory}, {limit}, {info.uuid}")
    if not infos:
        yield _fail("GPUs", "the driver sees none")
    there = {key for info in infos for key in (info.index, info.uuid)} | {"cpu"}
    for gpu in wanted if wanted != "all" else []:
        if gpu not in there:
            yield _fail("GPUs", f"servers.gpus names {gpu}, which is not on this machine")


def _flags(config: RunConfig, version: str, interpreter: Interpreter | None) -> Iterator[Finding]:
    known = known_flags(interpreter) if interpreter else None
    unknown = [flag for flag in run_flags(config) if known and flag not in known and flag not in _LOCAL_FLAGS]
    for flag in unknown:
        near = get_close_matches(flag, known or (), 1)
        hint = f"; did you mean {near[0]}?" if near else ""
        yield _fail("flags", f"SGLang {version} has no --{flag}{hint}")
    found = problems(config, version)
    for each in found:
        yield Finding("FAIL" if each.fatal else "warn", "flags", each.sentence)
    if not unknown and not any(each.fatal for each in found):
        how = "read from its source" if known else "checked against what is known of that version"
        yield _ok("flags", f"{len(run_flags(config))} flags, accepted by SGLang {version} ({how})")


def _ports(config: RunConfig) -> Finding:
    count = 1 if config.servers.gpus == "all" else len(config.servers.gpus)
    first = config.servers.base_port
    taken = [port for port in range(first, first + count) if not is_free(port)]
    if taken:
        return Finding("warn", "ports", f"{', '.join(map(str, taken))} taken: genmon will use the next free ones")
    return _ok("ports", f"{first} to {first + count - 1} free")


def _reachable(url: str) -> Finding:
    parsed = urlparse(url)
    try:
        with socket.create_connection((parsed.hostname or "", parsed.port or 80), timeout=3):
            return _ok("server", f"{url} answers")
    except OSError as error:
        return _fail("server", f"{url} cannot be reached: {error}")


def _prompts(config: RunConfig) -> Iterator[Finding]:
    try:
        files = find_files(config.job.prompts)
    except GenmonError as error:
        yield _fail("prompts", str(error))
        return
    good, bad, first_bad = 0, 0, None
    for made in rows(files, config.job):
        if isinstance(made, Skipped):
            bad += 1
            first_bad = first_bad or made
        else:
            good += len(made)
    if not good:
        where = f" (first: {first_bad.source} line {first_bad.line}: {first_bad.reason})" if first_bad else ""
        yield _fail("prompts", f"no usable row in {len(files)} files{where}")
        return
    yield _ok("prompts", f"{good:,} rows in {len(files)} files")
    if first_bad is not None:
        where = f"{first_bad.source} line {first_bad.line}: {first_bad.reason}"
        sentence = f"{bad:,} bad lines will be skipped; the first is {where}"
        yield Finding("warn", "prompts", sentence)
    yield _disk(config, good)


def _disk(config: RunConfig, count: int) -> Finding:
    tokens = config.sampling.max_tokens or _UNKNOWN_TOKENS
    needed_b = count * (tokens * _BYTES_A_TOKEN + _SIDECAR_B)
    folder = config.output
    while not folder.exists():
        folder = folder.parent
    if not os.access(folder, os.W_OK):
        return _fail("output", f"{folder} cannot be written to")
    free_b = shutil.disk_usage(folder).free
    words = f"at most {needed_b / 1e9:.1f} GB for {count:,} rows of up to {tokens:,} tokens, {free_b / 1e9:.1f} GB free"
    existing = " (goes on with the job there)" if (config.output / "job.json").exists() else ""
    if free_b < needed_b * 0.2:
        return _fail("output", f"{_shown(config.output)}: {words}")
    level = "warn" if free_b < needed_b else "ok"
    return Finding(level, "output", f"{_shown(config.output)}{existing}: {words}")


def _shown(path: Path) -> str:
    try:
        return str(path.relative_to(Path.cwd()))
    except ValueError:
        return str(path)


def _ok(what: str, sentence: str) -> Finding:
    return Finding("ok", what, sentence)


def _fail(what: str, sentence: str) -> Finding:
    return Finding("FAIL", what, sentence)
