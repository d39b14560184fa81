"""The job on disk: which rows are left, and the one door through which settled rows enter.

A row is done when its line is in its shard and fsynced. Which rows are done is read from the shards themselves,
by id, whatever order they finished in.
"""

from __future__ import annotations

import fcntl
import os
from array import array
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
from msgspec import Struct

from genmon import __version__
from genmon.config.schema import JobConfig, RunConfig
from genmon.errors import JobLocked, StartError
from genmon.job.index import build_index, load_index
from genmon.job.manifest import agree, write_atomically
from genmon.job.prompts import Skipped, rows
from genmon.job.row import Completion, Failure, Message, Row
from genmon.job.shard_file import (
    Seal,
    cut_torn_tail,
    encoded,
    mend_shard,
    read_ahead,
    read_seal,
    read_tallies,
    seal_path,
    shard_path,
    sidecar_line,
    sidecar_path,
    training_line,
)
from genmon.job.writer import Writer
from genmon.state import AnswerClass, ShardPhase, ShardState

_PENDING, _SKIPPED, _DONE, _FAILED, _TAKEN = range(5)
"""Status of a position; taken: handed in, not yet durable."""


class FailedRow(Struct, kw_only=True):
    """A line of `failed.jsonl`."""

    id: str
    position: int
    status: str
    error: str
    attempts: int
    conversations: tuple[Message, ...] = ()
    answer_class: AnswerClass | None = None


class _Shard:
    """Counts of one shard; `left` rows are neither done, failed nor skipped."""

    def __init__(self, rows: int, skipped: int) -> None:
        self.rows, self.skipped = rows, skipped
        self.done = self.failed = self.tokens = 0
        self.classes: Counter[AnswerClass] = Counter()

    @property
    def left(self) -> int:
        return self.rows - self.skipped - self.done - self.failed


class Job:
    """One open job directory; at most one at a time, in all processes."""

    def __init__(self, directory: Path, config: JobConfig, files: list[Path], index: array[int], lock: int) -> None:
        """Use `Job.open`."""
        self.directory = directory
        self._config, self._files, self._index, self._lock = config, files, index, lock
        self._status = bytearray(_PENDING if each else _SKIPPED for each in index)
        size = config.shard_size
        self._shards = [
            _Shard(len(part), part.count(_SKIPPED))
            for part in (self._status[start : start + size] for start in range(0, len(index), size))
        ]
        self.rows_total = len(index)
        self.rows_skipped = self._status.count(_SKIPPED)
        self.doubles_refused = 0
        """Rows handed in although they were settled already; they were not written."""
        self.on_durable: Callable[[list[Completion | Failure]], None] | None = None
        """Called in the writer's thread with rows that have just become durable."""

    @classmethod
    def open(cls, config: RunConfig, *, retry_failed: bool = False) -> Job:
        """Begin a job directory or go on with it: lock, check, mend, and find what is done.

        Raises:
            JobLocked: another engine has it open.
            InputChanged: the prompts are not those it began with.
            ConfigError: the prompts cannot be found.
            StartError: the directory cannot be used.
        """
        directory = config.output
        try:
            for name in ("shards", "sidecar", "seals", "logs"):
                (directory / name).mkdir(parents=True, exist_ok=True)
            lock = _lock(directory)
        except OSError as error:
            raise StartError(f"The output directory {directory} cannot be used: {error.strerror}.") from error
        try:
            _, files, stale = agree(directory, config, __version__)
            index = None if stale else load_index(directory)
            if index is None:
                index = build_index(directory, files, config.job)
            job = cls(directory, config.job, files, index, lock)
            job._load(retry_failed)
        except BaseException:
            os.close(lock)
            raise
        job._writer = Writer(job._lines, job._settled)
        return job

    _writer: Writer[Completion | Failure]

    @property
    def rows_done(self) -> int:
        """Rows in shards, fsynced."""
        return sum(shard.done for shard in self._shards)

    @property
    def rows_failed(self) -> int:
        """Rows given up."""
        return sum(shard.failed for shard in self._shards)

    @property
    def rows_unwritten(self) -> int:
        """Rows handed in that are not on disk yet; after `close` those that could not be written."""
        return self._status.count(_TAKEN)

    @property
    def tokens(self) -> int:
        """Completion tokens of all done rows, of earlier runs too."""
        return sum(shard.tokens for shard in self._shards)

    @property
    def classes(self) -> dict[AnswerClass, int]:
        """Answer classes of all done rows."""
        total: Counter[AnswerClass] = Counter()
        for shard in self._shards:
            total.update(shard.classes)
        return dict(total)

    @property
    def trouble(self) -> str | None:
        """What keeps rows from being written, in one sentence; None when all is well."""
        return self._writer.trouble

    def shards(self) -> tuple[ShardState, ...]:
        """Each shard in order."""
        return tuple(
            ShardState(
                ShardPhase.DONE
                if not shard.left
                else ShardPhase.RUNNING
                if shard.done or shard.failed
                else ShardPhase.WAITING,
                shard.rows,
                shard.done,
                shard.failed,
                shard.skipped,
            )
            for shard in self._shards
        )

    def pending(self) -> Iterator[Row]:
        """Rows that are neither settled nor handed in, in order, streamed. Lines of settled rows are not parsed."""
        samples, status = self._config.samples, self._status

        def wanted(number: int) -> bool:
            return _PENDING in status[number * samples : (number + 1) * samples]

        for made in rows(self._files, self._config, wanted=wanted):
            if not isinstance(made, Skipped):
                yield from (row for row in made.rows if status[row.position] == _PENDING)

    def submit(self, settled: Completion | Failure) -> None:
        """Hand in a settled row; never blocks. A row that is settled already is refused and counted."""
        position = settled.row.position
        if self._status[position] != _PENDING:
            self.doubles_refused += 1
            return
        self._status[position] = _TAKEN
        self._writer.submit(settled)

    def close(self) -> None:
        """Write and sync all that was handed in, then let go of the directory."""
        self._writer.close()
        os.close(self._lock)

    def _lines(self, batch: list[Completion | Failure]) -> list[tuple[Path, bytes]]:
        """What to write, in order: sidecars before shards, since a line in a shard is what makes a row done."""
        sidecars: dict[int, list[bytes]] = {}
        shards: dict[int, list[bytes]] = {}
        failures: list[bytes] = []
        for settled in batch:
            if isinstance(settled, Failure):
                failures.append(_failed_line(settled))
                continue
            number = settled.row.position // self._config.shard_size
            sidecars.setdefault(number, []).append(sidecar_line(settled))
            shards.setdefault(number, []).append(training_line(settled))
        parts = [(sidecar_path(self.directory, number), b"".join(lines)) for number, lines in sidecars.items()]
        parts += [(shard_path(self.directory, number), b"".join(lines)) for number, lines in shards.items()]
        return parts + ([(self.directory / "failed.jsonl", b"".join(failures))] if failures else [])

    def _settled(self, batch: list[Completion | Failure]) -> None:
        touched: set[int] = set()
        for settled in batch:
            number = settled.row.position // self._config.shard_size
            shard = self._shards[number]
            touched.add(number)
            if isinstance(settled, Failure):
                self._status[settled.row.position] = _FAILED
                shard.failed += 1
                continue
            self._status[settled.row.position] = _DONE
            shard.done += 1
            shard.classes[settled.answer_class] += 1
            shard.tokens += settled.completion_tokens or 0
        for number in touched:
            if not self._shards[number].left:
                self._seal(number)
        if self.on_durable is not None:
            self.on_durable(batch)

    def _load(self, retry_failed: bool) -> None:
        """Find what is settled: failed rows, then sealed shards unread, then the others line by line."""
        size = self._config.shard_size
        failed = self._load_failed(retry_failed)
        for number, shard in enumerate(self._shards):
            start = number * size
            failed_here = [each for each in failed.get(number, []) if self._status[each] == _PENDING]
            seal = read_seal(self.directory, number)
            if seal and seal.done + len(failed_here) == shard.rows - shard.skipped:
                self._take_seal(start, shard, seal, failed_here)
                continue
            read_ahead(self.directory, number + 1)
            expected = {each: start + n for n, each in enumerate(self._index[start : start + size]) if each}
            done = mend_shard(self.directory, number, expected)
            for position in done:
                self._status[position] = _DONE
            failed_here = [each for each in failed_here if self._status[each] == _PENDING]
            for position in failed_here:
                self._status[position] = _FAILED
            shard.done, shard.failed = len(done), len(failed_here)
            cut_torn_tail(sidecar_path(self.directory, number))
            for about in read_tallies(self.directory, number).values() if done else ():
                if about.position < self.rows_total and self._status[about.position] == _DONE:
                    shard.classes[about.answer_class] += 1
                    shard.tokens += about.completion_tokens or 0
            if not shard.left and done:
                self._seal(number)

    def _take_seal(self, start: int, shard: _Shard, seal: Seal, failed: list[int]) -> None:
        for position in range(start, start + shard.rows):
            if self._status[position] == _PENDING:
                self._status[position] = _DONE
        for position in failed:
            self._status[position] = _FAILED
        shard.done, shard.failed, shard.tokens = seal.done, len(failed), seal.tokens
        shard.classes.update(seal.classes)

    def _load_failed(self, retry: bool) -> dict[int, list[int]]:
        """Positions of failed rows by shard; with `retry` the file is emptied and there are none."""
        path = self.directory / "failed.jsonl"
        cut_torn_tail(path)
        found: dict[int, list[int]] = {}
        if not path.exists():
            return found
        if retry:
            write_atomically(path, b"")
            return found
        decode = msgspec.json.Decoder(FailedRow).decode
        with path.open("rb") as file:
            for line in file:
                try:
                    position = decode(line).position
                except (msgspec.MsgspecError, UnicodeDecodeError):
                    continue
                if position < self.rows_total:
                    found.setdefault(position // self._config.shard_size, []).append(position)
        return {number: sorted(set(positions)) for number, positions in found.items()}

    def _seal(self, number: int) -> None:
        """Note that a shard is settled. A seal is only a short cut: without it the shard is read."""
        shard = self._shards[number]
        try:
            stat = shard_path(self.directory, number).stat()
            seal = Seal(stat.st_size, stat.st_mtime_ns, shard.done, shard.failed, dict(shard.classes), shard.tokens)
            write_atomically(seal_path(self.directory, number), msgspec.json.encode(seal))
        except OSError:
            return


def _failed_line(failure: Failure) -> bytes:
    row = FailedRow(
        id=failure.row.id,
        position=failure.row.position,
        status="error",
        error=failure.reason,
        attempts=failure.attempts,
        conversations=failure.conversation or tuple(message for turn in failure.row.turns for message in turn),
        answer_class=failure.answer_class,
    )
    return encoded(row) + b"\n"


def _lock(directory: Path) -> int:
    """Lock the directory for this process; the kernel lets go when the process ends, however it ends."""
    handle = os.open(directory / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        owner = os.pread(handle, 32, 0).decode(errors="replace").strip() or "unknown"
        os.close(handle)
        raise JobLocked(
            f"Another genmon (process {owner}) has {directory} open: wait for it, or stop it (genmon attach)."
        ) from None
    os.ftruncate(handle, 0)
    os.pwrite(handle, f"{os.getpid()}\n".encode(), 0)
    return handle
