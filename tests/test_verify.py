"""Verify: what it counts, what it says, and that it may look while a job runs."""

from __future__ import annotations

from pathlib import Path

import pytest

from genmon.errors import StartError
from genmon.job.job import Job
from genmon.job.shard_file import shard_path
from genmon.job.verify import verify
from tests.rows import completion, do, job_config


def test_a_finished_job_is_clean(tmp_path: Path) -> None:
    config = job_config(tmp_path, [*({"id": f"r{n}", "prompt": "Q?"} for n in range(10)), {"id": "bad"}])
    do(config, failed=["r4"])
    report = verify(config.output)
    assert report.clean
    assert (report.rows, report.done, report.failed, report.skipped, report.missing) == (11, 9, 1, 1, 0)
    assert str(report) == (
        "verify    clean: every row is there exactly once\n"
        "          11 rows = 9 done + 1 failed + 1 skipped"
    )  # fmt: skip


def test_an_unfinished_job_names_what_is_missing(tmp_path: Path) -> None:
    config = job_config(tmp_path, 30)
    do(config, ["r0", "r29"])
    report = verify(config.output)
    assert not report.clean
    assert report.missing == 28
    assert len(report.examples) == 10
    assert report.examples[0] == "missing: row 1 of the input"
    assert "NOT CLEAN: 28 missing" in str(report)
    assert "30 rows = 2 done + 0 failed + 0 skipped + 28 missing" in str(report)


def test_a_row_both_done_and_failed_is_doubled(tmp_path: Path) -> None:
    config = job_config(tmp_path, 10)
    do(config, failed=["r4"])
    failed = config.output / "failed.jsonl"
    content = failed.read_bytes()
    Job.open(config, retry_failed=True).close()
    do(config)
    failed.write_bytes(content)
    report = verify(config.output)
    assert (report.doubled, report.done, report.failed) == (1, 10, 0)
    assert report.examples == ["doubled: row 4 is done and failed"]


def test_a_row_in_another_rows_shard_is_foreign(tmp_path: Path) -> None:
    config = job_config(tmp_path, 16)
    do(config)
    first, second = shard_path(config.output, 0), shard_path(config.output, 1)
    moved, rest = second.read_bytes().split(b"\n", 1)
    first.write_bytes(first.read_bytes() + moved + b"\n")
    second.write_bytes(rest)
    report = verify(config.output)
    assert (report.foreign, report.missing, report.done) == (1, 1, 15)
    assert "foreign: r8 at 00000.jsonl line 9" in report.examples


def test_it_looks_while_a_job_runs_and_does_not_call_a_line_in_the_making_torn(tmp_path: Path) -> None:
    config = job_config(tmp_path, 8)
    do(config, ["r0", "r1"])
    job = Job.open(config)
    path = shard_path(config.output, 0)
    before = path.read_bytes()
    path.write_bytes(before + b'{"id":"r2","conv')
    report = verify(config.output)
    assert report.running
    assert (report.torn, report.done, report.missing) == (0, 2, 6)
    assert "(a run is going on)" in str(report)
    path.write_bytes(before)
    job.submit(completion(next(job.pending())))
    job.close()
    report = verify(config.output)
    assert (report.running, report.done) == (False, 3)


def test_looking_does_not_keep_an_engine_out(tmp_path: Path) -> None:
    config = job_config(tmp_path, 8)
    do(config)
    for _ in range(3):
        verify(config.output)
        Job.open(config).close()


def test_it_changes_nothing(tmp_path: Path) -> None:
    config = job_config(tmp_path, 8)
    do(config)
    path = shard_path(config.output, 0)
    path.write_bytes(path.read_bytes()[:-5] + b"\nrubbish\n")
    before = {each: each.read_bytes() for each in config.output.rglob("*") if each.is_file()}
    assert not verify(config.output).clean
    assert {each: each.read_bytes() for each in config.output.rglob("*") if each.is_file()} == before


@pytest.mark.parametrize("gone", ["job.json", "index.bin"])
def test_what_is_no_job_directory_is_one_sentence(tmp_path: Path, gone: str) -> None:
    config = job_config(tmp_path)
    do(config)
    (config.output / gone).unlink()
    with pytest.raises(StartError, match=rf"out (is no job directory: it )?has no {gone}"):
        verify(config.output)


def test_damaged_failed_lines_are_passed_over(tmp_path: Path) -> None:
    config = job_config(tmp_path, 8)
    do(config, failed=["r1", "r2"])
    path = config.output / "failed.jsonl"
    path.write_bytes(b"not json\n" + path.read_bytes()[:-20])
    report = verify(config.output)
    assert (report.failed, report.missing) == (1, 1)
    do(config)
    assert verify(config.output).done == 7
