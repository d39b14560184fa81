"""The rows done so far as one file, also while the job runs."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

import msgspec

from genmon.errors import StartError
from genmon.job.job import FailedRow
from genmon.job.manifest import read_manifest
from genmon.job.parquet import write_parquet
from genmon.job.row import Json
from genmon.job.shard_file import READ_B, SidecarRow, TrainingRow, read_sidecar

FORMATS = ("specforge", "openai-batch", "parquet")
_COLUMNS = {
    "id": "VARCHAR",
    "conversations": "JSON",
    "answer": "VARCHAR",
    "reasoning": "VARCHAR",
    "answer_class": "VARCHAR",
    "finish_reason": "VARCHAR",
    "prompt_tokens": "BIGINT",
    "completion_tokens": "BIGINT",
    "reasoning_tokens": "BIGINT",
    "acceptance_length": "DOUBLE",
    "attempts": "INTEGER",
    "server": "VARCHAR",
    "launch": "VARCHAR",
    "started_at": "DOUBLE",
    "latency_s": "DOUBLE",
}


def export(directory: Path, format_: str, destination: Path) -> int:
    """Write all done rows to one file, which appears whole or not at all; returns how many.

    Args:
        directory: a job directory.
        format_: specforge (training rows as they are), openai-batch (output lines; failed rows as errors), or
            parquet (one row a completion with all that is known of it).
        destination: the file; its folder must exist.

    Raises:
        StartError: `directory` is no job directory, or the destination cannot be written.
    """
    read_manifest(directory)
    unfinished = destination.with_name(f"{destination.name}.unfinished")
    try:
        if format_ == "parquet":
            lines = unfinished.with_suffix(".jsonl")
            try:
                count = _write(lines, _parquet_lines(directory))
                write_parquet(lines, unfinished, _COLUMNS)
            finally:
                lines.unlink(missing_ok=True)
        else:
            count = _write(unfinished, _batch_lines(directory) if format_ == "openai-batch" else _lines(directory))
        unfinished.replace(destination)
    except OSError as error:
        with contextlib.suppress(OSError):
            unfinished.unlink(missing_ok=True)
        raise StartError(f"{destination} cannot be written: {error.strerror}.") from error
    return count


def _write(path: Path, lines: Iterator[bytes]) -> int:
    count = 0
    with path.open("wb") as file:
        for line in lines:
            file.write(line)
            count += 1
    return count


def _shards(directory: Path) -> Iterator[Path]:
    yield from sorted((directory / "shards").glob("*.jsonl"))


def _lines(directory: Path) -> Iterator[bytes]:
    """The lines as they are."""
    for path in _shards(directory):
        yield from (line for line, _ in _whole(path))


def _rows(directory: Path) -> Iterator[tuple[TrainingRow, SidecarRow | None]]:
    for path in _shards(directory):
        about = read_sidecar(directory, int(path.stem))
        yield from ((row, about.get(row.id)) for _, row in _whole(path))


def _whole(path: Path) -> Iterator[tuple[bytes, TrainingRow]]:
    """Lines that are rows. The last one of a running job may be half written; verify tells of others."""
    decode = msgspec.json.Decoder(TrainingRow).decode
    with path.open("rb", READ_B) as file:
        for line in file:
            try:
                row = decode(line)
            except (msgspec.MsgspecError, UnicodeDecodeError):
                continue
            if line.endswith(b"\n"):
                yield line, row


def _batch_lines(directory: Path) -> Iterator[bytes]:
    model = read_manifest(directory).model
    for row, about in _rows(directory):
        usage: dict[str, Json] | None = None
        if about is not None and about.prompt_tokens is not None and about.completion_tokens is not None:
            usage = {
                "prompt_tokens": about.prompt_tokens,
                "completion_tokens": about.completion_tokens,
                "total_tokens": about.prompt_tokens + about.completion_tokens,
            }
        choice = {
            "index": 0,
            "message": row.conversations[-1],
            "finish_reason": about.finish_reason if about else None,
        }
        body = {"object": "chat.completion", "model": model, "choices": [choice], "usage": usage}
        response = {"status_code": 200, "request_id": row.id, "body": body}
        yield _line({"id": f"batch-{row.id}", "custom_id": row.id, "response": response, "error": None})
    failed = directory / "failed.jsonl"
    if failed.exists():
        decode = msgspec.json.Decoder(FailedRow).decode
        for line in failed.read_bytes().splitlines():
            with contextlib.suppress(msgspec.MsgspecError):
                row_ = decode(line)
                error = {"code": "failed", "message": row_.error}
                yield _line({"id": f"batch-{row_.id}", "custom_id": row_.id, "response": None, "error": error})


def _parquet_lines(directory: Path) -> Iterator[bytes]:
    for row, about in _rows(directory):
        answer = row.conversations[-1]
        known: dict[str, Json] = msgspec.to_builtins(about) if about else {}
        known |= {"id": row.id, "conversations": row.conversations}
        known |= {"answer": answer.content, "reasoning": answer.reasoning_content}
        yield _line(known)


def _line(value: Json) -> bytes:
    return msgspec.json.encode(value) + b"\n"
