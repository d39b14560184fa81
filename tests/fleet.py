"""What the fleet's tests share: specs of stub servers, waiting for a state, and what is left of a session."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import sys
import time
import urllib.request
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

from genmon.fleet.groups import Groups
from genmon.fleet.server import Server, ServerSpec
from genmon.state import ServerPhase, ServerState

STUB = (sys.executable, "-I", "-S", str(Path(__file__).with_name("fleet_stub.py")))
DEADLINE_S = 15.0


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def stub(folder: Path, *flags: str, name: str = "s0", **more: object) -> ServerSpec:
    """A spec of a stub server with these flags."""
    fields: dict[str, object] = {
        "host": "here",
        "name": name,
        "gpu_index": None,
        "gpu_uuid": None,
        "command": (*STUB, *flags),
        "env": {},
        "port": free_port(),
        "log_path": folder / "logs" / f"{name}.log",
        "model_name": "m",
        "api_key": None,
        "start_timeout_s": 10.0,
        "hang_after_s": 60.0,
        "max_restarts": 3,
        "cap_requested": None,
    }
    return ServerSpec(**(fields | more))  # type: ignore[arg-type]


class Supervised:
    """A server with all that it told, and what is asked of its process."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self.told: list[ServerState] = []
        server.on_change = self.told.append

    @property
    def phases(self) -> list[ServerPhase]:
        return [state.phase for state in self.told]

    @property
    def reasons(self) -> list[str]:
        return [state.reason for state in self.told if state.reason]

    async def until(
        self, condition: ServerPhase | Callable[[ServerState], bool], deadline_s: float = DEADLINE_S
    ) -> ServerState:
        """The first state that is so."""
        deadline = time.monotonic() + deadline_s
        while True:
            state = self.server.state()
            if state.phase is condition if isinstance(condition, ServerPhase) else condition(state):
                return state
            assert time.monotonic() < deadline, f"not within {deadline_s} s: {state}, after {self.phases}"
            await asyncio.sleep(0.01)

    async def ready(self, launch: int) -> ServerState:
        """Ready, in its launch of this number."""
        return await self.until(lambda state: state.phase is ServerPhase.READY and state.launches == launch)

    async def polled(self) -> ServerState:
        """Ready, and polled since now."""
        now = time.time()
        return await self.until(lambda state: (state.taken_at or 0) > now)

    async def order(self, **orders: object) -> None:
        """Tell the stub how to behave from now on."""
        await asyncio.to_thread(post, f"{self.server.state().url}/stub", orders)

    async def env(self) -> dict[str, str]:
        told = await asyncio.to_thread(get, self.server.state().url + "/env")
        assert isinstance(told, dict)
        return told


@asynccontextmanager
async def supervised(
    spec: ServerSpec, groups: Groups, memory_free: Callable[[], Awaitable[bool]] | None = None
) -> AsyncIterator[Supervised]:
    """A started server for the length of a block; nothing of it is left afterwards."""
    server = Server(spec, groups, memory_free=memory_free)
    watched = Supervised(server)
    await server.start()
    try:
        yield watched
    finally:
        await server.stop(0.0)


def post(url: str, body: object) -> None:
    request = urllib.request.Request(url, json.dumps(body).encode(), {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=10) as response:
        response.read()


def get(url: str) -> object:
    with urllib.request.urlopen(url, timeout=10) as response:
        return json.loads(response.read())


def session(leader: int | None) -> dict[int, str]:
    """Living processes of a session, by number: their command lines."""
    assert leader is not None
    found = {}
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            state = (entry / "stat").read_text().rpartition(")")[2].split()
            if int(state[3]) == leader and state[0] not in "ZX":
                found[int(entry.name)] = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode()
        except OSError:
            continue
    return found


def until(condition: Callable[[], object], what: str, deadline_s: float = DEADLINE_S) -> None:
    deadline = time.monotonic() + deadline_s
    while not condition():
        assert time.monotonic() < deadline, f"not within {deadline_s} s: {what}"
        time.sleep(0.02)


def stub_pid(leader: int | None) -> int:
    """The server itself in a session that its watcher leads."""
    return next(
        pid for pid, command in session(leader).items() if "fleet_stub.py" in command and "watcher.py" not in command
    )


def kill(pid: int | None, number: int) -> None:
    assert pid is not None
    os.kill(pid, number)
