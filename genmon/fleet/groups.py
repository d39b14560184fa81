"""Process groups of servers: a ledger on disk, a lease, and the end of what a killed engine left behind.

Each server is one session, led by its watcher. The ledger names every session before it can hold a GPU, so that
an engine that starts after a kill -9 finds them all.
"""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path

import msgspec
import psutil
from msgspec import Struct

LEASE_TTL_S = 180.0
_TOUCH_S = 5.0
_END_WAIT_S = 30.0
MARK = "GENMON_LAUNCH"
"""Environment variable that marks every process of a launch with the launch's id."""


class Group(Struct, frozen=True):
    """One server's session: its leader by pid and creation time (seconds), and the mark of the launch."""

    server: str
    pid: int
    created: float
    mark: str
    boot: str


class Groups:
    """The sessions of one engine's servers."""

    def __init__(self, directory: Path) -> None:
        """`directory` is the job directory: `servers.json` and `lease` live there."""
        self._ledger = directory / "servers.json"
        self.lease = directory / "lease"
        self._groups: dict[str, Group] = {}
        self.touch()

    def touch(self) -> None:
        """Say that the engine is alive."""
        self.lease.touch()

    async def keep_alive(self) -> None:
        """Touch the lease every 5 s, until cancelled. A full disk does not hinder it."""
        while True:
            self.touch()
            await asyncio.sleep(_TOUCH_S)

    def enter(self, server: str, pid: int, mark: str) -> None:
        """Note a session that has just begun."""
        created = _created(pid)
        if created is not None:
            self._groups[server] = Group(server, pid, created, mark, _boot_id())
            self._write()

    def leave(self, server: str) -> None:
        """Forget a session that is gone."""
        if self._groups.pop(server, None) is not None:
            self._write()

    def end_leftovers(self) -> list[str]:
        """End the sessions that an earlier engine of this job left running; a sentence for each."""
        ended = []
        for group in self._read():
            members = _members(group)
            if members:
                _kill(members)
                ended.append(f"ended {group.server}, left by an earlier run (process {group.pid})")
        self._write()
        return ended

    def _read(self) -> list[Group]:
        try:
            return msgspec.json.decode(self._ledger.read_bytes(), type=list[Group])
        except (OSError, msgspec.MsgspecError):
            return []

    def _write(self) -> None:
        temporary = self._ledger.with_name("servers.json.new")
        try:
            with temporary.open("wb") as file:
                file.write(msgspec.json.encode(list(self._groups.values())))
                file.flush()
                os.fsync(file.fileno())
            temporary.replace(self._ledger)
        except OSError:
            return  # a full disk: the watcher's lease still ends what would be left


def end_session(leader: int) -> None:
    """SIGKILL every process of a session and wait until they are gone."""
    _kill([process for process in psutil.process_iter() if _session(process.pid) == leader])


def session_alive(leader: int) -> bool:
    """Whether any process of a session is left, zombies aside."""
    return any(_session(process.pid) == leader and _running(process) for process in psutil.process_iter())


def _members(group: Group) -> list[psutil.Process]:
    """Processes that are surely this group's: its leader by creation time, else only those that bear the mark."""
    if group.boot != _boot_id():
        return []
    created = _created(group.pid)
    if created is not None and abs(created - group.created) > 1.0:
        return []  # the number was given to another process
    surely = created is not None
    return [
        process
        for process in psutil.process_iter()
        if _session(process.pid) == group.pid and (surely or _bears(process, group.mark))
    ]


def _bears(process: psutil.Process, mark: str) -> bool:
    try:
        return process.environ().get(MARK) == mark or process.name().startswith("sglang")
    except psutil.Error:
        return False


def _kill(processes: list[psutil.Process]) -> None:
    for process in processes:
        _quietly(lambda process=process: process.send_signal(signal.SIGKILL))  # type: ignore[misc]
    deadline = time.monotonic() + _END_WAIT_S
    while any(_running(process) for process in processes) and time.monotonic() < deadline:
        time.sleep(0.02)


def _running(process: psutil.Process) -> bool:
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.Error:
        return False


def _quietly(act: Callable[[], None]) -> None:
    try:
        act()
    except psutil.Error:
        return  # it ended by itself


def _session(pid: int) -> int | None:
    try:
        return os.getsid(pid)
    except OSError:
        return None


def _created(pid: int) -> float | None:
    try:
        return psutil.Process(pid).create_time()
    except psutil.Error:
        return None


def _boot_id() -> str:
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
