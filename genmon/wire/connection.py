"""One view's connection, from the engine's end."""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

import msgspec

from genmon import __version__
from genmon.commands import Command, Plan
from genmon.errors import GenmonError
from genmon.state import State
from genmon.wire.follow import LogFollower
from genmon.wire.link import LogLines
from genmon.wire.messages import (
    HELLO_LINE_B,
    WIRE,
    Ask,
    EngineHello,
    Follow,
    FrameReader,
    FrameWriter,
    FromEngine,
    FromView,
    Log,
    Reply,
    Snapshot,
    ViewHello,
)

_FOLLOW_S = 0.5
_HELLO_S = 5.0
_LAST_BYTES_S = 1.0
_READ_B = 64 << 10
_BUFFER_B = 64 << 10
"""A view that does not read holds so much of the engine's memory, then misses states."""
_LOG_KEPT = 20
"""Batches of log lines that wait for a slow view; older ones are left out, and counted."""


class Served(Protocol):
    """What the wire needs of an engine."""

    state: State

    def plan(self, command: Command) -> Plan:
        """What a command would do. Raises `Refused`."""
        ...

    def command(self, command: Command, by: str = "") -> str:
        """Obey a command; one sentence says what happens now. Raises `Refused`."""
        ...


class Connection:
    """Sends one view the latest state, its replies and the log it follows; hands its commands to the engine."""

    def __init__(
        self,
        engine: Served,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        obeyed: Callable[[], None],
    ) -> None:
        """`obeyed` is called after each command, so that all views see at once what it did."""
        self._engine, self._reader, self._writer, self._obeyed = engine, reader, writer, obeyed
        self._outbox: deque[FromEngine] = deque()
        self._log: deque[LogLines] = deque()
        self._wake = asyncio.Event()
        self._frames = FrameWriter(compress=True)
        self._sent: State | None = None
        self._ending = False
        self._following: asyncio.Task[None] | None = None
        self._by = ""

    async def greet(self, directory: Path, pid: int) -> bool:
        """Exchange hellos; False when this view cannot be served (it has been told why)."""
        hello = EngineHello(
            wire=WIRE, genmon=__version__, pid=pid, run=self._engine.state.run, directory=str(directory)
        )
        try:
            line = await asyncio.wait_for(self._reader.readline(), _HELLO_S)
            view = msgspec.json.decode(line[:HELLO_LINE_B], type=ViewHello)
        except (TimeoutError, ValueError, OSError, msgspec.DecodeError):
            return False
        if view.wire != WIRE:
            refused = (
                f"This run's engine is genmon {__version__} and you look with genmon {view.genmon}, which speaks "
                f"another wire: use genmon {__version__} for it."
            )
            hello = msgspec.structs.replace(hello, refused=refused)
        self._by = view.by
        self._writer.write(msgspec.json.encode(hello) + b"\n")
        await self._writer.drain()
        return hello.refused is None

    async def talk(self, first: FromEngine) -> None:
        """Serve the view until it hangs up, or `goodbye` was said. Never raises for what a view does."""
        self._writer.transport.set_write_buffer_limits(high=_BUFFER_B)
        self._outbox.append(first)
        self._wake.set()
        tasks = {asyncio.create_task(self._send()), asyncio.create_task(self._hear())}
        try:
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                with contextlib.suppress(OSError, ValueError, msgspec.DecodeError):
                    task.result()
        finally:
            self._follow(None)
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)

    def show(self) -> None:
        """The engine's state has changed: send it when the view reads."""
        self._wake.set()

    def goodbye(self) -> None:
        """Send what is left, then hang up."""
        self._ending = True
        self._wake.set()

    async def hang_up(self) -> None:
        """Close; what was sent still leaves, unless the view does not read."""
        self._writer.close()
        try:
            await asyncio.wait_for(self._writer.wait_closed(), _LAST_BYTES_S)
        except (TimeoutError, OSError):
            self._writer.transport.abort()

    async def _send(self) -> None:
        while True:
            await self._wake.wait()
            self._wake.clear()
            ending, state = self._ending, self._engine.state
            messages = list(self._outbox)
            self._outbox.clear()
            messages += [Log(lines) for lines in self._log]
            self._log.clear()
            if state is not self._sent:
                messages.append(Snapshot(state))
                self._sent = state
            if messages:
                self._writer.write(b"".join(self._frames.pack(message) for message in messages))
                await self._writer.drain()
            if ending:
                return

    async def _hear(self) -> None:
        frames = FrameReader(compressed=False)
        decoder = msgspec.msgpack.Decoder(FromView)
        while data := await self._reader.read(_READ_B):
            for body in frames.feed(data):
                match decoder.decode(body):
                    case Ask() as ask:
                        self._outbox.append(self._answer(ask))
                        self._wake.set()
                        self._obeyed()
                    case Follow(server):
                        self._follow(server)

    def _answer(self, ask: Ask) -> Reply:
        try:
            if ask.only_plan:
                plan = self._engine.plan(ask.command)
                return Reply(id=ask.id, sentence=plan.sentence, plan=plan)
            return Reply(id=ask.id, sentence=self._engine.command(ask.command, self._by))
        except GenmonError as error:
            return Reply(id=ask.id, refused=str(error))

    def _follow(self, server: str | None) -> None:
        if self._following is not None:
            self._following.cancel()
            self._following = None
        self._log.clear()
        if server is not None:
            self._following = asyncio.create_task(self._read_log(server))

    async def _read_log(self, server: str) -> None:
        follower: LogFollower | None = None
        while True:
            paths = [s.log_path for s in self._engine.state.servers if s.name == server and s.log_path]
            if paths and (follower is None or str(follower.path) != paths[0]):
                follower = LogFollower(Path(paths[0]))
            if follower is not None:
                lines, skipped = await asyncio.to_thread(follower.read)
                if lines or skipped:
                    self._queue_log(LogLines(server=server, lines=lines, skipped=skipped))
            await asyncio.sleep(_FOLLOW_S)

    def _queue_log(self, lines: LogLines) -> None:
        self._log.append(lines)
        if len(self._log) > _LOG_KEPT:
            lost, next_ = self._log.popleft(), self._log.popleft()
            skipped = lost.skipped + len(lost.lines) + next_.skipped
            self._log.appendleft(msgspec.structs.replace(next_, skipped=skipped))
        self._wake.set()
