"""Export: one file of what is done, whole or not at all, also while the job runs."""

from __future__ import annotations

from pathlib import Path

import duckdb
import pytest

from genmon.errors import StartError
from genmon.job.export import FORMATS, export
from genmon.job.job import Job
from genmon.job.shard_file import shard_path, sidecar_path
from tests.rows import completion, do, job_config, lines, shard_lines


def test_specforge_is_the_training_rows_and_nothing_else(tmp_path: Path) -> None:
    config = job_config(tmp_path, 20)
    do(config, failed=["r3"])
    target = tmp_path / "all.jsonl"
    assert export(config.output, "specforge", target) == 19
    rows = lines(target)
    assert rows == shard_lines(config)
    assert rows[0] == {
        "id": "r0",
        "conversations": [
            {"role": "user", "content": "Question 0?"},
            {"role": "assistant", "content": "Answer to r0.", "reasoning_content": "A thought."},
        ],
        "status": "success",
    }


def test_openai_batch_is_an_output_file_with_the_failed_rows_as_errors(tmp_path: Path) -> None:
    config = job_config(tmp_path, 4)
    do(config, failed=["r3"])
    target = tmp_path / "batch.jsonl"
    assert export(config.output, "openai-batch", target) == 4
    done = {row["custom_id"]: row for row in lines(target)}
    assert done["r0"] == {
        "id": "batch-r0",
        "custom_id": "r0",
        "response": {
            "status_code": 200,
            "request_id": "r0",
            "body": {
                "object": "chat.completion",
                "model": "model",
                "choices": [
                    {
                        "index": 0,
                        "message": {
                            "role": "assistant",
                            "content": "Answer to r0.",
                            "reasoning_content": "A thought.",
                        },
                        "finish_reason": "stop",
                    }
                ],
                "usage": {"prompt_tokens": 5, "completion_tokens": 10, "total_tokens": 15},
            },
        },
        "error": None,
    }
    assert done["r3"]["response"] is None
    assert done["r3"]["error"] == {"code": "failed", "message": "HTTP 400: too long"}


def test_parquet_holds_all_that_is_known_of_a_row(tmp_path: Path) -> None:
    config = job_config(tmp_path, 20)
    do(config, [f"r{n}" for n in range(19, -1, -1)])
    target = tmp_path / "it's all.parquet"
    assert export(config.output, "parquet", target) == 20
    quoted = str(target).replace("'", "''")
    columns = "id, answer, reasoning, answer_class, completion_tokens, acceptance_length, server, latency_s"
    table = duckdb.execute(f"SELECT {columns} FROM '{quoted}'").fetchall()
    assert table[0] == ("r7", "Answer to r7.", "A thought.", "complete", 10, 2.5, "s0", 0.5)
    assert sorted(row[0] for row in table) == sorted(f"r{n}" for n in range(20))
    roles = duckdb.execute(f"SELECT conversations->>'$[1].role' FROM '{quoted}' WHERE id = 'r3'").fetchall()
    assert roles == [("assistant",)]
    assert [path.name for path in tmp_path.glob("*.unfinished*")] == []


@pytest.mark.parametrize("format_", FORMATS)
def test_an_empty_job_gives_an_empty_file(tmp_path: Path, format_: str) -> None:
    config = job_config(tmp_path, 3)
    Job.open(config).close()
    target = tmp_path / "none"
    assert export(config.output, format_, target) == 0
    assert target.exists()


@pytest.mark.parametrize("format_", FORMATS)
def test_while_the_job_runs_only_whole_rows_come_out(tmp_path: Path, format_: str) -> None:
    config = job_config(tmp_path, 20)
    do(config, ["r0", "r9", "r1"])
    job = Job.open(config)
    path = shard_path(config.output, 0)
    path.write_bytes(path.read_bytes() + b'{"id":"r2","conversations":[{"role":"assi')
    assert export(config.output, format_, tmp_path / "some") == 3
    job.close()


def test_it_goes_on_with_rows_that_the_job_adds(tmp_path: Path) -> None:
    config = job_config(tmp_path, 20)
    job = Job.open(config)
    rows = list(job.pending())
    counts = []
    for start in (0, 10):
        for row in rows[start : start + 10]:
            job.submit(completion(row))
        job.close()
        counts.append(export(config.output, "specforge", tmp_path / "some.jsonl"))
        job = Job.open(config)
    job.close()
    assert counts == [10, 20]


def test_a_row_without_a_sidecar_comes_out_with_unknowns(tmp_path: Path) -> None:
    config = job_config(tmp_path, 2)
    do(config)
    sidecar_path(config.output, 0).unlink()
    export(config.output, "openai-batch", tmp_path / "batch.jsonl")
    body = lines(tmp_path / "batch.jsonl")[0]["response"]["body"]  # type: ignore[index]
    assert body["usage"] is None
    export(config.output, "parquet", tmp_path / "all.parquet")
    known = duckdb.execute(f"SELECT answer, completion_tokens FROM '{tmp_path / 'all.parquet'}'").fetchall()
    assert known == [("Answer to r0.", None), ("Answer to r1.", None)]


@pytest.mark.parametrize("format_", FORMATS)
def test_a_destination_that_cannot_be_written_is_one_sentence(tmp_path: Path, format_: str) -> None:
    config = job_config(tmp_path, 2)
    do(config)
    with pytest.raises(StartError, match=r"nowhere/x cannot be written: No such file or directory"):
        export(config.output, format_, tmp_path / "nowhere" / "x")
    kept = tmp_path / "kept"
    kept.mkdir()
    with pytest.raises(StartError, match=r"kept cannot be written"):
        export(config.output, format_, kept)
    assert list(tmp_path.glob("*unfinished*")) == []


@pytest.mark.parametrize("format_", FORMATS)
def test_what_goes_wrong_while_writing_is_one_sentence_too(tmp_path: Path, format_: str) -> None:
    config = job_config(tmp_path, 2)
    do(config)
    (tmp_path / "all.unfinished").mkdir()
    with pytest.raises(StartError, match=r"all cannot be written: .*(directory|exists)"):
        export(config.output, format_, tmp_path / "all")


@pytest.mark.parametrize("format_", FORMATS)
def test_a_damaged_line_does_not_come_out(tmp_path: Path, format_: str) -> None:
    config = job_config(tmp_path, 4)
    do(config)
    path = shard_path(config.output, 0)
    path.write_bytes(b'{"id":"r9","conv\n' + path.read_bytes())
    assert export(config.output, format_, tmp_path / "all") == 4


def test_an_old_export_stays_when_a_new_one_fails(tmp_path: Path) -> None:
    config = job_config(tmp_path, 2)
    do(config)
    target = tmp_path / "all.jsonl"
    export(config.output, "specforge", target)
    before = target.read_bytes()
    (config.output / "job.json").unlink()
    with pytest.raises(StartError, match=r"is no job directory"):
        export(config.output, "specforge", target)
    assert target.read_bytes() == before
