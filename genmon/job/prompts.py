"""Prompts in: records streamed from files, each to its rows or to the reason why it makes none."""

from __future__ import annotations

import codecs
import glob
import gzip
import io
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import BinaryIO

import msgspec
from msgspec import Struct

from genmon.config.schema import JobConfig
from genmon.errors import ConfigError
from genmon.job.row import Row
from genmon.job.shapes import BadRecord, rows_of
from genmon.job.zst import ZstFile

_ENDINGS = (".jsonl", ".jsonl.gz", ".jsonl.zst", ".ndjson", ".parquet")
_LINE_MAX_B = 64 << 20


class Record(Struct, frozen=True):
    """One record of the input: the `number`-th of all files, at `line` of `source`; `raw` is its JSON."""

    number: int
    source: str
    line: int
    raw: bytes


class Made(Struct, frozen=True):
    """The rows of a record, one a sample."""

    number: int
    source: str
    line: int
    rows: list[Row]


class Skipped(Struct, frozen=True):
    """A record that makes no row, and why."""

    number: int
    source: str
    line: int
    reason: str


def find_files(patterns: list[str]) -> list[Path]:
    """The files behind paths and globs, each once, in the order written; a glob's matches sorted.

    Raises:
        ConfigError: a pattern matches nothing, or a file's ending is not one that can be read.
    """
    files: dict[Path, None] = {}
    for pattern in patterns:
        matches = sorted(glob.glob(pattern, recursive=True)) if glob.has_magic(pattern) else [pattern]
        paths = [Path(match) for match in matches if Path(match).is_file()]
        if not paths:
            raise ConfigError(f"job.prompts: {pattern} matches no file.")
        for path in paths:
            if not path.name.endswith(_ENDINGS):
                endings = ", ".join(_ENDINGS)
                raise ConfigError(f"job.prompts: {path} has an ending genmon cannot read; it reads {endings}.")
            files[path] = None
    return list(files)


def records(files: list[Path], first: int = 0) -> Iterator[Record | Skipped]:
    """All records of all files from the `first` on, streamed. What cannot be read is skipped, never raised."""
    number = 0
    for path in files:
        source = path.name
        if path.name.endswith(".parquet"):
            from genmon.job.parquet import parquet_rows

            reader: Iterator[tuple[int, bytes]] = enumerate(parquet_rows(path), 1)
        else:
            reader = _lines(path)
        try:
            for line, raw in reader:
                if number >= first:
                    yield Record(number, source, line, raw)
                number += 1
        except (OSError, EOFError, zlib.error, ValueError) as error:
            yield Skipped(number, source, 0, f"the file cannot be read further: {error}")
            number += 1


def _lines(path: Path) -> Iterator[tuple[int, bytes]]:
    """Numbered lines; blank ones are no records. A line past all reason comes as empty bytes."""
    with _open(path) as file:
        line = 0
        while raw := file.readline(_LINE_MAX_B):
            line += 1
            if line == 1:
                raw = raw.removeprefix(codecs.BOM_UTF8)
            if len(raw) == _LINE_MAX_B and not raw.endswith(b"\n"):
                while (rest := file.readline(_LINE_MAX_B)) and not rest.endswith(b"\n"):
                    pass
                yield line, b""
            elif raw and not raw.isspace():
                yield line, raw


def _open(path: Path) -> BinaryIO:
    if path.name.endswith(".gz"):
        return io.BufferedReader(gzip.open(path, "rb"), 1 << 20)
    if path.name.endswith(".zst"):
        return io.BufferedReader(ZstFile(path), 1 << 20)
    return path.open("rb", buffering=1 << 20)


def rows(
    files: list[Path], config: JobConfig, *, first: int = 0, wanted: Callable[[int], bool] | None = None
) -> Iterator[Made | Skipped]:
    """Each record's rows (one a sample), or why it makes none, from record `first` on.

    Records that are not `wanted` (asked by number) are passed over unparsed. `config.limit` ends the stream.
    """
    decode = msgspec.json.Decoder().decode
    for record in records(files, first):
        if config.limit is not None and record.number >= config.limit:
            return
        if wanted is not None and not wanted(record.number):
            continue
        if isinstance(record, Skipped):
            yield record
            continue
        if not record.raw:
            yield Skipped(record.number, record.source, record.line, f"longer than {_LINE_MAX_B >> 20} MiB")
            continue
        try:
            parsed = decode(record.raw)
            made = rows_of(parsed, record.number * config.samples, config)
            yield Made(record.number, record.source, record.line, made)
        except msgspec.DecodeError as error:
            yield Skipped(record.number, record.source, record.line, f"not JSON: {error}")
        except UnicodeDecodeError:
            yield Skipped(record.number, record.source, record.line, "not UTF-8")
        except BadRecord as error:
            yield Skipped(record.number, record.source, record.line, str(error))
