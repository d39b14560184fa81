"""A view's end of the wire: `SocketLink`, a `Link` over the engine's Unix socket that connects again by itself."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections import deque
from itertools import count
from pathlib import Path
from types import TracebackType
from typing import Self

import msgspec

from genmon import __version__
from genmon.commands import Command, Plan
from genmon.errors import Refused, StartError
from genmon.history import History
from genmon.state import RunPhase, State
from genmon.wire.address import find
from genmon.wire.link import LogLines
from genmon.wire.messages import (
    WIRE,
    Ask,
    EngineHello,
    Follow,
    FrameReader,
    FrameWriter,
    FromEngine,
    FromView,
    Log,
    Past,
    Reply,
    Snapshot,
    ViewHello,
)

_AGAIN_S = 1.0
_ANSWER_S = 10.0
_HELLO_S = 5.0
_READ_B = 64 << 10
_LOG_KEPT = 1000
_ENDED = frozenset({RunPhase.FINISHED, RunPhase.STOPPED, RunPhase.FAILED})


class SocketLink:
    """A `Link` to the engine of a job directory. Use with `async with`."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.state: State | None = None
        self.connected = False
        self.trouble: str | None = None
        self.history = History()
        self.arrived = asyncio.Event()
        self._log: deque[LogLines] = deque(maxlen=_LOG_KEPT)
        self._asked: dict[int, asyncio.Future[Reply]] = {}
        self._numbers = count(1)
        self._followed: str | None = None
        self._writer: asyncio.StreamWriter | None = None
        self._frames = FrameWriter(compress=False)
        self._task: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        """Connect.

        Raises:
            StartError: no engine runs this job, or it speaks another wire.
        """
        self._task = asyncio.create_task(self._stay(await self._connect()))
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])
        await self._hang_up()

    @property
    def ended(self) -> bool:
        """Whether the run has ended: nothing more will come."""
        return self.state is not None and self.state.phase in _ENDED

    async def first(self) -> State:
        """The first state. Raises `StartError` if the engine hangs up before it, or sends none in time."""
        try:
            async with asyncio.timeout(_ANSWER_S):
                while self.state is None:
                    await self.arrived.wait()
        except TimeoutError:
            raise StartError(f"The engine of {self.directory} answers nothing.") from None
        return self.state

    def take_log(self) -> tuple[LogLines, ...]:
        """The log lines that came since the last call."""
        taken = tuple(self._log)
        self._log.clear()
        return taken

    async def plan(self, command: Command) -> Plan:
        """Ask what a command would do. Raises `Refused`."""
        reply = await self._ask(command, only_plan=True)
        return reply.plan or Plan(sentence=reply.sentence)

    async def do(self, command: Command) -> str:
        """Give a command; one sentence says what happens now. Raises `Refused`."""
        return (await self._ask(command, only_plan=False)).sentence

    async def follow(self, server: str | None) -> None:
        """Receive a server's log from its last lines on; None ends that."""
        self._followed = server
        self._log.clear()
        self._send(Follow(server))

    async def _ask(self, command: Command, *, only_plan: bool) -> Reply:
        if not self.connected:
            raise Refused(self.trouble or "The engine is not connected.")
        number = next(self._numbers)
        answer: asyncio.Future[Reply] = asyncio.get_running_loop().create_future()
        self._asked[number] = answer
        try:
            self._send(Ask(id=number, command=command, only_plan=only_plan))
            reply = await asyncio.wait_for(answer, _ANSWER_S)
        except TimeoutError:
            raise Refused("The engine did not answer; it may still obey.") from None
        finally:
            self._asked.pop(number, None)
        if reply.refused is not None:
            raise Refused(reply.refused)
        return reply

    def _send(self, message: FromView) -> None:
        if self._writer is not None and not self._writer.is_closing():
            self._writer.write(self._frames.pack(message))

    async def _connect(self) -> asyncio.StreamReader:
        address = await asyncio.to_thread(find, self.directory)
        if address is None:
            raise StartError(f"No engine runs {self.directory}: start it with genmon RUN.toml.")
        try:
            async with asyncio.timeout(_HELLO_S):
                reader, writer = await asyncio.open_unix_connection(address.socket)
                writer.write(msgspec.json.encode(ViewHello(wire=WIRE, genmon=__version__, by=_who())) + b"\n")
                hello = msgspec.json.decode(await reader.readline(), type=EngineHello)
        except (TimeoutError, OSError, ValueError, msgspec.DecodeError):
            raise StartError(f"The engine of {self.directory} (process {address.pid}) does not answer.") from None
        self._writer, self._frames = writer, FrameWriter(compress=False)
        if hello.refused is not None:
            await self._hang_up()
            raise StartError(hello.refused)
        self.connected, self.trouble = True, None
        if self._followed is not None:
            self._send(Follow(self._followed))
        return reader

    async def _stay(self, reader: asyncio.StreamReader) -> None:
        """Listen; when the engine is gone, keep its last picture and look for it until it is back."""
        while True:
            await self._listen(reader)
            await self._hang_up()
            while not self.connected:
                await asyncio.sleep(_AGAIN_S)
                with contextlib.suppress(StartError):
                    reader = await self._connect()

    async def _hang_up(self) -> None:
        if self._writer is None:
            return
        writer, self._writer = self._writer, None
        self.connected = False
        self.trouble = "The run has ended." if self.ended else "The engine is gone; looking for it."
        for answer in self._asked.values():
            if not answer.done():
                answer.set_result(Reply(id=0, refused=self.trouble))
        self.arrived.set()
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()

    async def _listen(self, reader: asyncio.StreamReader) -> None:
        frames = FrameReader(compressed=True)
        decoder = msgspec.msgpack.Decoder(FromEngine)
        with contextlib.suppress(OSError, ValueError, msgspec.DecodeError):
            while data := await reader.read(_READ_B):
                for body in frames.feed(data):
                    self._take(decoder.decode(body))

    def _take(self, message: FromEngine) -> None:
        match message:
            case Snapshot(state):
                self.state = state
                self.history.add(state)
                self.arrived.set()
            case Past(tracks):
                self.history = History(tracks)
            case Log(lines):
                self._log.append(lines)
                self.arrived.set()
            case Reply() as reply:
                answer = self._asked.get(reply.id)
                if answer is not None and not answer.done():
                    answer.set_result(reply)


def _who() -> str:
    """Who looks, in words: user, terminal."""
    user = os.environ.get("USER") or f"user {os.getuid()}"
    return f"{user} at {os.ttyname(0)}" if os.isatty(0) else user
