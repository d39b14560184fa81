"""The spool: what is to go into the log, on disk within a second, whether or not the log can be opened.

A spool is a folder of segments, each of one JSON-lines file a table (`00000007.requests.jsonl`). The segment that is
being written is turned before it is taken in, so that a file that is read never grows. The folder's `lock` is held
while its engine lives; the kernel lets go when it is killed.
"""

from __future__ import annotations

import fcntl
import os
import threading
from collections import defaultdict
from pathlib import Path
from typing import TypeVar, cast

import msgspec

from genmon.runlog.records import RECORDS, GpuReading, Record, ServerReading

_PERIOD_S = 0.5
"""The promise is one second."""
_SEGMENT_B = 8 << 20
"""A longer segment would hold the database too long when it is taken in: about a fifth of a second."""
_KEPT_IN_MEMORY = 200_000
"""Records kept while the disk is full; samples are dropped at half of that."""
T = TypeVar("T")
_encoder = msgspec.json.Encoder()


class Spool:
    """Writes one run's records, in a thread of its own."""

    def __init__(self, folder: Path, secrets: frozenset[str] = frozenset()) -> None:
        """Make the folder and lock it; `secrets` are struck out wherever they stand.

        Raises:
            OSError: the folder cannot be made.
        """
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        self._lock_file = lock(folder, create=True)
        plain = {_clean(secret, []) for secret in secrets}
        self._secrets = sorted(plain | {_as_json(secret).decode() for secret in plain}, key=len, reverse=True)
        """Also as they stand in JSON within a text."""
        self._marks = [_as_json(secret) for secret in self._secrets]
        self._pending: list[Record] = []
        self._taking = threading.Lock()
        self._writing = threading.Lock()
        self._files: dict[str, tuple[int, int]] = {}
        self._number = 1
        self._size = 0
        self._dropped = 0
        self.trouble: str | None = None
        """What keeps records from being written, in one sentence; None when all is well."""
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._run, name="spool", daemon=True)
        self._thread.start()

    def put(self, record: Record) -> None:
        """Hand over a record; never waits for a disk."""
        with self._taking:
            full = len(self._pending)
            sample = isinstance(record, GpuReading | ServerReading)
            if full >= _KEPT_IN_MEMORY or (sample and full >= _KEPT_IN_MEMORY // 2):
                self._dropped += 1
                return
            self._pending.append(record)

    def turn(self) -> None:
        """Write what is pending and end the segment."""
        self.write()
        with self._writing:
            if self._size:
                self._next_segment()

    def complete(self) -> list[int]:
        """Segments that have ended, in order."""
        return [number for number in segments(self.folder) if number < self._number]

    def write(self) -> None:
        """Write what is pending; what cannot be written is kept."""
        with self._writing:
            with self._taking:
                records, self._pending = self._pending, []
            if not records:
                return
            try:
                self._append(records)
            except OSError as error:
                with self._taking:
                    self._pending = records + self._pending
                self._say(error)
            else:
                self.trouble = None

    def close(self) -> None:
        """Write what is left and end the thread; the folder stays locked until `release`."""
        self._closing.set()
        self._thread.join()
        self.turn()

    def release(self) -> None:
        """Let go of the folder, and remove it when all of it is in the log. Call after `close`."""
        if not segments(self.folder) and not self._pending:
            remove_folder(self.folder)
        os.close(self._lock_file)

    def _run(self) -> None:
        while not self._closing.wait(_PERIOD_S):
            self.write()

    def _append(self, records: list[Record]) -> None:
        lines: defaultdict[str, list[bytes]] = defaultdict(list)
        for record in records:
            lines[record.table].append(self._line(record))
        written: dict[str, tuple[int, int]] = {}
        for table, parts in lines.items():
            handle, at = self._files.get(table) or self._open(table)
            view = memoryview(b"".join(parts))
            while view:
                count = os.pwrite(handle, view, at)
                view, at = view[count:], at + count
            written[table] = (handle, at)
        self._files.update(written)
        self._size = sum(at for _, at in self._files.values())
        if self._size > _SEGMENT_B:
            self._next_segment()

    def _line(self, record: Record) -> bytes:
        try:
            line = _encoder.encode(record)
        except UnicodeEncodeError:
            line = None
        if line is None or any(mark in line for mark in self._marks):
            line = _encoder.encode(_clean(msgspec.to_builtins(record), self._secrets))
        return line + b"\n"

    def _open(self, table: str) -> tuple[int, int]:
        path = segment_path(self.folder, self._number, table)
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
        self._files[table] = (handle, 0)
        return handle, 0

    def _next_segment(self) -> None:
        for handle, at in self._files.values():
            os.ftruncate(handle, at)  # a write that failed half-way may have left a piece of a line
            os.close(handle)
        self._files.clear()
        self._number += 1
        self._size = 0

    def _say(self, error: OSError) -> None:
        sentence = f"The run log's spool cannot be written to {self.folder}: {error.strerror}; the run goes on"
        lost = f", and {self._dropped:,} samples were dropped" if self._dropped else ", its records are kept in memory"
        self.trouble = sentence + lost


def spool_root(log: Path) -> Path:
    """Where the spools of a log's runs are: beside the database."""
    return log.with_name(f"{log.name}.spool")


def segment_path(folder: Path, number: int, table: str) -> Path:
    """The file of one table in one segment."""
    return folder / f"{number:08d}.{table}.jsonl"


def segments(folder: Path) -> list[int]:
    """Numbers of the segments there are, in order."""
    return sorted({int(path.name.partition(".")[0]) for path in folder.glob("*.jsonl")})


def segment_files(folder: Path, number: int) -> dict[str, Path]:
    """The files of a segment by table, in the order in which they are taken in."""
    found = {table: segment_path(folder, number, table) for table in RECORDS}
    return {table: path for table, path in found.items() if path.exists()}


def remove_segment(folder: Path, number: int) -> None:
    """Delete a segment that was taken in."""
    for path in segment_files(folder, number).values():
        path.unlink(missing_ok=True)


def remove_folder(folder: Path) -> None:
    """Delete an emptied spool; its lock file last, by who holds the lock."""
    for number in segments(folder):
        remove_segment(folder, number)
    (folder / "lock").unlink(missing_ok=True)
    folder.rmdir()


def cut_torn_lines(folder: Path) -> None:
    """Cut off last lines that do not end: the writer was killed in the middle of one."""
    for path in folder.glob("*.jsonl"):
        content = path.read_bytes()
        end = content.rfind(b"\n") + 1
        if end < len(content):
            os.truncate(path, end)


def lock(folder: Path, *, create: bool = False) -> int:
    """Lock a spool for this process. Raises `BlockingIOError` when its engine lives, `FileNotFoundError` when gone."""
    handle = os.open(folder / "lock", os.O_RDWR | os.O_CLOEXEC | (os.O_CREAT if create else 0), 0o600)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if not os.fstat(handle).st_nlink:
            raise FileNotFoundError(folder)
    except OSError:
        os.close(handle)
        raise
    return handle


def lives(folder: Path) -> bool:
    """Whether the engine that writes a spool lives."""
    try:
        handle = os.open(folder / "lock", os.O_RDWR | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(handle)
    return False


def _clean(value: T, secrets: list[str]) -> T:
    """A value without secrets, and with a question mark for half a surrogate pair, which cannot be written."""
    match value:
        case str():
            text = value.encode(errors="replace").decode()
            for secret in secrets:
                text = text.replace(secret, "***")
            return cast(T, text)
        case dict():
            return cast(T, {_clean(key, []): _clean(each, secrets) for key, each in value.items()})
        case list() | tuple():
            return cast(T, [_clean(each, secrets) for each in value])
        case _:
            return value


def _as_json(secret: str) -> bytes:
    """A text as it stands inside a JSON string."""
    return _encoder.encode(secret)[1:-1]
