"""Files of public benchmarks, where somebody has them: prompts that nobody here wrote. They are not in the repository.

GENMON_REAL_PROMPTS names a folder with GSM8K's test set (`question`), HumanEval (`prompt`, .jsonl.gz), MT-Bench
(`turns`) and IFEval (`prompt`), unchanged and by the names they are published under.
"""

from __future__ import annotations

import gzip
import os
from pathlib import Path

import pytest

_NAME = os.environ.get("GENMON_REAL_PROMPTS")
FOLDER = Path(_NAME) if _NAME else None
FILES = {
    "gsm8k_test.jsonl": 1319,
    "HumanEval.jsonl.gz": 164,
    "mt_bench_question.jsonl": 80,
    "ifeval_input_data.jsonl": 541,
}
"""How many rows each has."""
needs_real_prompts = pytest.mark.skipif(
    FOLDER is None, reason="GENMON_REAL_PROMPTS names no folder with GSM8K, HumanEval, MT-Bench and IFEval"
)


def first_of_each(folder: Path, count: int, target: Path) -> int:
    """Put the first rows of each file into `target`, as prompts-NAME.jsonl; returns how many rows there are."""
    total = 0
    for name in FILES:
        content = (folder / name).read_bytes()
        plain = gzip.decompress(content) if name.endswith(".gz") else content
        lines = plain.splitlines(keepends=True)[:count]
        (target / f"prompts-{name.partition('.')[0]}.jsonl").write_bytes(b"".join(lines))
        total += len(lines)
    return total
