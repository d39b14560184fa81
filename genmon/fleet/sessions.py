"""Processes by session, from /proc: who is alive, who bears which mark, and an end that is certain.

A process is known by its number and its start in clock ticks since boot. That pair never comes twice in one boot and
does not move when the system clock is set.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from msgspec import Struct

END_WAIT_S = 30.0
"""A process that is still there so long after SIGKILL hangs in a driver."""
_LOOK_AGAIN_S = 0.03


class Process(Struct, frozen=True):
    """One process of this boot."""

    pid: int
    started_ticks: int
    session: int


def look(pid: int, *, zombies: bool = False) -> Process | None:
    """The process with this number; None when there is none, or only a zombie and none is wanted."""
    try:
        # man 5 proc: pid (name) state ppid pgrp session …, starttime is field 22. The name may hold anything.
        fields = Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()
    except OSError:
        return None
    if fields[0] in "ZX" and not zombies:
        return None
    return Process(pid, int(fields[19]), int(fields[3]))


def living() -> list[Process]:
    """All processes that are not zombies."""
    with os.scandir("/proc") as entries:
        found = [look(int(entry.name)) for entry in entries if entry.name.isdigit()]
    return [process for process in found if process is not None]


def bears(pid: int, variable: str, value: str) -> bool:
    """Whether a process was started with an environment variable of this value.

    A process that sets its title may have overwritten its environment: SGLang's scheduler and detokenizer have.
    """
    try:
        environment = Path(f"/proc/{pid}/environ").read_bytes()
    except OSError:
        return False
    return f"{variable}={value}".encode() in environment.split(b"\0")


def end(find: Callable[[], list[Process]], wait_s: float = END_WAIT_S) -> list[Process]:
    """SIGKILL all that `find` finds until it finds nothing; what is left after `wait_s` seconds. Blocks."""
    deadline = time.monotonic() + wait_s
    while found := find():
        for process in found:
            if look(process.pid) == process:
                with suppress(OSError):  # it ended by itself; or is not ours to end, and is reported
                    os.kill(process.pid, signal.SIGKILL)
        if time.monotonic() > deadline:
            return found
        time.sleep(_LOOK_AGAIN_S)
    return []


def boot_id() -> str:
    """This boot of this machine."""
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
