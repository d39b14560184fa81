"""The same program on real SGLang servers (on CPU, a tiny random model): launch, ready, rows, verify, nothing left.

Needs GENMON_SGLANG_PYTHON, an interpreter made by tests/sglang_cpu/install.sh; with GENMON_REAL_PROMPTS (see
real_prompts.py) also rows of public benchmarks.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from contextlib import AsyncExitStack
from pathlib import Path

import psutil
import pytest

from genmon.commands import Drain, Restart
from genmon.errors import Refused, StartError
from genmon.state import FlagChange
from genmon.wire.client import SocketLink
from tests.real_prompts import FOLDER, first_of_each, needs_real_prompts

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
prompts = ["prompts*.jsonl"]
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
    return write_run_file(folder)


def write_run_file(folder: Path) -> Path:
    """A run of the prompts in this folder."""
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


@needs_real_prompts
def test_prompts_that_nobody_here_wrote(tmp_path: Path) -> None:
    """A random model answers them in rubbish, some of which fails its tries: every row is settled all the same."""
    assert FOLDER is not None
    rows = first_of_each(FOLDER, 70, tmp_path)
    assert rows >= 200
    ran = genmon("--batch", write_run_file(tmp_path))
    assert ran.returncode in (0, 1), ran.stdout + ran.stderr
    verified = genmon("verify", "--json", tmp_path / "out")
    assert verified.returncode == 0, verified.stdout
    report = json.loads(verified.stdout)
    assert (report["rows"], report["skipped"], report["missing"]) == (rows, 0, 0)
    assert report["done"] > 0.9 * rows
    failed = tmp_path / "out" / "failed.jsonl"
    reasons = [json.loads(line)["error"] for line in failed.read_text().splitlines()] if failed.exists() else []
    assert all("in each of 3 tries" in reason for reason in reasons), reasons
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


async def change_flags(folder: Path) -> list[FlagChange]:
    """A flag changed on one server, then one that no SGLang has, then a value that it refuses: how they ended."""
    async with asyncio.timeout(1700), AsyncExitStack() as stack:
        while True:
            try:
                link = await stack.enter_async_context(SocketLink(folder / "out"))
                break
            except StartError:
                await asyncio.sleep(0.5)
        while link.state is None or link.state.job.rows_done < 20:
            await asyncio.sleep(0.2)
        await link.do(Restart(servers=("s0",), set={"max-running-requests": "8"}))
        first = await ended(link, 1)
        assert {server.name: server.cap for server in link.state.servers} == {"s0": 8, "s1": 16}
        with pytest.raises(Refused, match="has no flag --max-runing-requests"):
            await link.plan(Restart(servers=("s0",), set={"max-runing-requests": "8"}))
        with pytest.raises(Refused, match="has no --mamba-scheduler-strategy"):
            await link.plan(Restart(servers=("s0",), set={"mamba-scheduler-strategy": "no_buffer"}))
        await link.do(Restart(servers=("s0", "s1"), set={"max-running-requests": "many"}))
        second = await ended(link, 2)
        await link.do(Drain())
        return [first, second]


async def ended(link: SocketLink, id: int) -> FlagChange:
    while True:
        link.arrived.clear()
        await link.arrived.wait()
        assert link.state is not None
        for change in link.state.changes:
            if change.id == id and change.ended_at is not None:
                return change


@pytest.mark.timeout(1800)
def test_flags_are_changed_while_it_runs_and_bad_ones_taken_back(tmp_path: Path) -> None:
    run_file = write_run(tmp_path, 20_000)
    engine = subprocess.Popen([sys.executable, "-m", "genmon", "--batch", str(run_file)], stdout=subprocess.DEVNULL)
    try:
        first, second = asyncio.run(change_flags(tmp_path))
        assert (first.outcome, first.rolled_back) == ("done", False)
        assert second.rolled_back and second.outcome is not None
        assert "argument --max-running-requests: invalid" in second.outcome
        assert "s1 not changed" in second.outcome
        engine.wait(timeout=120)
    finally:
        engine.kill()
        engine.wait()
    report = json.loads(genmon("verify", "--json", tmp_path / "out").stdout)
    assert report["done"] > 20
    assert (report["doubled"], report["torn"], report["foreign"]) == (0, 0, 0)
    launches = [json.loads(line)["launch"] for line in (tmp_path / "out" / "launches.jsonl").read_text().splitlines()]
    assert sorted(launches) == ["s0#1", "s0#2", "s0#3", "s0#4", "s1#1"]
    assert sglang_processes(tmp_path) == []
