"""Damage to a shard: what open mends, what verify says before and after, and that no whole row is lost."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from genmon.config.schema import RunConfig
from genmon.job.job import Job
from genmon.job.shard_file import seal_path, shard_path, sidecar_path
from genmon.job.verify import VerifyReport, verify
from tests.rows import do, job_config, left, lines, shard_ids

FOREIGN = b'{"id":"stranger","conversations":[],"status":"success"}\n'
Harm = Callable[[bytes], bytes]


def damaged_in(config: RunConfig) -> list[bytes]:
    path = config.output / "damaged.jsonl"
    return path.read_bytes().splitlines() if path.exists() else []


def found(report: VerifyReport) -> dict[str, int]:
    names = ("missing", "doubled", "torn", "foreign", "without_sidecar")
    return {name: getattr(report, name) for name in names if getattr(report, name)}


def first_line(content: bytes) -> bytes:
    return content[: content.index(b"\n") + 1]


def in_the_middle(content: bytes, piece: bytes) -> bytes:
    at = len(first_line(content))
    return content[:at] + piece + content[at:]


@pytest.mark.parametrize(
    ("harm", "verify_says", "lost", "kept_aside"),
    [
        pytest.param(lambda it: it[:-30], {"torn": 1, "missing": 1}, ["r7"], 0, id="torn tail"),
        pytest.param(lambda it: it[:-1], {"torn": 1, "missing": 1}, ["r7"], 0, id="only the newline is missing"),
        pytest.param(lambda it: it + FOREIGN[:20], {"torn": 1}, [], 0, id="torn row after the last"),
        pytest.param(lambda it: it + b"\0" * 4096, {"torn": 1}, [], 0, id="zeros where a crash left a hole"),
        pytest.param(lambda it: in_the_middle(it, b'{"id":"r3","conv\n'), {"torn": 1}, [], 1, id="damaged line"),
        pytest.param(lambda it: it.replace(b'{"id":"r0"', b'{"id":r0"', 1), {"torn": 1, "missing": 1}, ["r0"], 1,
                     id="row overwritten"),
        pytest.param(lambda it: in_the_middle(it, b"\xff\xfe\n"), {"torn": 1}, [], 1, id="not text"),
        pytest.param(lambda it: in_the_middle(it, FOREIGN), {"foreign": 1}, [], 1, id="foreign row"),
        pytest.param(lambda it: it + first_line(it), {"doubled": 1}, [], 1, id="doubled row"),
        pytest.param(lambda it: first_line(it) + it + it[:50], {"doubled": 1, "torn": 1}, [], 2, id="several at once"),
        pytest.param(lambda it: b"", {"missing": 8}, [f"r{n}" for n in range(8)], 0, id="emptied"),
    ],
)  # fmt: skip
def test_open_mends_what_verify_finds_and_the_rest_of_the_shard_stays(
    tmp_path: Path, harm: Harm, verify_says: dict[str, int], lost: list[str], kept_aside: int
) -> None:
    config = job_config(tmp_path, 20)
    do(config)
    path = shard_path(config.output, 0)
    path.write_bytes(harm(path.read_bytes()))
    assert found(verify(config.output)) == verify_says
    assert left(config) == lost
    assert sorted(shard_ids(config)) == sorted({f"r{n}" for n in range(20)} - set(lost))
    assert len(damaged_in(config)) == kept_aside
    assert found(verify(config.output)) == ({"missing": len(lost)} if lost else {})
    do(config)
    report = verify(config.output)
    assert report.clean, str(report)
    assert report.done == 20
    assert len(shard_ids(config)) == 20


@settings(max_examples=15, deadline=None)
@given(cut=st.integers(0, 4000), junk=st.binary(max_size=40), twice=st.booleans())
def test_wherever_a_write_was_torn_all_rows_before_it_are_kept(
    tmp_path_factory: pytest.TempPathFactory, cut: int, junk: bytes, twice: bool
) -> None:
    config = job_config(tmp_path_factory.mktemp("torn"), 6)
    do(config)
    path = shard_path(config.output, 0)
    content = path.read_bytes()
    cut = min(cut, len(content))
    path.write_bytes(content[:cut] + junk)
    whole = [json.loads(line)["id"] for line in content[:cut].splitlines(keepends=True) if line.endswith(b"\n")]
    if twice:
        left(config)
    assert left(config) == [f"r{n}" for n in range(6) if f"r{n}" not in whole]
    assert shard_ids(config) == whole
    do(config)
    assert sorted(shard_ids(config)) == [f"r{n}" for n in range(6)]
    assert verify(config.output).clean


def test_a_shard_that_is_gone_is_generated_anew_and_the_others_are_not(tmp_path: Path) -> None:
    config = job_config(tmp_path, 20)
    do(config)
    shard_path(config.output, 1).unlink()
    assert found(verify(config.output)) == {"missing": 8}
    assert left(config) == [f"r{n}" for n in range(8, 16)]


@pytest.mark.parametrize("gone", ["all", "one row", "torn"])
def test_a_done_row_without_its_sidecar_is_told_and_stays_done(tmp_path: Path, gone: str) -> None:
    config = job_config(tmp_path, 8)
    do(config)
    path = sidecar_path(config.output, 0)
    content = path.read_bytes()
    if gone == "all":
        path.unlink()
    else:
        path.write_bytes(content[:-10] if gone == "torn" else content[len(first_line(content)) :])
    seal_path(config.output, 0).unlink()
    expected = 8 if gone == "all" else 1
    assert found(verify(config.output)) == {"without_sidecar": expected}
    job = Job.open(config)
    assert list(job.pending()) == []
    assert job.rows_done == 8
    assert job.tokens == 10 * (8 - expected)
    job.close()
    assert len(shard_ids(config)) == 8
    assert all(line.endswith(b"\n") for line in (path.read_bytes() if path.exists() else b"").splitlines(keepends=True))


def test_a_sidecar_row_whose_shard_line_never_came_counts_once(tmp_path: Path) -> None:
    """A crash between the two files: the row is done again, and its last sidecar row is the one that counts."""
    config = job_config(tmp_path, 4)
    do(config, ["r0", "r1"])
    path = shard_path(config.output, 0)
    path.write_bytes(first_line(path.read_bytes()))
    assert left(config) == ["r1", "r2", "r3"]
    do(config)
    assert [row["id"] for row in lines(sidecar_path(config.output, 0))].count("r1") == 2
    job = Job.open(config)
    assert (job.rows_done, job.tokens, sum(job.classes.values())) == (4, 40, 4)
    job.close()
    assert verify(config.output).clean


@pytest.mark.parametrize("how", ["size", "mtime", "torn", "count", "other"])
def test_a_seal_that_does_not_fit_is_not_believed(tmp_path: Path, how: str) -> None:
    config = job_config(tmp_path, 8)
    do(config)
    shard, seal = shard_path(config.output, 0), seal_path(config.output, 0)
    about = json.loads(seal.read_bytes())
    content = shard.read_bytes()
    shard.write_bytes(content[len(first_line(content)) :])
    lost = json.loads(first_line(content))["id"]
    if how != "size":
        about["size"] = shard.stat().st_size
    if how == "mtime":
        os.utime(shard, ns=(1, 1))
    if how == "count":
        about |= {"mtime_ns": shard.stat().st_mtime_ns, "done": 7}
    seal.write_text(json.dumps(about)[: 10 if how == "torn" else None] if how != "other" else "[]")
    assert left(config) == [lost]


def test_rows_past_the_jobs_last_shard_are_told_and_left_alone(tmp_path: Path) -> None:
    config = job_config(tmp_path, 8)
    do(config)
    extra = shard_path(config.output, 7)
    extra.write_bytes(FOREIGN * 2)
    report = verify(config.output)
    assert found(report) == {"foreign": 2}
    assert "2 rows in 00007.jsonl, a shard the job does not have" in str(report)
    assert left(config) == []
    assert extra.exists()
