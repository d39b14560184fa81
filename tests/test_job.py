"""A job directory through its door: what is left after any history, and what it refuses."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from genmon.config.schema import SimulationConfig
from genmon.errors import InputChanged, JobLocked, StartError
from genmon.job.job import Job
from genmon.job.verify import verify
from genmon.state import AnswerClass, ShardPhase
from tests.rows import completion, do, failure, job_config, left, lines, shard_ids, shard_lines


def test_a_new_job_has_every_row_left_in_order(tmp_path: Path) -> None:
    config = job_config(tmp_path, 20)
    job = Job.open(config)
    assert [row.id for row in job.pending()] == [f"r{n}" for n in range(20)]
    assert (job.rows_total, job.rows_done, job.rows_failed, job.rows_skipped) == (20, 0, 0, 0)
    assert [(shard.phase, shard.rows) for shard in job.shards()] == [
        (ShardPhase.WAITING, 8),
        (ShardPhase.WAITING, 8),
        (ShardPhase.WAITING, 4),
    ]
    job.close()


@settings(max_examples=10, deadline=None)
@given(
    order=st.permutations(range(20)),
    cuts=st.lists(st.integers(0, 20), max_size=3).map(sorted),
    fails=st.sets(st.integers(0, 19), max_size=3),
    unsealed=st.booleans(),
)
def test_rows_finish_in_any_order_over_several_runs_and_none_is_lost_or_doubled(
    tmp_path_factory: pytest.TempPathFactory, order: list[int], cuts: list[int], fails: set[int], unsealed: bool
) -> None:
    config = job_config(tmp_path_factory.mktemp("job"), 20)
    ids = [f"r{n}" for n in order]
    failed = {f"r{n}" for n in fails}
    for start, end in zip([0, *cuts], [*cuts, 20], strict=True):
        part = ids[start:end]
        do(config, part, failed=[each for each in part if each in failed])
        settled = set(ids[:end])
        if unsealed:
            shutil.rmtree(config.output / "seals")
        assert left(config) == [f"r{n}" for n in range(20) if f"r{n}" not in settled]
    assert sorted(shard_ids(config)) == sorted(set(ids) - failed)
    report = verify(config.output)
    assert report.clean
    assert (report.done, report.failed, report.missing) == (20 - len(failed), len(failed), 0)


def test_what_is_known_of_done_rows_is_the_same_with_and_without_seals(tmp_path: Path) -> None:
    config = job_config(tmp_path, 16)
    job = Job.open(config)
    for number, row in enumerate(job.pending()):
        truncated = number % 3 == 0
        job.submit(completion(row, answer_class=AnswerClass.TRUNCATED if truncated else AnswerClass.COMPLETE))
    job.close()
    for sealed in (True, False):
        if not sealed:
            shutil.rmtree(config.output / "seals")
        job = Job.open(config)
        assert job.classes == {AnswerClass.TRUNCATED: 6, AnswerClass.COMPLETE: 10}
        assert (job.rows_done, job.tokens) == (16, 160)
        assert {shard.phase for shard in job.shards()} == {ShardPhase.DONE}
        job.close()


def test_a_row_handed_in_twice_is_written_once_and_counted(tmp_path: Path) -> None:
    config = job_config(tmp_path, 3)
    job = Job.open(config)
    first, *_ = job.pending()
    job.submit(completion(first, "One."))
    job.submit(completion(first, "Two."))
    job.submit(failure(first))
    job.close()
    assert job.doubles_refused == 2
    assert [row["id"] for row in shard_lines(config)] == ["r0"]
    assert lines(config.output / "failed.jsonl") == []


def test_a_row_handed_in_is_not_left_though_not_yet_durable(tmp_path: Path) -> None:
    job = Job.open(job_config(tmp_path, 3))
    first, *_ = job.pending()
    job.submit(completion(first))
    assert [row.id for row in job.pending()] == ["r1", "r2"]
    job.close()


def test_an_answer_with_half_a_surrogate_pair_is_written_and_stops_nothing(tmp_path: Path) -> None:
    """JSON may carry one and UTF-8 cannot: the character is replaced, the row is kept."""
    config = job_config(tmp_path, 2)
    job = Job.open(config)
    rows = list(job.pending())
    job.submit(completion(rows[0], "Half \ud83d a pair"))
    job.submit(completion(rows[1]))
    job.close()
    assert sorted(shard_ids(config)) == ["r0", "r1"]
    (words,) = [row["conversations"][-1]["content"] for row in shard_lines(config) if row["id"] == "r0"]  # type: ignore[index]
    assert words == "Half \ufffd a pair"
    assert verify(config.output).clean


def test_failed_rows_stay_failed_until_they_are_asked_for(tmp_path: Path) -> None:
    config = job_config(tmp_path, 10)
    do(config, failed=["r3", "r9"])
    assert left(config) == []
    assert [row["error"] for row in lines(config.output / "failed.jsonl")] == ["HTTP 400: too long"] * 2
    assert verify(config.output).failed == 2
    job = Job.open(config, retry_failed=True)
    assert (job.rows_failed, job.rows_done) == (0, 8)
    assert [row.id for row in job.pending()] == ["r3", "r9"]
    job.close()
    assert left(config) == ["r3", "r9"]
    do(config)
    assert verify(config.output).done == 10


def test_samples_are_rows_of_their_own(tmp_path: Path) -> None:
    config = job_config(tmp_path, 3, samples=3, shard_size=4)
    ids = [f"r{n}#s{k}" for n in range(3) for k in range(3)]
    assert left(config) == ids
    do(config, ["r1#s1", "r0#s2", "r2#s0"])
    assert left(config) == [each for each in ids if each not in ("r1#s1", "r0#s2", "r2#s0")]
    do(config)
    assert sorted(shard_ids(config)) == ids
    assert verify(config.output).clean


def test_a_limit_may_grow_and_what_is_done_stays(tmp_path: Path) -> None:
    do(job_config(tmp_path, 30, limit=10))
    config = job_config(tmp_path, None, limit=20)
    assert left(config) == [f"r{n}" for n in range(10, 20)]
    do(config)
    config = job_config(tmp_path, None)
    assert left(config) == [f"r{n}" for n in range(20, 30)]
    do(config)
    assert verify(config.output).clean
    assert sorted(shard_ids(config)) == sorted(f"r{n}" for n in range(30))


def test_a_limit_that_shrinks_is_refused_and_what_is_done_stays(tmp_path: Path) -> None:
    config = job_config(tmp_path, 30)
    do(config)
    with pytest.raises(InputChanged, match=r"limit changed from none to 10.*choose a new job\.output"):
        Job.open(job_config(tmp_path, None, limit=10))
    assert len(shard_ids(config)) == 30
    assert left(config) == []


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"shard_size": 16}, "shard_size changed from 8 to 16"),
        ({"samples": 2}, "samples changed from 1 to 2"),
        ({"field": "prompt"}, "field changed from none to prompt"),
        ({"id_field": "id"}, "id_field changed from none to id"),
    ],
)
def test_a_setting_that_numbers_the_rows_may_not_change(tmp_path: Path, change: dict[str, object], said: str) -> None:
    do(job_config(tmp_path), ["r5"])
    with pytest.raises(InputChanged, match=said):
        Job.open(job_config(tmp_path, None, **change))
    assert "r5" not in left(job_config(tmp_path, None))


def test_prompts_that_changed_are_refused(tmp_path: Path) -> None:
    config = job_config(tmp_path)
    do(config, ["r5"])
    path = tmp_path / "prompts.jsonl"
    before = path.read_text()
    path.write_text(before.replace("Question 7", "Riddle 7"))
    with pytest.raises(InputChanged, match=r"prompts\.jsonl changed since the job"):
        Job.open(config)
    path.write_text(before)
    assert "r5" not in left(config)


def test_prompts_may_move_when_their_content_is_the_same(tmp_path: Path) -> None:
    do(job_config(tmp_path), ["r5"])
    moved = tmp_path / "elsewhere.jsonl"
    (tmp_path / "prompts.jsonl").rename(moved)
    assert len(left(job_config(tmp_path, None, prompts=[str(moved)]))) == 19


def test_another_number_of_prompt_files_is_refused(tmp_path: Path) -> None:
    config = job_config(tmp_path)
    do(config, ["r5"])
    second = tmp_path / "second.jsonl"
    second.write_text('{"prompt": "More?"}\n')
    with pytest.raises(InputChanged, match="number of prompt files changed from 1 to 2"):
        Job.open(job_config(tmp_path, None, prompts=[*config.job.prompts, str(second)]))


def test_a_simulated_job_does_not_go_on_as_a_real_one(tmp_path: Path) -> None:
    config = job_config(tmp_path)
    do(config, ["r5"])
    import msgspec.structs

    with pytest.raises(InputChanged, match="simulated changed from"):
        Job.open(msgspec.structs.replace(config, simulation=SimulationConfig()))


def test_only_one_may_have_it_open_and_the_other_is_named(tmp_path: Path) -> None:
    config = job_config(tmp_path)
    job = Job.open(config)
    with pytest.raises(JobLocked, match=rf"process {os.getpid()}\) has .*out open: wait for it, or stop it"):
        Job.open(config)
    job.close()
    Job.open(config).close()


def test_an_open_that_fails_leaves_the_directory_unlocked(tmp_path: Path) -> None:
    do(job_config(tmp_path))
    for _ in range(2):
        with pytest.raises(InputChanged):
            Job.open(job_config(tmp_path, None, samples=4))
    assert left(job_config(tmp_path, None)) == []


@pytest.mark.parametrize(
    ("content", "said"),
    [("{", r"job\.json cannot be read"), ('{"format": 99}', "cannot be read|format 99")],
)
def test_a_manifest_that_cannot_be_read_is_one_sentence(tmp_path: Path, content: str, said: str) -> None:
    config = job_config(tmp_path)
    do(config, ["r5"])
    (config.output / "job.json").write_text(content)
    with pytest.raises(StartError, match=said):
        Job.open(config)


@pytest.mark.parametrize("how", ["gone", "torn"])
def test_an_index_that_was_damaged_is_built_anew(tmp_path: Path, how: str) -> None:
    config = job_config(tmp_path)
    do(config, ["r5", "r17"])
    index = config.output / "index.bin"
    content = index.read_bytes()
    index.unlink()
    if how == "torn":
        index.write_bytes(content[:-3])
    assert left(config) == [f"r{n}" for n in range(20) if n not in (5, 17)]
    assert sorted(shard_ids(config)) == ["r17", "r5"]


def test_bad_lines_are_no_rows_and_are_listed(tmp_path: Path) -> None:
    records = [{"id": "a", "prompt": "A?"}, {"id": "b"}, {"id": "a", "prompt": "A again?"}, {"id": "c", "prompt": "C?"}]
    config = job_config(tmp_path, records)
    job = Job.open(config)
    assert (job.rows_total, job.rows_skipped) == (4, 2)
    assert [(row.position, row.id) for row in job.pending()] == [(0, "a"), (3, "c")]
    job.close()
    skipped = lines(config.output / "skipped.jsonl")
    assert [(each["number"], each["source"], each["line"]) for each in skipped] == [
        (1, "prompts.jsonl", 2),
        (2, "prompts.jsonl", 3),
    ]
    assert "no messages" in str(skipped[0]["reason"])
    assert skipped[1]["reason"] == "same id as an earlier row: a"
    do(config)
    assert verify(config.output).clean
