"""What a job directory was begun with: its input by fingerprint, and the settings that number its rows."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

import msgspec
from msgspec import Struct

from genmon.config.schema import RunConfig
from genmon.errors import InputChanged, StartError
from genmon.job.prompts import find_files
from genmon.job.row import Json

FORMAT = 1


class InputFile(Struct, frozen=True):
    """One prompt file as it was: content by hash; size, mtime and inode so that an unchanged file is not read."""

    path: str
    size: int
    mtime_ns: int
    inode: int
    sha256: str


class Manifest(Struct, frozen=True, kw_only=True):
    """`job.json`."""

    format: int = FORMAT
    genmon: str
    name: str
    model: str
    shard_size: int
    samples: int
    limit: int | None
    field: str | None
    id_field: str | None
    inputs: list[InputFile]
    simulated: bool = False


def write_atomically(path: Path, data: bytes) -> None:
    """Replace a file as a whole, durably: a crash leaves the old one or the new one."""
    temporary = path.with_name(f"{path.name}.new")
    with temporary.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)
    sync_directory(path.parent)


def sync_directory(directory: Path) -> None:
    """Make new names in a directory durable."""
    handle = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def read_manifest(directory: Path) -> Manifest:
    """The manifest of a job directory.

    Raises:
        StartError: there is none, or it was written by another version's format.
    """
    path = directory / "job.json"
    try:
        manifest = msgspec.json.decode(path.read_bytes(), type=Manifest)
    except FileNotFoundError:
        raise StartError(f"{directory} is no job directory: it has no job.json.") from None
    except msgspec.MsgspecError as error:
        raise StartError(f"{path} cannot be read ({error}): restore it, or begin in a new output directory.") from error
    if manifest.format != FORMAT:
        raise StartError(f"{path} has format {manifest.format}; this genmon reads format {FORMAT}.")
    return manifest


def agree(directory: Path, config: RunConfig, version: str) -> tuple[Manifest, list[Path], bool]:
    """Begin a job directory, or check that it was begun with the same input and numbering.

    Returns:
        The manifest, the prompt files in order, and whether the index must be built (anew).

    Raises:
        InputChanged: a prompt file, or a setting that numbers the rows, is not what the job began with.
        ConfigError: the prompt files cannot be found.
    """
    files = find_files(config.job.prompts)
    known = read_manifest(directory) if (directory / "job.json").exists() else None
    inputs = [_fingerprint(path, known) for path in files]
    now = Manifest(
        genmon=version,
        name=config.name,
        model=config.model.name,
        shard_size=config.job.shard_size,
        samples=config.job.samples,
        limit=config.job.limit,
        field=config.job.field,
        id_field=config.job.id_field,
        inputs=inputs,
        simulated=config.simulation is not None,
    )
    if known is not None:
        changed = _difference(known, now)
        if changed:
            raise InputChanged(
                f"{changed} since the job in {directory} began, so its rows would no longer be the same: "
                "undo the change, or choose a new job.output."
            )
    if known != now:
        write_atomically(directory / "job.json", msgspec.json.format(msgspec.json.encode(now)))
    return now, files, known is None or known.limit != now.limit


def _fingerprint(path: Path, known: Manifest | None) -> InputFile:
    stat = path.stat()
    for file in known.inputs if known else ():
        same = (file.size, file.mtime_ns, file.inode) == (stat.st_size, stat.st_mtime_ns, stat.st_ino)
        if file.path == str(path) and same:
            return file
    with path.open("rb") as file_:
        digest = hashlib.file_digest(file_, "sha256").hexdigest()
    return InputFile(str(path), stat.st_size, stat.st_mtime_ns, stat.st_ino, digest)


def _difference(known: Manifest, now: Manifest) -> str | None:
    """What changed, as the start of a sentence. A path may change when the content behind it has not."""
    for field in ("shard_size", "samples", "field", "id_field", "limit", "simulated"):
        before, after = getattr(known, field), getattr(now, field)
        if before != after and not (field == "limit" and grew(before, after)):
            return f"{field} changed from {_shown(before)} to {_shown(after)}"
    if len(known.inputs) != len(now.inputs):
        return f"the number of prompt files changed from {len(known.inputs)} to {len(now.inputs)}"
    for before, after in zip(known.inputs, now.inputs, strict=True):
        if before.sha256 != after.sha256:
            return f"{after.path} changed"
    return None


def grew(before: int | None, after: int | None) -> bool:
    """Whether a limit on the rows only lets more in: the rows that were there keep their places."""
    return before is not None and (after is None or after >= before)


def _shown(value: Json) -> str:
    return "none" if value is None else str(value)
