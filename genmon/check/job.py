"""The job of a run: its prompts, its output directory, the disk."""

from __future__ import annotations

import fcntl
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

from genmon.check.finding import Finding, fail, ok, plural, warn
from genmon.config.schema import RunConfig
from genmon.errors import GenmonError
from genmon.job.manifest import grew, read_manifest
from genmon.job.prompts import Skipped, find_files, rows

_BYTES_A_TOKEN = 4.0
"""Of English text; other scripts come to less."""
_OVERHEAD = 1.3
"""Prompts, JSON and the sidecar beside the answers."""
_UNKNOWN_TOKENS = 2000
_NUMBERING = ("shard_size", "samples", "field", "id_field")
"""Settings that number the rows: a job goes on only with those it began with."""


def prompts(config: RunConfig) -> tuple[int, list[Finding]]:
    """How many rows there are, and what is to be said of them. Every record is read once, streamed."""
    try:
        files = find_files(config.job.prompts)
    except GenmonError as error:
        return 0, [fail("prompts", str(error).removesuffix("."))]
    good, bad, first = 0, 0, None
    for made in rows(files, config.job):
        if isinstance(made, Skipped):
            bad += 1
            first = first or made
        else:
            good += len(made.rows)
    where = f"{first.source} line {first.line}: {first.reason}" if first else ""
    named = plural(len(files), "file")
    if not good:
        return 0, [fail("prompts", f"no usable row in {named}" + (f"; the first bad one is {where}" if first else ""))]
    found = [ok("prompts", f"{plural(good, 'row')} in {named}")]
    if first is not None:
        found.append(warn("prompts", f"{plural(bad, 'bad line')} will be skipped; the first is {where}"))
    return good, found


def output(config: RunConfig, count: int) -> Iterator[Finding]:
    """Whether the job directory can be begun, or gone on with, and whether the disk holds what may come."""
    output = config.output
    folder = output
    while not folder.exists() and folder != folder.parent:
        folder = folder.parent
    if not folder.is_dir():
        yield fail("output", f"{folder} is a file: job.output names a directory")
        return
    if not os.access(folder, os.W_OK | os.X_OK):
        yield fail("output", f"{folder} cannot be written to")
        return
    if _locked(output):
        yield fail("output", f"another genmon has {_shown(output)} open: wait for it, or stop it")
    elif (output / "job.json").exists():
        yield from _resumed(config)
    elif output.exists() and any(output.iterdir()):
        yield warn("output", f"{_shown(output)} holds files that are no job's; they are left alone")
    else:
        yield ok("output", f"{_shown(output)} is new")
    if count:
        yield _disk(config, folder, count)


def _resumed(config: RunConfig) -> Iterator[Finding]:
    """Whether the job that is there already would go on."""
    try:
        manifest = read_manifest(config.output)
        sizes = [path.stat().st_size for path in find_files(config.job.prompts)]
    except GenmonError as error:
        yield fail("output", str(error).removesuffix("."))
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
        yield fail("output", f"{each}: {mend}")
    if not changed:
        yield ok("output", f"{_shown(config.output)} holds this job already: it goes on where it ended")


def _disk(config: RunConfig, folder: Path, count: int) -> Finding:
    most = config.sampling.max_tokens
    tokens = most or _UNKNOWN_TOKENS
    needed_b = count * tokens * _BYTES_A_TOKEN * _OVERHEAD
    free_b = shutil.disk_usage(folder).free
    basis = f"{plural(count, 'row')} of {'up to' if most else 'about'} {tokens:,} tokens"
    words = f"{_size(needed_b)} {'at most' if most else 'expected'} ({basis}), {_size(free_b)} free"
    # Most answers end long before max_tokens: only a disk that a fifth of it would fill is hopeless.
    if free_b < needed_b * 0.2:
        return fail("disk", words)
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


def _shown(path: Path) -> str:
    return str(path.relative_to(Path.cwd())) if path.is_relative_to(Path.cwd()) else str(path)
