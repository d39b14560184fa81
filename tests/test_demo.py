"""The whole program as a user runs it: real child processes, simulated GPUs, kill -9, and verify at the end."""

from __future__ import annotations

import json
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

GENMON = [sys.executable, "-m", "genmon"]


def genmon(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    command = [*GENMON, *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=240, check=False)


def servers_of(output: Path) -> list[psutil.Process]:
    """Simulated servers that belong to this job directory."""
    found = []
    for process in psutil.process_iter(["cmdline", "environ", "status"]):
        words = " ".join(process.info["cmdline"] or [])
        environment = process.info["environ"] or {}
        ours = str(output) in environment.get("GENMON_SIM", "") and "genmon.sim.server" in words
        if ours and process.info["status"] != psutil.STATUS_ZOMBIE:
            found.append(process)
    return found


def run_file(folder: Path, rows: int) -> Path:
    with (folder / "prompts.jsonl").open("w") as file:
        for number in range(rows):
            file.write(json.dumps({"id": f"r{number}", "prompt": f"Question {number}?"}) + "\n")
    path = folder / "run.toml"
    path.write_text(
        """
        [model]
        path = "Qwen/Qwen3.6-27B"
        [servers]
        base_port = 32000
        stagger_s = 0.0
        [servers.flags]
        reasoning-parser = "qwen3"
        max-running-requests = 32
        disable-radix-cache = true
        [servers.mtp]
        enabled = true
        [job]
        prompts = ["prompts.jsonl"]
        output = "out"
        shard_size = 500
        [sampling]
        max_tokens = 1024
        thinking = false
        [simulation]
        gpus = 3
        startup_s = 0.5
        output_tokens = 30
        """
    )
    return path


def test_a_small_job_runs_to_its_end_and_exports(tmp_path: Path) -> None:
    path = run_file(tmp_path, 60)
    ran = genmon("--batch", path)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "SIMULATED" in ran.stdout
    output = tmp_path / "out"
    assert genmon("verify", output).returncode == 0
    assert servers_of(output) == []
    assert genmon("export", output, "-o", tmp_path / "rows.jsonl").returncode == 0
    assert len((tmp_path / "rows.jsonl").read_text().splitlines()) == 60
    assert genmon("export", output, "--format", "parquet", "-o", tmp_path / "rows.parquet").returncode == 0


def test_a_wrong_key_is_one_sentence_with_file_line_and_the_right_key(tmp_path: Path) -> None:
    path = run_file(tmp_path, 1)
    path.write_text(path.read_text().replace("shard_size", "shard_sise"))
    ran = genmon("--batch", path)
    assert ran.returncode == 2
    assert "line 16" in ran.stderr
    assert "did you mean shard_size?" in ran.stderr
    assert "Traceback" not in ran.stderr


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_fifty_kills_lose_and_double_nothing(tmp_path: Path) -> None:
    """Engine, servers, and both together are killed at random instants until the job is done all the same."""
    path, output, chance = run_file(tmp_path, 5000), tmp_path / "out", random.Random(7)
    kills = 0
    while kills < 50:
        engine = subprocess.Popen([*GENMON, "--batch", str(path)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        begun = time.monotonic()
        wait_s = 1.5 + chance.random() * 3
        while engine.poll() is None and time.monotonic() - begun < wait_s:
            time.sleep(0.02)
        if engine.poll() is not None:
            break
        what = chance.choice(["engine", "server", "both"])
        if what != "engine":
            for process in servers_of(output)[: chance.randint(1, 3)]:
                process.send_signal(signal.SIGKILL)
            kills += 1
        if what != "server":
            engine.kill()
            kills += 1
        else:
            time.sleep(chance.random())
            engine.kill()
            kills += 1
        engine.wait()
    assert genmon("--batch", path).returncode == 0
    report = json.loads(genmon("verify", "--json", output).stdout)
    assert (report["done"], report["missing"], report["doubled"], report["torn"]) == (5000, 0, 0, 0)
    assert servers_of(output) == []


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_the_log_of_a_run_agrees_with_its_shards_its_sidecars_and_the_meter(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    path, output = run_file(tmp_path, 1000), tmp_path / "out"
    ran = genmon("--batch", "--json", path)
    assert ran.returncode == 0, ran.stderr
    query = (
        "SELECT row_id, launch, answer_class, finish_reason, prompt_tokens, completion_tokens, latency_s FROM requests"
    )
    asked = genmon("sql", f"{query} WHERE outcome = 'done'", "--json")
    logged = [json.loads(line) for line in asked.stdout.splitlines()]
    about = [json.loads(line) for each in (output / "sidecar").iterdir() for line in each.read_text().splitlines()]
    fields = ("launch", "answer_class", "finish_reason", "prompt_tokens", "completion_tokens", "latency_s")
    assert len(logged) == 1000
    assert {each["row_id"]: [each[field] for field in fields] for each in logged} == {
        each["id"]: [each[field] for field in fields] for each in about
    }
    shards = [json.loads(line) for each in (output / "shards").iterdir() for line in each.read_text().splitlines()]
    assert sorted(each["id"] for each in shards) == sorted(each["row_id"] for each in logged)
    (run,) = map(json.loads, genmon("runs", "--json").stdout.splitlines())
    assert (run["state"], run["rows_done"], run["simulated"]) == ("finished", 1000, True)
    assert run["completion_tokens"] == sum(each["completion_tokens"] for each in about)
    counters: dict[str, list[float]] = {}
    for line in ran.stdout.splitlines():
        for gpu in json.loads(line).get("gpus", []):
            counters.setdefault(gpu["uuid"], []).append(gpu["energy_j"])
    metered_j = sum(max(each) - min(each) for each in counters.values())
    assert run["energy_kwh"] * 3.6e6 == pytest.approx(metered_j, rel=0.001)
