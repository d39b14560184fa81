"""An engine in a session of its own, which outlives the terminal that started it."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import msgspec

from genmon.config.schema import RunConfig
from genmon.errors import StartError
from genmon.wire.address import find

_LOOK_S = 0.1
_PATIENCE_S = 5.0
LOG = "engine.log"
"""What a detached engine would have said on a terminal, in the job directory."""


def start(config: RunConfig, *, retry_failed: bool, slow: Callable[[], None]) -> None:
    """Start the engine of a job, unless one runs it already; return when views can connect.

    `slow` is called once if that takes more than about five seconds: opening a job of a million rows does.

    Raises:
        StartError: it ended before it could be reached; the sentence is its own last one.
    """
    directory = config.output
    if find(directory) is not None:
        return
    directory.mkdir(parents=True, exist_ok=True)
    with (directory / LOG).open("ab") as log:
        begins_at = log.tell()
        command = [sys.executable, "-m", "genmon", "engine", str(directory)]
        child = subprocess.Popen(
            [*command, "--retry-failed"] if retry_failed else command,
            stdin=subprocess.PIPE,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    assert child.stdin is not None
    with child.stdin as stdin:
        stdin.write(msgspec.json.encode(config))
    since, told = time.monotonic(), False
    while find(directory) is None:
        if child.poll() is not None:
            raise StartError(_last_words(directory / LOG, begins_at))
        if not told and time.monotonic() - since > _PATIENCE_S:
            slow()
            told = True
        time.sleep(_LOOK_S)
    # The engine is not waited for on purpose: it outlives this process, and init reaps it.
    child.returncode = 0


def _last_words(log: Path, begins_at: int) -> str:
    with log.open("rb") as file:
        file.seek(begins_at)
        lines = file.read().decode("utf-8", "replace").strip().splitlines()
    if not lines:
        return f"The engine ended without a word; see {log}."
    return lines[-1].removeprefix("genmon: ")
