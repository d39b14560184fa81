"""A small job on disk, and finished rows to hand in to it."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from pathlib import Path

import msgspec

from genmon.config.schema import JobConfig, ModelConfig, RunConfig
from genmon.job.job import Job
from genmon.job.row import Completion, Failure, Json, Message, Row
from genmon.state import AnswerClass


def job_config(folder: Path, records: int | Sequence[Json] | None = 20, **job: Json) -> RunConfig:
    """A run of prompts r0, r1, … (or of these records; None leaves the prompt file alone) with shards of 8 rows."""
    path = folder / "prompts.jsonl"
    if isinstance(records, int):
        records = [{"id": f"r{number}", "prompt": f"Question {number}?"} for number in range(records)]
    if records is not None:
        path.write_text("".join(json.dumps(record) + "\n" for record in records))
    fields = {"prompts": [str(path)], "output": str(folder / "out"), "shard_size": 8, **job}
    return RunConfig(name="test", model=ModelConfig(path="model"), job=msgspec.convert(fields, JobConfig))


def completion(row: Row, text: str = "An answer.", answer_class: AnswerClass = AnswerClass.COMPLETE) -> Completion:
    reply = Message(role="assistant", content=text, reasoning_content="A thought.")
    return Completion(
        row=row,
        conversation=(*row.turns[-1], reply),
        answer_class=answer_class,
        finish_reason="stop",
        prompt_tokens=5,
        completion_tokens=10,
        reasoning_tokens=4,
        acceptance_length=2.5,
        attempts=1,
        server="s0",
        launch="s0#1",
        started_at=1.0,
        latency_s=0.5,
    )


def failure(row: Row) -> Failure:
    return Failure(row=row, reason="HTTP 400: too long", attempts=3)


def do(config: RunConfig, finished: Iterable[str] | None = None, *, failed: Iterable[str] = ()) -> None:
    """Open the job, hand in these rows in this order (None: all that are left), and close it."""
    job = Job.open(config)
    try:
        left = {row.id: row for row in job.pending()}
        failed = list(failed)
        for row_id in left if finished is None else finished:
            if row_id not in failed:
                job.submit(completion(left[row_id], f"Answer to {row_id}."))
        for row_id in failed:
            job.submit(failure(left[row_id]))
    finally:
        job.close()


def left(config: RunConfig) -> list[str]:
    """Ids that a fresh open finds left, in order."""
    job = Job.open(config)
    try:
        return [row.id for row in job.pending()]
    finally:
        job.close()


def lines(path: Path) -> list[dict[str, Json]]:
    """The JSON objects of a file."""
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def shard_lines(config: RunConfig) -> list[dict[str, Json]]:
    """The rows of all shards."""
    return [row for path in sorted((config.output / "shards").glob("*.jsonl")) for row in lines(path)]


def shard_ids(config: RunConfig) -> list[str]:
    """Their ids."""
    return [str(row["id"]) for row in shard_lines(config)]
