"""The engine watches: tells are in its state, a command dismisses them, and what they rest on is in it too."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from msgspec.structs import replace

from genmon.commands import Dismiss, Drain, Pause
from genmon.config.schema import TellsConfig
from genmon.engine.engine import Engine
from genmon.engine.hosts import ChatRequest
from genmon.errors import Refused
from genmon.job.job import Job
from genmon.job.row import Answer
from genmon.state import AnswerClass, GpuSample
from tests.scripted import ScriptedHost, good, run_config, until, write_prompts

OWN = """\
[up]
level = "alarm"
looks_for = "a server that serves"
when = "now(ready)"
always = true
hold_s = 0
says = "{who} serves"
mend = "nothing"
wrong_if = "never"
"""


def test_tells_of_the_users_own_rules_come_up_in_the_state_and_are_dismissed(tmp_path: Path) -> None:
    write_prompts(tmp_path, 12)
    (tmp_path / "own.toml").write_text(OWN)
    config = replace(run_config(tmp_path), tells=TellsConfig(rules=str(tmp_path / "own.toml"), bell=True))
    hold = asyncio.Event()

    async def answer(server: str, request: ChatRequest) -> Answer:
        if len(host.requests) > 4:
            await hold.wait()
        return good()

    host = ScriptedHost(answer, servers=2, cap=4)
    host.gpus = (GpuSample(host="here", index=0, uuid="GPU-0", name="NVIDIA H200", taken_at=0.0),)

    async def go() -> None:
        engine = Engine(config, Job.open(config), host)
        running = asyncio.create_task(engine.run())
        await until(lambda: bool(engine.state.tells))
        [tell] = engine.state.tells
        assert (tell.id, tell.sentence, tell.servers) == ("up", "Each of servers s0 and s1 serves", ("s0", "s1"))
        await until(lambda: engine.state.rings == 1)
        assert [server.aim for server in engine.state.servers] == [4, 4]
        await until(lambda: engine.state.job.answers.get(AnswerClass.COMPLETE, 0) == 4)
        await until(lambda: engine.state.job.disk_free_b is not None)
        assert engine.command(Dismiss("up")) == "Dismissed."
        assert engine.state.tells == ()
        with pytest.raises(Refused):
            engine.command(Dismiss("up"))
        engine.command(Pause())
        hold.set()
        engine.command(Drain())
        await running

    asyncio.run(go())
