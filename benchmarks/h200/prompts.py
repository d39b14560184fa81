"""Real prompts for the runs: a job of 480 rows, and rows of one turn that SGLang's own bench client reads too.

    python prompts.py SOURCE FOLDER

SOURCE holds gsm8k_test.jsonl, ifeval_input_data.jsonl and mt_bench_question.jsonl as their authors published them.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path

_GSM8K, _IFEVAL, _SATURATION = 280, 120, 1000


def records(path: Path) -> Iterator[dict[str, object]]:
    with path.open() as file:
        for line in file:
            yield json.loads(line)


def write(path: Path, rows: list[dict[str, object]]) -> None:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


def main() -> None:
    source, folder = Path(sys.argv[1]), Path(sys.argv[2])
    folder.mkdir(parents=True, exist_ok=True)
    questions = [str(record["question"]) for record in records(source / "gsm8k_test.jsonl")]
    job: list[dict[str, object]] = [
        {"id": f"gsm8k-{number}", "prompt": text} for number, text in enumerate(questions[:_GSM8K])
    ]
    instructions = list(records(source / "ifeval_input_data.jsonl"))[:_IFEVAL]
    job += [{"id": f"ifeval-{record['key']}", "prompt": record["prompt"]} for record in instructions]
    talks = records(source / "mt_bench_question.jsonl")
    job += [{"id": f"mt-bench-{record['question_id']}", "prompt": record["turns"]} for record in talks]
    write(folder / "job.jsonl", job)
    rows: list[dict[str, object]] = [
        {"messages": [{"role": "user", "content": text}], "max_tokens": 256} for text in questions[:_SATURATION]
    ]
    write(folder / "saturation.jsonl", rows)
    write(folder / "short.jsonl", [row | {"max_tokens": 16} for row in rows])


if __name__ == "__main__":
    main()
