"""The same program on real SGLang servers (on CPU, a tiny random model): launch, ready, rows, verify, nothing left.

Needs GENMON_SGLANG_PYTHON, an interpreter made by tests/sglang_cpu/install.sh.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

HERE = Path(__file__).parent / "sglang_cpu"
PYTHON = os.environ.get("GENMON_SGLANG_PYTHON")

pytestmark = [
    pytest.mark.sglang,
    pytest.mark.timeout(900),
    pytest.mark.skipif(not PYTHON, reason="GENMON_SGLANG_PYTHON names no interpreter with SGLang"),
]

RUN_FILE = """
name = "real"
[model]
path = "{model}"
served_name = "tiny"
[servers]
gpus = ["cpu", "cpu"]
python = "{python}"
base_port = 31800
stagger_s = 1.0
[servers.flags]
device = "cpu"
load-format = "dummy"
disable-cuda-graph = true
attention-backend = "torch_native"
max-total-tokens = 8192
reasoning-parser = "qwen3"
max-running-requests = 16
[servers.env]
PYTHONPATH = "{shim}"
SGLANG_USE_CPU_ENGINE = "1"
HF_HUB_OFFLINE = "1"
TRANSFORMERS_OFFLINE = "1"
[job]
prompts = ["prompts.jsonl"]
output = "out"
shard_size = 64
[sampling]
max_tokens = 24
thinking = false
[limits]
pause_above = 1.0
"""


def write_run(folder: Path, rows: int) -> Path:
    """`rows` OpenAI Batch lines that make the random model answer in words."""
    with (folder / "prompts.jsonl").open("w") as file:
        for number in range(rows):
            body = {
                "model": "tiny",
                "messages": [{"role": "user", "content": f"What is {number} + {number * number}?"}],
                "regex": "The answer is [1-9]{1,3}",
            }
            line = {"custom_id": f"q{number}", "method": "POST", "url": "/v1/chat/completions", "body": body}
            file.write(json.dumps(line) + "\n")
    path = folder / "run.toml"
    path.write_text(RUN_FILE.format(model=HERE / "model", python=PYTHON, shim=HERE / "shim"))
    return path


def genmon(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "genmon", *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=800,
        check=False,
    )


def sglang_processes(folder: Path) -> list[str]:
    """Processes of servers that were launched for this folder's model and job."""
    found = []
    for process in psutil.process_iter(["cmdline", "environ", "status"]):
        environment = process.info["environ"] or {}
        ours = str(folder) in " ".join(process.info["cmdline"] or []) or environment.get("GENMON_JOB") == str(folder)
        if ours and process.info["status"] != psutil.STATUS_ZOMBIE and process.pid != os.getpid():
            found.append(" ".join(process.info["cmdline"] or []))
    return found


def test_two_servers_answer_every_row(tmp_path: Path) -> None:
    run_file = write_run(tmp_path, 220)
    checked = genmon("check", run_file)
    assert checked.returncode == 0, checked.stdout + checked.stderr
    assert "0.5.23" in checked.stdout
    ran = genmon("--batch", run_file)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    verified = genmon("verify", tmp_path / "out")
    assert verified.returncode == 0, verified.stdout
    sidecar = [
        json.loads(line)
        for path in (tmp_path / "out" / "sidecar").glob("*.jsonl")
        for line in path.read_text().splitlines()
    ]
    assert {row["server"] for row in sidecar} == {"s0", "s1"}
    assert all(row["completion_tokens"] > 0 for row in sidecar)
    shards = [
        json.loads(line)
        for path in (tmp_path / "out" / "shards").glob("*.jsonl")
        for line in path.read_text().splitlines()
    ]
    assert all(row["conversations"][-1]["content"].startswith("The answer is ") for row in shards)
    assert sglang_processes(tmp_path) == []


def test_killed_and_started_again_it_goes_on(tmp_path: Path) -> None:
    run_file = write_run(tmp_path, 220)
    command = [sys.executable, "-m", "genmon", "--batch", "--json", str(run_file)]
    engine = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert engine.stdout is not None
    try:
        for line in engine.stdout:
            if json.loads(line).get("job", {}).get("rows_done", 0) > 20:
                break
    finally:
        engine.send_signal(signal.SIGKILL)
        engine.wait()
        engine.stdout.close()
    ran = genmon("--batch", run_file)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert genmon("verify", tmp_path / "out").returncode == 0
    deadline = time.monotonic() + 20
    while sglang_processes(tmp_path) and time.monotonic() < deadline:
        time.sleep(0.2)
    assert sglang_processes(tmp_path) == []
