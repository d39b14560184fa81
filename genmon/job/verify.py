"""Proof of a job directory: every row exactly once, read from the shards themselves."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from pathlib import Path

import msgspec
from msgspec import Struct

from genmon.errors import StartError
from genmon.job.index import id_hash, load_index
from genmon.job.job import FailedRow
from genmon.job.manifest import read_manifest
from genmon.job.shard_file import READ_B, TrainingRow, read_sidecar, shard_path

_EXAMPLES = 10


class VerifyReport(Struct, frozen=True, kw_only=True):
    """What was found. Lists hold at most ten examples; the counts are exact."""

    directory: str
    rows: int
    done: int
    failed: int
    skipped: int
    missing: int
    doubled: int
    torn: int
    foreign: int
    without_sidecar: int
    running: bool
    simulated: bool
    examples: list[str]

    @property
    def clean(self) -> bool:
        """Every row is in a shard, failed or skipped, exactly once, and each done row has its sidecar row."""
        return not (self.missing or self.doubled or self.torn or self.foreign or self.without_sidecar)

    def __str__(self) -> str:
        found = (
            "every row is there exactly once"
            if self.clean
            else f"{self.missing:,} missing, {self.doubled:,} doubled, {self.torn:,} torn, {self.foreign:,} foreign, "
            f"{self.without_sidecar:,} without sidecar"
        )
        lines = [
            f"verify    {'clean' if self.clean else 'NOT CLEAN'}: {found}"
            + (" (a run is going on)" if self.running else "")
            + (" (SIMULATED)" if self.simulated else ""),
            f"          {self.rows:,} rows = {self.done:,} done + {self.failed:,} failed + {self.skipped:,} skipped"
            + (f" + {self.missing:,} missing" if self.missing else ""),
        ]
        return "\n".join([*lines, *(f"          {example}" for example in self.examples)])


def verify(directory: Path) -> VerifyReport:
    """Read every shard of a job directory, one at a time, also while the job runs.

    Raises:
        StartError: it is no job directory.
    """
    manifest, index = read_manifest(directory), load_index(directory)
    if index is None:
        raise StartError(f"{directory} has no index.bin yet: the first run of the job builds it.")
    running = _locked(directory)
    failed = _failed(directory)
    examples: list[str] = []
    missing = doubled = torn = foreign = done = without = failed_count = 0
    decode = msgspec.json.Decoder(TrainingRow).decode
    size = manifest.shard_size

    def note(kind: str, what: str) -> None:
        if len(examples) < _EXAMPLES:
            examples.append(f"{kind}: {what}")

    known_files = set()
    for number, start in enumerate(range(0, len(index), size)):
        part = index[start : start + size]
        expected = {each: start + n for n, each in enumerate(part) if each}
        path = shard_path(directory, number)
        known_files.add(path.name)
        seen: set[int] = set()
        about = read_sidecar(directory, number)
        for line_number, line in enumerate(_lines(path), 1):
            where = f"{path.name} line {line_number}"
            try:
                row = decode(line) if line.endswith(b"\n") else None
            except (msgspec.MsgspecError, UnicodeDecodeError):
                row = None
            if row is None:
                if running and not line.endswith(b"\n"):
                    continue  # being written
                torn += 1
                note("torn", where)
                continue
            position = expected.get(id_hash(row.id))
            if position is None:
                foreign += 1
                note("foreign", f"{row.id} at {where}")
            elif position in seen:
                doubled += 1
                note("doubled", f"{row.id} at {where}")
            else:
                seen.add(position)
                if row.id not in about:
                    without += 1
                    note("without sidecar", f"{row.id} at {where}")
        done += len(seen)
        for position in expected.values():
            if position in seen:
                if position in failed:
                    doubled += 1
                    note("doubled", f"row {position} is done and failed")
            elif position in failed:
                failed_count += 1
            else:
                missing += 1
                note("missing", f"row {position} of the input")
    for path in sorted((directory / "shards").glob("*.jsonl")):
        if path.name not in known_files:
            count = sum(1 for _ in _lines(path))
            foreign += count
            note("foreign", f"{count} rows in {path.name}, a shard the job does not have")
    return VerifyReport(
        directory=str(directory),
        rows=len(index),
        done=done,
        failed=failed_count,
        skipped=index.count(0),
        missing=missing,
        doubled=doubled,
        torn=torn,
        foreign=foreign,
        without_sidecar=without,
        running=running,
        simulated=manifest.simulated,
        examples=examples,
    )


def _lines(path: Path) -> Iterator[bytes]:
    if path.exists():
        with path.open("rb", READ_B) as file:
            yield from file


def _failed(directory: Path) -> set[int]:
    path = directory / "failed.jsonl"
    positions: set[int] = set()
    if not path.exists():
        return positions
    decode = msgspec.json.Decoder(FailedRow).decode
    with path.open("rb") as file:
        for line in file:
            try:
                positions.add(decode(line).position)
            except (msgspec.MsgspecError, UnicodeDecodeError):
                continue
    return positions


def _locked(directory: Path) -> bool:
    """Whether an engine has the directory open."""
    try:
        handle = os.open(directory / "lock", os.O_RDWR)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(handle)
    return False
