"""An engine of its own: started by one process, seen and commanded by others, ended by none of them but on purpose."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from genmon.commands import Drain, Pause
from genmon.state import RunPhase
from genmon.wire.client import SocketLink

pytestmark = pytest.mark.slow
GENMON = [sys.executable, "-m", "genmon"]


def genmon(*arguments: str | Path, state_home: Path) -> subprocess.CompletedProcess[str]:
    command = [*GENMON, *map(str, arguments)]
    environment = {**os.environ, "XDG_STATE_HOME": str(state_home)}
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False, env=environment)


def demo(tmp_path: Path, rows: int) -> subprocess.CompletedProcess[str]:
    return genmon("--demo", "-d", "--output", tmp_path / "job", "--num-samples", str(rows), state_home=tmp_path)


@pytest.mark.timeout(120)
def test_a_detached_run_survives_hangups_and_is_found_commanded_and_drained(tmp_path: Path) -> None:
    started = demo(tmp_path, 5000)
    assert started.returncode == 0, started.stderr
    told = json.loads(genmon("status", "--json", state_home=tmp_path).stdout)
    assert told["directory"] == str(tmp_path / "job")
    assert told["simulated"] is True
    pid = json.loads((tmp_path / "job" / "engine.json").read_text())["pid"]
    assert os.getsid(pid) == pid
    os.kill(pid, signal.SIGHUP)

    assert demo(tmp_path, 5000).returncode == 0
    assert json.loads((tmp_path / "job" / "engine.json").read_text())["pid"] == pid

    async def command() -> None:
        async with SocketLink(tmp_path / "job") as link:
            async with asyncio.timeout(60):
                while link.state is None or link.state.job.rows_done == 0:
                    link.arrived.clear()
                    await link.arrived.wait()
                await link.do(Pause())
                await link.do(Drain())
                while not link.ended:
                    link.arrived.clear()
                    await link.arrived.wait()
            assert link.state is not None
            assert link.state.phase is RunPhase.STOPPED

    asyncio.run(command())
    psutil.wait_procs([psutil.Process(pid)] if psutil.pid_exists(pid) else [], timeout=30)
    gone = genmon("status", tmp_path / "job", state_home=tmp_path)
    assert gone.returncode == 3
    assert "No engine runs" in gone.stderr


def test_an_engine_that_cannot_start_says_why_in_one_sentence(tmp_path: Path) -> None:
    run = tmp_path / "run.toml"
    run.write_text(
        f"""
        [model]
        path = "m"
        [job]
        prompts = ["nothing-*.jsonl"]
        output = "{tmp_path / "other"}"
        """
    )
    failed = genmon(run, "-d", state_home=tmp_path)
    assert failed.returncode in (2, 3)
    assert "nothing-*.jsonl matches no file" in failed.stderr.strip().splitlines()[-1]
    assert "Traceback" not in failed.stderr
