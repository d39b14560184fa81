"""Two hundred flag changes on a simulated box under load: toggles, bad sets, cancels, crashes and kill -9 meanwhile."""

from __future__ import annotations

import asyncio
import json
import os
import random
import signal
import subprocess
import sys
import time
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from genmon.commands import CancelChange, Command, Restart, Revert
from genmon.errors import Refused, StartError
from genmon.state import FlagChange, ServerPhase, State
from genmon.wire.client import SocketLink
from tests.test_demo import GENMON, genmon, servers_of

pytestmark = [pytest.mark.slow, pytest.mark.timeout(3000)]
CHANGES = int(os.environ.get("GENMON_CHANGES", "200"))
ROWS = 200_000
BAD: tuple[dict[str, str | bool], ...] = (
    {"mem-fraction-static": "0.99"},
    {"max-running-requests": "many"},
    {"context-length": "2"},
)
"""Out of memory, an argparse error, and a server that starts and refuses its smoke request."""
GOOD: tuple[dict[str, str | bool], ...] = ({"max-running-requests": "12"}, {"max-running-requests": "16"}, {})
RUN_FILE = """
[model]
path = "Qwen/Qwen3.6-27B"
[servers]
base_port = 36000
stagger_s = 0.0
[servers.flags]
reasoning-parser = "qwen3"
max-running-requests = 16
disable-radix-cache = true
[job]
prompts = ["prompts.jsonl"]
output = "out"
shard_size = 5000
[limits]
pause_above = 1.0
[simulation]
gpus = 4
startup_s = 0.4
output_tokens = 40
"""


class Box:
    """The run as its views see it, and what must hold at every look."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.folder, self.output, self.chance = folder, folder / "out", random.Random(seed)
        with (folder / "prompts.jsonl").open("w") as file:
            for number in range(ROWS):
                file.write(json.dumps({"id": f"r{number}", "prompt": f"Question {number}?"}) + "\n")
        (folder / "run.toml").write_text(RUN_FILE)
        self.given = self.refused = self.kills = self.bad = 0
        self.disturbed_at = 0.0
        """When a server was last killed, or the engine was started: then fewer may serve."""
        self.fewest = 4
        self.outcomes: list[str] = []
        self.bad_changes: set[int] = set()
        self.seen: dict[int, FlagChange] = {}

    def look(self, state: State) -> None:
        """Check the newest picture."""
        serving = sum(server.phase is ServerPhase.READY for server in state.servers)
        if any(server.phase in (ServerPhase.BACKOFF, ServerPhase.GIVEN_UP) for server in state.servers):
            own = {name for change in state.changes if change.ended_at is None for name in change.servers}
            if any(s.phase is ServerPhase.BACKOFF and s.name not in own for s in state.servers):
                self.disturbed_at = time.monotonic()
        if time.monotonic() - self.disturbed_at > 8.0 and len(state.servers) == 4:
            self.fewest = min(self.fewest, serving)
            assert serving >= 3, [(s.name, s.phase, s.reason) for s in state.servers]
        for change in state.changes:
            self.seen[change.id] = change
            if change.id in self.bad_changes and change.ended_at is not None and change.outcome is not None:
                assert change.rolled_back or "cancelled" in change.outcome, change
                assert not change.done, change

    def command(self, state: State) -> tuple[Command, bool]:
        """A command at random, and whether its flags cannot serve."""
        chance = self.chance
        under_way = [change for change in state.changes if change.ended_at is None]
        ended = [change for change in state.changes if change.ended_at is not None and change.done]
        busy = {server for change in under_way for server in change.servers}
        idle = [server.name for server in state.servers if server.name not in busy or chance.random() < 0.05]
        servers = tuple(chance.sample(idle, min(len(idle), chance.choice([1, 1, 1, 2, 4]))))
        draw = chance.random()
        if under_way and draw < 0.12:
            return CancelChange(chance.choice(under_way).id), False
        if ended and draw < 0.2:
            return Revert(chance.choice(ended).id), False
        if draw < 0.5:
            return Restart(servers=servers, mtp=chance.random() < 0.5), False
        if draw < 0.7:
            return Restart(servers=servers, set=chance.choice(BAD)), True
        return Restart(servers=servers, set=chance.choice(GOOD)), False

    def kill_a_server(self) -> None:
        """SIGKILL one server's process, whatever it is doing."""
        found = servers_of(self.output)
        if found:
            self.disturbed_at = time.monotonic()
            self.kills += 1
            self.chance.choice(found).send_signal(signal.SIGKILL)

    def engine(self, changes: int) -> None:
        """One engine from its start to its kill -9, given so many commands meanwhile."""
        with (self.folder / "engine.log").open("ab") as log:
            process = subprocess.Popen([*GENMON, "--batch", str(self.folder / "run.toml")], stdout=log, stderr=log)
        try:
            asyncio.run(self._command_through(process, changes))
            if not changes:
                process.send_signal(signal.SIGTERM)
                assert process.wait(timeout=120) == 130
        finally:
            process.kill()
            process.wait()

    async def _command_through(self, process: subprocess.Popen[bytes], changes: int) -> None:
        self.bad_changes.clear()
        self.disturbed_at = time.monotonic() + 10.0
        given = 0
        async with asyncio.timeout(900), AsyncExitStack() as stack:
            link = await self._connect(stack, process)
            while link.state is None or sum(s.phase is ServerPhase.READY for s in link.state.servers) < 4:
                await asyncio.sleep(0.1)
            while given < changes:
                pause_until = time.monotonic() + self.chance.random() * 2.0
                while time.monotonic() < pause_until:
                    assert process.poll() is None, "the engine ended"
                    self.look(link.state)
                    await asyncio.sleep(0.05)
                if self.chance.random() < 0.08:
                    self.kill_a_server()
                command, bad = self.command(link.state)
                try:
                    await link.do(command)
                except Refused:
                    self.refused += 1
                    continue
                given += 1
                self.given += 1
                await asyncio.sleep(0.1)
                if bad and isinstance(command, Restart):
                    self.bad += 1
                    mine = [c for c in link.state.changes if c.servers == command.servers]
                    if mine:
                        self.bad_changes.add(mine[-1].id)

    async def _connect(self, stack: AsyncExitStack, process: subprocess.Popen[bytes]) -> SocketLink:
        while True:
            assert process.poll() is None, "the engine did not start"
            try:
                return await stack.enter_async_context(SocketLink(self.output))
            except StartError:
                await asyncio.sleep(0.2)


def test_two_hundred_changes_lose_and_double_nothing_and_leave_three_serving(tmp_path: Path) -> None:
    box = Box(tmp_path, seed=11)
    begun = time.monotonic()
    while box.given < CHANGES:
        box.engine(min(25, CHANGES - box.given))  # killed with a change under way, as it comes
    took_s = time.monotonic() - begun
    box.engine(0)  # takes over what the last one left, and ends in order
    report = json.loads(genmon("verify", "--json", box.output).stdout)
    print(
        f"{box.given} changes ({box.bad} bad, {box.refused} refused), {box.kills} servers killed, "
        f"{report['done']} rows done, {report['failed']} failed, fewest serving {box.fewest}, {took_s:.0f} s",
        file=sys.stderr,
    )
    assert (report["doubled"], report["torn"], report["foreign"], report["without_sidecar"]) == (0, 0, 0, 0)
    assert report["done"] + report["failed"] + report["missing"] == ROWS
    assert report["done"] > 1000
    assert servers_of(box.output) == []
