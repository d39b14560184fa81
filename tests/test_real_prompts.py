"""All 2,104 prompts of four public benchmarks in one job on the simulated box, each file in its own shape."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.real_prompts import FILES, FOLDER, needs_real_prompts
from tests.rows import lines

RUN_FILE = """
[model]
path = "Qwen/Qwen3.6-27B"
[servers]
base_port = 32100
stagger_s = 0.0
[servers.flags]
reasoning-parser = "qwen3"
max-running-requests = 64
disable-radix-cache = true
[servers.mtp]
enabled = true
[job]
prompts = {prompts}
output = "out"
shard_size = 500
[sampling]
max_tokens = 1024
thinking = true
[simulation]
startup_s = 0.5
output_tokens = 100
"""


def genmon(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "genmon", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=500, check=False)


@pytest.mark.slow
@pytest.mark.timeout(600)
@needs_real_prompts
def test_every_real_prompt_is_answered_once(tmp_path: Path) -> None:
    assert FOLDER is not None
    run_file = tmp_path / "run.toml"
    run_file.write_text(RUN_FILE.format(prompts=json.dumps([str(FOLDER / name) for name in FILES])))
    checked = genmon("check", run_file)
    assert checked.returncode == 0, checked.stdout + checked.stderr
    assert "2,104 rows in 4 files" in checked.stdout
    ran = genmon("--batch", run_file)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    verified = genmon("verify", "--json", tmp_path / "out")
    assert verified.returncode == 0, verified.stdout
    report = json.loads(verified.stdout)
    assert (report["rows"], report["done"], report["failed"], report["skipped"]) == (2104, 2104, 0, 0)
    rows = [row for path in (tmp_path / "out" / "shards").glob("*.jsonl") for row in lines(path)]
    assert {row["status"] for row in rows} == {"success"}
    lengths = [len(row["conversations"]) for row in rows]  # type: ignore[arg-type]
    assert (lengths.count(2), lengths.count(4)) == (2024, 80)
    assert all(
        message["content"].strip()
        for row in rows
        for message in row["conversations"]  # type: ignore[attr-defined]
    )
    for format_ in ("specforge", "openai-batch", "parquet"):
        exported = genmon("export", tmp_path / "out", "--format", format_, "-o", tmp_path / f"all.{format_}")
        assert exported.returncode == 0, exported.stderr
