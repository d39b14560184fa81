"""The writer: groups, a process killed while it writes, a disk that is full."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec
import pytest

from genmon.config.schema import RunConfig
from genmon.job.verify import verify
from genmon.job.writer import Writer
from tests.rows import do, job_config, left, shard_ids

SLOW = pytest.mark.slow


class Lines:
    """A writer of numbered lines, one file for every `files`-th of them, and what it said was durable."""

    def __init__(self, folder: Path, files: int = 1) -> None:
        self.folder, self.files = folder, files
        self.groups: list[list[int]] = []
        self.all_there = True
        self.writer = Writer(self.lines, self.durable)

    def lines(self, batch: list[int]) -> list[tuple[Path, bytes]]:
        parts: dict[Path, bytes] = {}
        for item in batch:
            path = self.folder / f"{item % self.files}.txt"
            parts[path] = parts.get(path, b"") + f"{item}\n".encode()
        return list(parts.items())

    def durable(self, batch: list[int]) -> None:
        self.groups.append(batch)
        self.all_there &= set(batch) <= set(self.written())

    def written(self) -> list[int]:
        return [int(line) for path in self.folder.glob("*.txt") for line in path.read_text().splitlines()]


def test_a_row_waits_for_company_and_is_told_when_it_is_on_disk(tmp_path: Path) -> None:
    work = Lines(tmp_path)
    for item in range(200):
        work.writer.submit(item)
    work.writer.close()
    assert work.written() == list(range(200))
    assert work.all_there
    assert [item for group in work.groups for item in group] == list(range(200))
    assert len(work.groups) <= 2


def test_many_threads_and_many_files(tmp_path: Path) -> None:
    work = Lines(tmp_path, files=150)

    def submit(start: int) -> None:
        for item in range(start, 1200, 4):
            work.writer.submit(item)

    threads = [threading.Thread(target=submit, args=[start]) for start in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    work.writer.close()
    assert sorted(work.written()) == list(range(1200))
    assert work.all_there


def test_what_was_there_before_is_appended_to(tmp_path: Path) -> None:
    for items in ([1, 2], [3]):
        work = Lines(tmp_path)
        for item in items:
            work.writer.submit(item)
        work.writer.close()
    assert work.written() == [1, 2, 3]


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_writer_that_breaks_says_so(tmp_path: Path) -> None:
    def broken(batch: list[int]) -> None:
        raise RuntimeError("a bug")

    writer = Writer(Lines(tmp_path).lines, broken)
    writer.submit(1)
    writer.close()
    assert writer.trouble is not None
    assert "Rows are written no more" in writer.trouble
    assert "a bug" in writer.trouble


@contextmanager
def writing(config: RunConfig, *largest_file_b: int) -> Iterator[subprocess.Popen[str]]:
    """A child that writes the job's rows; killed with -9 at the end of the block, if it still runs."""
    run_file = Path(config.job.output).parent / "run.json"
    run_file.write_bytes(msgspec.json.encode(config))
    child = subprocess.Popen(
        [sys.executable, "-m", "tests.writing", str(run_file), *map(str, largest_file_b)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=Path(__file__).parent.parent,
    )
    try:
        yield child
    finally:
        child.kill()
        child.wait()
        assert child.stdin is not None
        assert child.stdout is not None
        child.stdin.close()
        child.stdout.close()


def told(line: str) -> list[str]:
    """Ids that a line of the child says are durable."""
    word, *ids = line.split()
    return ids if word == "durable" else []


@pytest.mark.parametrize("groups", [2, pytest.param(1, marks=SLOW), pytest.param(4, marks=SLOW)])
def test_what_was_told_as_durable_survives_a_kill_and_is_there_once(tmp_path: Path, groups: int) -> None:
    config = job_config(tmp_path, 3000, shard_size=500)
    durable: list[str] = []
    with writing(config) as child:
        assert child.stdout is not None
        for _ in range(groups):
            durable += told(child.stdout.readline())
        child.kill()
        for line in child.stdout:
            durable += told(line) if line.endswith("\n") else []
    assert durable
    still_left = set(left(config))
    assert not still_left & set(durable)
    there = shard_ids(config)
    assert len(there) == len(set(there))
    assert set(there) >= set(durable)
    assert set(there) | still_left == {f"r{n}" for n in range(3000)}
    do(config)
    report = verify(config.output)
    assert report.clean, str(report)


@pytest.mark.parametrize("largest_b", [32_000, pytest.param(100, marks=SLOW), pytest.param(9000, marks=SLOW)])
def test_a_full_disk_is_told_and_with_room_again_nothing_is_lost_or_doubled(tmp_path: Path, largest_b: int) -> None:
    config = job_config(tmp_path, 300, shard_size=100)
    with writing(config, largest_b) as child:
        assert child.stdout is not None
        assert child.stdin is not None
        _, done, sentence = next(line for line in child.stdout if line.startswith("trouble")).split(maxsplit=2)
        assert sentence.startswith("Rows cannot be written to ")
        assert "; they are kept and tried again" in sentence
        assert verify(config.output).done >= int(done)
        child.stdin.write("room\n")
        child.stdin.flush()
        rest = child.stdout.read()
    assert rest.endswith("closed\n")
    assert sorted(shard_ids(config)) == sorted(f"r{n}" for n in range(300))
    report = verify(config.output)
    assert report.clean, str(report)


@SLOW
def test_a_kill_while_the_disk_is_full_leaves_a_job_that_goes_on(tmp_path: Path) -> None:
    config = job_config(tmp_path, 300, shard_size=100)
    with writing(config, 32_000) as child:
        assert child.stdout is not None
        next(line for line in child.stdout if line.startswith("trouble"))
    do(config)
    report = verify(config.output)
    assert report.clean, str(report)
    assert report.done == 300
