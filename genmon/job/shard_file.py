"""One shard on disk: its two files, what is in them, and how they are mended after a crash."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import TypeVar

import msgspec
from msgspec import Struct

from genmon.job.index import id_hash
from genmon.job.manifest import write_atomically
from genmon.job.row import Completion, Json, Message
from genmon.state import AnswerClass


class TrainingRow(Struct, omit_defaults=True):
    """A line of a shard: exactly what SpecForge and DFlash training read.

    Their loader passes every other top-level key to the chat template, so there is no other.
    """

    id: str
    conversations: tuple[Message, ...]
    status: str
    tools: list[Json] | None = None


class SidecarRow(Struct, kw_only=True):
    """A line of a sidecar: all else that is known of a done row. When an id occurs twice the last one counts."""

    id: str
    position: int
    answer_class: AnswerClass
    finish_reason: str
    prompt_tokens: int | None
    completion_tokens: int | None
    reasoning_tokens: int | None
    acceptance_length: float | None
    attempts: int
    server: str
    launch: str
    started_at: float
    latency_s: float


class Seal(Struct, frozen=True):
    """What is known of a shard whose rows are all settled, so that it is not read again while it is unchanged."""

    size: int
    mtime_ns: int
    done: int
    failed: int
    classes: dict[AnswerClass, int]
    tokens: int


class _Scanned(Struct):
    """What a scan of a shard needs of a line; the rest is checked to be JSON."""

    id: str


class Tally(Struct, frozen=True):
    """What a job's counts need of a sidecar row."""

    position: int
    answer_class: AnswerClass
    completion_tokens: int | None


SidecarKind = TypeVar("SidecarKind", SidecarRow, Tally)
READ_B = 1 << 18
"""Buffer for reading shards: a line is kilobytes long, and a small buffer costs more than all else of a scan."""
_encoder = msgspec.json.Encoder()
_scan = msgspec.json.Decoder(_Scanned).decode


def shard_path(directory: Path, number: int) -> Path:
    """Training rows of a shard."""
    return directory / "shards" / f"{number:05d}.jsonl"


def sidecar_path(directory: Path, number: int) -> Path:
    """Sidecar rows of a shard."""
    return directory / "sidecar" / f"{number:05d}.jsonl"


def seal_path(directory: Path, number: int) -> Path:
    """Seal of a shard."""
    return directory / "seals" / f"{number:05d}.json"


def encoded(row: Struct) -> bytes:
    """A row as JSON. Half a surrogate pair, which JSON may carry and UTF-8 may not, becomes U+FFFD."""
    try:
        return _encoder.encode(row)
    except UnicodeEncodeError:
        return _encoder.encode(_without_half_pairs(msgspec.to_builtins(row)))


def _without_half_pairs(value: Json) -> Json:
    if isinstance(value, str):
        return value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    if isinstance(value, dict):
        return {_without_half_pairs(key): _without_half_pairs(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_without_half_pairs(each) for each in value]
    return value


def training_line(done: Completion) -> bytes:
    """A shard's line."""
    return encoded(TrainingRow(done.row.id, done.conversation, "success", done.row.tools)) + b"\n"


def sidecar_line(done: Completion) -> bytes:
    """A sidecar's line."""
    row = SidecarRow(
        id=done.row.id,
        position=done.row.position,
        answer_class=done.answer_class,
        finish_reason=done.finish_reason,
        prompt_tokens=done.prompt_tokens,
        completion_tokens=done.completion_tokens,
        reasoning_tokens=done.reasoning_tokens,
        acceptance_length=done.acceptance_length,
        attempts=done.attempts,
        server=done.server,
        launch=done.launch,
        started_at=done.started_at,
        latency_s=done.latency_s,
    )
    return encoded(row) + b"\n"


def read_ahead(directory: Path, number: int) -> None:
    """Ask the kernel to begin reading a shard's files, so that the disk works while the shard before is scanned."""
    for path in (shard_path(directory, number), sidecar_path(directory, number)):
        with contextlib.suppress(OSError), path.open("rb") as file:
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_WILLNEED)


def mend_shard(directory: Path, number: int, expected: dict[int, int]) -> list[int]:
    """Positions done in a shard, after mending it.

    A torn last line is cut off. Damaged, foreign and doubled lines elsewhere are moved to `damaged.jsonl` and
    the shard is written anew without them.

    Args:
        directory: the job directory.
        number: the shard.
        expected: id hash → position of every row that belongs in it.
    """
    path = shard_path(directory, number)
    if not path.exists():
        return []
    done: dict[int, None] = {}
    bad: list[tuple[int, int]] = []
    end = 0
    with path.open("rb", READ_B) as file:
        for line in file:
            start, end = end, end + len(line)
            try:
                position = expected.get(id_hash(_scan(line).id))
            except (msgspec.MsgspecError, UnicodeDecodeError):
                position = None
            if position is None or position in done or not line.endswith(b"\n"):
                bad.append((start, end))
            else:
                done[position] = None
    if bad:
        _remove(path, bad, directory / "damaged.jsonl", end)
    return list(done)


def _remove(path: Path, bad: list[tuple[int, int]], damaged: Path, size: int) -> None:
    if len(bad) == 1 and bad[0][1] == size and not _ends_in_newline(path):
        with path.open("r+b") as file:
            file.truncate(bad[0][0])
            os.fsync(file.fileno())
        return
    content = path.read_bytes()
    with damaged.open("ab") as file:
        for start, end in bad:
            file.write(content[start:end].rstrip(b"\n") + b"\n")
        os.fsync(file.fileno())
    kept, at = [], 0
    for start, end in bad:
        kept.append(content[at:start])
        at = end
    write_atomically(path, b"".join([*kept, content[at:]]))


def _ends_in_newline(path: Path) -> bool:
    with path.open("rb") as file:
        file.seek(-1, os.SEEK_END)
        return file.read(1) == b"\n"


def cut_torn_tail(path: Path) -> None:
    """Cut off a last line that does not end. Whole lines stay as they are."""
    if not path.exists() or not path.stat().st_size or _ends_in_newline(path):
        return
    with path.open("r+b") as file:
        content_end = _last_newline(file.fileno(), path.stat().st_size) + 1
        file.truncate(content_end)
        os.fsync(file.fileno())


def _last_newline(handle: int, size: int) -> int:
    step = 1 << 16
    while size > 0:
        start = max(0, size - step)
        found = os.pread(handle, size - start, start).rfind(b"\n")
        if found >= 0:
            return start + found
        size = start
    return -1


def read_sidecar(directory: Path, number: int) -> dict[str, SidecarRow]:
    """Sidecar rows by id; lines that cannot be read are passed over."""
    return {row.id: row for row in _sidecar(directory, number, SidecarRow)}


def read_tallies(directory: Path, number: int) -> dict[int, Tally]:
    """The same by position, with only what is counted."""
    return {row.position: row for row in _sidecar(directory, number, Tally)}


def _sidecar(directory: Path, number: int, kind: type[SidecarKind]) -> Iterator[SidecarKind]:
    path = sidecar_path(directory, number)
    if not path.exists():
        return
    decode = msgspec.json.Decoder(kind).decode
    with path.open("rb", READ_B) as file:
        for line in file:
            try:
                yield decode(line)
            except (msgspec.MsgspecError, UnicodeDecodeError):
                continue


def read_seal(directory: Path, number: int) -> Seal | None:
    """The seal, if the shard is still the file it was put on."""
    try:
        seal = msgspec.json.decode(seal_path(directory, number).read_bytes(), type=Seal)
        stat = shard_path(directory, number).stat()
    except (OSError, msgspec.MsgspecError):
        return None
    return seal if (seal.size, seal.mtime_ns) == (stat.st_size, stat.st_mtime_ns) else None
