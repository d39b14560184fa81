"""The dashboard in a real terminal, on a real engine: attach, toggle MTP, detach, SIGHUP, attach again, stop."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

pytestmark = pytest.mark.slow
_ESCAPES = re.compile(r"\x1b(\[[0-?]*[ -/]*[@-~]|\][^\x07]*\x07|[()][A-Z0-9]|[=>78])")
ALTERNATE_OFF, MOUSE_OFF = "\x1b[?1049l", "\x1b[?1000l"


class Terminal:
    """genmon in a pseudo-terminal of 120×36."""

    def __init__(self, state_home: Path, *arguments: str | Path, term: str = "xterm-256color") -> None:
        self.master, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 36, 120, 0, 0))
        environment = {**os.environ, "XDG_STATE_HOME": str(state_home), "TERM": term, "COLORTERM": ""}
        command = [sys.executable, "-m", "genmon", *map(str, arguments)]
        self.process = subprocess.Popen(
            command, stdin=slave, stdout=slave, stderr=slave, env=environment, start_new_session=True
        )
        os.close(slave)
        self.raw = ""
        self._seen = 0

    def read(self, patience_s: float = 0.2) -> None:
        ready, _, _ = select.select([self.master], [], [], patience_s)
        if ready:
            try:
                self.raw += os.read(self.master, 1 << 16).decode("utf-8", "replace")
            except OSError:
                return  # the other end is closed

    def wait_for(self, words: str, within_s: float = 60.0) -> None:
        """Wait for words on the screen, written after those waited for before."""
        deadline = time.monotonic() + within_s
        while True:
            text = _ESCAPES.sub("", self.raw[self._seen :])
            if words in text:
                self._seen = len(self.raw)
                return
            assert time.monotonic() < deadline, f"{words!r} did not come; the end was {text[-2000:]!r}"
            self.read()

    def press(self, keys: str) -> None:
        os.write(self.master, keys.encode())

    def end(self, within_s: float = 20.0) -> int:
        """Wait until it has ended; the terminal must be as it was."""
        deadline = time.monotonic() + within_s
        while self.process.poll() is None:
            assert time.monotonic() < deadline, "it did not end"
            self.read()
        self.read()
        os.close(self.master)
        assert ALTERNATE_OFF in self.raw
        assert MOUSE_OFF in self.raw
        return self.process.returncode


Open = Callable[..., Terminal]


@pytest.fixture
def opened(tmp_path: Path) -> Iterator[Open]:
    """Opens terminals; whatever a failed test leaves running is ended: they, and the engine."""
    terminals: list[Terminal] = []

    def open_one(state_home: Path, *arguments: str | Path) -> Terminal:
        terminals.append(Terminal(state_home, *arguments))
        return terminals[-1]

    yield open_one
    for terminal in terminals:
        terminal.process.kill()
        terminal.process.wait()
    address = tmp_path / "job" / "engine.json"
    if address.exists():
        os.kill(json.loads(address.read_text())["pid"], signal.SIGTERM)
        os.kill(json.loads(address.read_text())["pid"], signal.SIGTERM)


@pytest.mark.timeout(240)
def test_a_run_seen_toggled_left_hung_up_found_again_and_stopped(tmp_path: Path, opened: Open) -> None:
    job = tmp_path / "job"
    first = opened(tmp_path, "--demo", "--output", job, "--num-samples", "20000")
    first.wait_for("4/4 ready")
    engine = psutil.Process(json.loads((job / "engine.json").read_text())["pid"])
    assert engine.pid != first.process.pid
    first.press("m")
    first.wait_for("Restart s0")
    first.wait_for("speculative-algorithm NEXTN")
    first.press("y")
    first.wait_for("MTP off: done", within_s=90)
    first.wait_for("MTP on 3")
    first.press("d")
    assert first.end() == 0
    assert engine.is_running()

    second = opened(tmp_path, "attach", job)
    second.wait_for("MTP on 3")
    second.process.send_signal(signal.SIGHUP)
    assert second.end() == 0
    assert engine.is_running()

    gone = opened(tmp_path, "attach", job)
    gone.wait_for("MTP on 3")
    os.close(gone.master)  # the terminal is closed, and no SIGHUP comes: this one has no controlling terminal
    gone.process.wait(timeout=20)
    assert engine.is_running()

    third = opened(tmp_path, "attach")
    third.wait_for("4/4 ready")
    third.press("q")
    third.wait_for("stop now")
    servers = engine.children(recursive=True)
    third.press("k")
    third.wait_for("■ stopped")
    third.press("q")
    assert third.end() == 0
    psutil.wait_procs([engine], timeout=30)
    _, left = psutil.wait_procs(servers, timeout=30)
    assert not left
    rows = [json.loads(line) for path in (job / "shards").glob("*.jsonl") for line in path.read_text().splitlines()]
    assert rows
    assert len({row["id"] for row in rows}) == len(rows)


def test_a_dumb_terminal_gets_the_batch_view_and_is_told_why(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "genmon", "--demo", "--output", str(tmp_path / "job"), "--num-samples", "8"],
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
        env={**os.environ, "TERM": "dumb"},
    )
    assert done.returncode == 0
    assert "note: no dashboard" in done.stderr
    assert "8/8 rows" in done.stdout
