"""Process groups of servers: a ledger on disk, a lease, and the end of what a killed engine left behind.

Each launch is one session, led by its watcher. The ledger names the launch before there is a process, so that an
engine that starts after a kill -9 finds every one. Each engine has a lease of its own: a launch that no ledger knows
ends because its lease is gone.
"""

from __future__ import annotations

import asyncio
import os
from contextlib import suppress
from functools import partial
from pathlib import Path
from threading import Lock
from uuid import uuid4

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from genmon.fleet import sessions
from genmon.fleet.sessions import Process

LEASE_TTL_S = 180.0
_TOUCH_S = 5.0
MARK = "GENMON_LAUNCH"
"""Environment variable that marks every process of a launch with the launch's id."""


class Group(Struct, frozen=True, kw_only=True):
    """One launch: its id and command, and its processes as they were last seen. No leader yet: about to begin."""

    server: str
    launch: str
    boot: str
    argv: tuple[str, ...]
    leader: Process | None = None
    members: tuple[Process, ...] = ()


class Groups:
    """The launches of one engine."""

    def __init__(self, directory: Path) -> None:
        """`directory` is the job directory: `servers.json` and the lease live there."""
        self._directory = directory
        self._ledger = directory / "servers.json"
        self.lease = directory / f"lease-{uuid4().hex[:12]}"
        self._groups: dict[str, Group] = {}
        self._lock = Lock()
        self.touch()

    def touch(self) -> None:
        """Say that the engine is alive."""
        with suppress(OSError):  # for a moment, on a network disk; the watchers have patience
            self.lease.touch()

    async def keep_alive(self) -> None:
        """Touch the lease every 5 s until cancelled, then take it away. Trouble with the disk does not end it."""
        try:
            while True:
                await asyncio.to_thread(self.touch)
                await asyncio.sleep(_TOUCH_S)
        finally:
            with suppress(OSError):
                self.lease.unlink()

    def begin(self, server: str, argv: tuple[str, ...]) -> str:
        """Note a launch that is about to begin, on disk; its id. `argv` must hold no secrets."""
        self.touch()
        launch = str(uuid4())
        self._put(Group(server=server, launch=launch, boot=sessions.boot_id(), argv=argv))
        return launch

    def enter(self, launch: str, leader: int) -> None:
        """Note the leader of a launch that has just begun."""
        self._put(replace(self._groups[launch], leader=sessions.look(leader, zombies=True)))

    def remember(self, launch: str) -> None:
        """Note all processes of a launch: some of SGLang's lose their mark. Blocks some milliseconds."""
        group = self._groups.get(launch)
        if group is not None:
            self._put(replace(group, members=tuple(_processes(group, trusted=True))))

    def processes(self, launch: str) -> list[int]:
        """Numbers of a launch's living processes. Blocks some milliseconds."""
        group = self._groups.get(launch)
        return [process.pid for process in _processes(group, trusted=True)] if group else []

    def end(self, launch: str) -> list[int]:
        """SIGKILL a launch and wait until it is gone; the numbers of processes that would not go. Blocks."""
        group = self._groups.get(launch)
        if group is None:
            return []
        left = sessions.end(partial(_processes, group, trusted=True))
        if not left:
            with self._lock:
                self._groups.pop(launch, None)
                self._write()
        return [process.pid for process in left]

    def end_leftovers(self) -> list[str]:
        """End the launches that an earlier engine of this job left running; a sentence for each. Blocks."""
        told: list[str] = []
        for group in self._read(told):
            found = _processes(group)
            if not found:
                continue
            left = sessions.end(partial(_processes, group))
            if left:
                self._groups[group.launch] = group
                told.append(f"{group.server}, left by an earlier run, cannot be ended (process {left[0].pid})")
            else:
                told.append(f"ended {group.server}, left by an earlier run (process {found[0].pid})")
        with self._lock:
            self._write()
        for lease in self._directory.glob("lease-*"):
            if lease != self.lease:
                with suppress(OSError):
                    lease.unlink()
        return told

    def _read(self, told: list[str]) -> list[Group]:
        try:
            return msgspec.json.decode(self._ledger.read_bytes(), type=list[Group])
        except FileNotFoundError:
            return []
        except (OSError, msgspec.MsgspecError, UnicodeDecodeError) as error:
            with suppress(OSError):
                self._ledger.replace(self._ledger.with_name("servers.json.unreadable"))
            told.append(f"servers.json is unreadable ({error}): servers of an earlier run end by their lease in 20 s")
            return []

    def _put(self, group: Group) -> None:
        with self._lock:
            self._groups[group.launch] = group
            self._write()

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


def _processes(group: Group, *, trusted: bool = False) -> list[Process]:
    """The living processes of a launch, and only of it.

    A session is one launch's as a whole, since its number is not given away while it has members. One certain member
    is proof for all: the leader or another one of the ledger, or one that bears the mark. A `trusted` group was
    begun by this very process: its session needs no proof but that its leader's number is not another's.
    """
    if group.boot != sessions.boot_id():
        return []
    alive = [process for process in sessions.living() if process.session]  # kernel threads have session 0
    known, leader = {*group.members, group.leader}, group.leader
    ours = {process.session for process in alive if process in known}
    if trusted and leader is not None and not any(each.pid == leader.pid and each != leader for each in alive):
        ours.add(leader.pid)
    for process in alive:
        if process.session not in ours and sessions.bears(process.pid, MARK, group.launch):
            ours.add(process.session)
    return [process for process in alive if process.session in ours]
