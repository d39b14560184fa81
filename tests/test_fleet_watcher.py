"""The watcher that leads a server's session: exit codes, SIGTERM, leavings, the lease."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from genmon.fleet import watcher
from tests.fleet import session, until

Start = Callable[..., subprocess.Popen[bytes]]
PYTHON = (sys.executable, "-I", "-S", "-c")
SLEEPER = "import time; time.sleep(600)"
PARENT = f"""
import signal, subprocess, sys, time
child = subprocess.Popen([sys.executable, "-I", "-S", "-c", {SLEEPER!r}], env={{}})
def term(*_): print("asked", flush=True); sys.exit(3)
if "deaf" in sys.argv: signal.signal(signal.SIGTERM, signal.SIG_IGN)
else: signal.signal(signal.SIGTERM, term)
print("up", flush=True)
if "leave" in sys.argv: sys.exit(5)
time.sleep(600)
"""


@pytest.fixture
def lease(tmp_path: Path) -> Path:
    path = tmp_path / "lease"
    path.touch()
    return path


@pytest.fixture
def start(lease: Path, tmp_path: Path) -> Iterator[Start]:
    """Start a command behind a watcher; its output goes to tmp_path/log."""
    started: list[subprocess.Popen[bytes]] = []

    def begin(*command: str, ttl_s: float = 60.0) -> subprocess.Popen[bytes]:
        words = [sys.executable, "-I", "-S", watcher.__file__, str(lease), str(ttl_s), "--", *command]
        with (tmp_path / "log").open("wb") as log:
            started.append(subprocess.Popen(words, stdout=log, stderr=log, start_new_session=True))
        return started[-1]

    yield begin
    for process in started:
        for pid in session(process.pid):
            os.kill(pid, signal.SIGKILL)
        process.wait(10)


@pytest.mark.parametrize(
    ("code", "exits"),
    [("raise SystemExit(0)", 0), ("raise SystemExit(2)", 2), ("import os; os.kill(os.getpid(), 9)", 137)],
)
def test_it_exits_as_the_server_did(start: Start, code: str, exits: int) -> None:
    assert start(*PYTHON, code).wait(10) == exits


def test_a_command_that_is_not_there_is_told(start: Start, tmp_path: Path) -> None:
    assert start("/nowhere/python").wait(10) == 127
    assert (tmp_path / "log").read_text() == "genmon: /nowhere/python cannot be started: No such file or directory\n"


def test_sigterm_goes_to_the_server_and_what_it_leaves_is_ended(start: Start, tmp_path: Path) -> None:
    process = start(*PYTHON, PARENT)
    until(lambda: "up" in (tmp_path / "log").read_text(), "up")
    assert len(session(process.pid)) == 3
    process.terminate()
    assert process.wait(10) == 3
    assert (tmp_path / "log").read_text().split() == ["up", "asked"]
    until(lambda: not session(process.pid), "nothing left")


def test_what_a_server_leaves_is_ended_without_an_engine(start: Start) -> None:
    process = start(*PYTHON, PARENT, "leave")
    assert process.wait(10) == 5
    until(lambda: not session(process.pid), "nothing left")


def test_a_stale_lease_ends_the_whole_session(start: Start, tmp_path: Path) -> None:
    process = start(*PYTHON, PARENT, ttl_s=0.9)
    until(lambda: "up" in (tmp_path / "log").read_text(), "up")
    assert process.wait(10) == 3 or process.returncode == -signal.SIGKILL
    until(lambda: not session(process.pid), "nothing left")
    assert "the engine has not been heard of for 0.9 s" in (tmp_path / "log").read_text()


def test_a_lease_is_judged_by_its_changes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now = 0.0
    monkeypatch.setattr("genmon.fleet.watcher.time.monotonic", lambda: now)
    path = tmp_path / "lease"
    path.touch()
    os.utime(path, (1.0, 1.0))  # a clock that was set: the file is decades old
    lease = watcher.Lease(str(path), 180.0)
    assert not lease.stale()
    now = 179.0
    assert not lease.stale()
    os.utime(path, (2.0, 2.0))
    assert not lease.stale()
    now = 179.0 + 181.0
    assert lease.stale()
    os.utime(path, (3.0, 3.0))
    assert not lease.stale()
    path.unlink()
    now += watcher.GONE_S - 1
    assert not lease.stale()  # the engine may make it again
    now += 2
    assert lease.stale()


@pytest.mark.slow
def test_it_costs_next_to_nothing(start: Start, tmp_path: Path) -> None:
    process = start(*PYTHON, PARENT)
    until(lambda: "up" in (tmp_path / "log").read_text(), "up")

    def ticks() -> int:
        fields = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()
        return int(fields[11]) + int(fields[12])

    before = ticks()
    time.sleep(1.2)
    assert ticks() - before <= 2  # of 100 a second
    pages = int(Path(f"/proc/{process.pid}/statm").read_text().split()[1])
    assert pages * os.sysconf("SC_PAGE_SIZE") < 24 << 20


@pytest.mark.slow
def test_a_renewed_lease_ends_nothing(start: Start, lease: Path, tmp_path: Path) -> None:
    process = start(*PYTHON, PARENT, ttl_s=1.5)
    until(lambda: "up" in (tmp_path / "log").read_text(), "up")
    for second in range(20):  # whatever the system's clock says
        os.utime(lease, (second, second))
        time.sleep(0.2)
    assert process.poll() is None
