"""What the engine writes into the run log, seen through an engine whose log is a list."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import TypeVar

import pytest

from genmon.commands import CancelChange, Drain, Pause, Resume
from genmon.engine.engine import Engine
from genmon.engine.hosts import ChatRequest, HostReport
from genmon.engine.record import flag_set, launch_flags
from genmon.errors import Refused, ServerBusy
from genmon.job.job import Job
from genmon.job.row import Answer
from genmon.runlog.records import (
    CommandRecord,
    GpuReading,
    Launch,
    Record,
    Request,
    Run,
    RunEnd,
    ServerReading,
    TellRecord,
)
from genmon.state import GpuSample, TellLevel
from tests.scripted import ScriptedHost, good, run_config, shard_ids, until, write_prompts

Kind = TypeVar("Kind", bound=Record)


class ListLog:
    """Keeps records in memory."""

    def __init__(self) -> None:
        self.records: list[Record] = []
        self.trouble: str | None = None

    def put(self, record: Record) -> None:
        self.records.append(record)

    def of(self, kind: type[Kind]) -> list[Kind]:
        return [record for record in self.records if isinstance(record, kind)]


async def answer(server: str, request: ChatRequest) -> Answer:
    return good()


def sample(energy_j: float, taken_at: float) -> GpuSample:
    return GpuSample(
        host="here", index=0, uuid="GPU-1", name="H200", taken_at=taken_at, energy_j=energy_j, power_w=500.0
    )


def test_the_done_attempts_are_the_rows_of_the_shards(tmp_path: Path) -> None:
    write_prompts(tmp_path, 40)
    config, log, failing = run_config(tmp_path), ListLog(), iter(range(5))

    async def sometimes(server: str, request: ChatRequest) -> Answer:
        if next(failing, None) is not None:
            raise ServerBusy("busy now")
        return good()

    host = ScriptedHost(sometimes)
    asyncio.run(Engine(config, Job.open(config), host, log=log, run="key").run())
    requests = log.of(Request)
    done = [request for request in requests if request.outcome == "done"]
    assert sorted(request.row_id for request in done) == sorted(shard_ids(config))
    assert [request.trouble for request in requests if request.outcome == "server"] == ["busy now"] * 5
    assert {request.launch for request in done} == {"s0#1", "s1#1"}
    assert {record.run for record in log.records} == {"key"}
    assert [type(record) for record in (log.records[0], log.records[-1])] == [Run, RunEnd]
    assert log.of(RunEnd)[0].outcome == "finished"
    ended = {launch.launch: launch.end_reason for launch in log.of(Launch)}
    assert ended == {"s0#1": "the run ended", "s1#1": "the run ended"}
    assert log.of(ServerReading)


def test_commands_are_written_down_with_who_gave_them_and_refusals_with_the_reason(tmp_path: Path) -> None:
    write_prompts(tmp_path, 8)
    config, log = run_config(tmp_path), ListLog()
    held = asyncio.Event()

    async def slow(server: str, request: ChatRequest) -> Answer:
        await held.wait()
        return good()

    async def go() -> None:
        engine = Engine(config, Job.open(config), ScriptedHost(slow), log=log, run="key")
        running = asyncio.create_task(engine.run())
        await until(lambda: engine.state.job.rows_in_flight == 8)
        engine.command(Pause(), by="ann")
        with pytest.raises(Refused):
            engine.command(CancelChange(id=7), by="bob")
        engine.command(Resume(), by="ann")
        engine.command(Drain(), by="signal")
        held.set()
        await running

    asyncio.run(go())
    told = [(each.command, each.given_by, each.obeyed) for each in log.of(CommandRecord)]
    assert told == [
        ("Pause", "ann", True),
        ("CancelChange", "bob", False),
        ("Resume", "ann", True),
        ("Drain", "signal", True),
    ]
    refused = log.of(CommandRecord)[1]
    assert (refused.effect, refused.arguments) == ("There is no change 7 any more.", '{"type":"CancelChange","id":7}')


def test_energy_is_what_the_counter_gained_also_over_a_counter_that_began_anew(tmp_path: Path) -> None:
    write_prompts(tmp_path, 1)
    config, log = run_config(tmp_path), ListLog()
    held, readings = asyncio.Event(), iter((1000.0, 1500.0, 2100.0, 30.0, 90.0))

    async def slow(server: str, request: ChatRequest) -> Answer:
        await held.wait()
        return good()

    class Metered(ScriptedHost):
        async def poll(self) -> HostReport:
            energy_j = next(readings, None)
            if energy_j is None:
                held.set()
            else:
                self.gpus = (sample(energy_j, time.time()),)
            return await super().poll()

    engine = Engine(config, Job.open(config), Metered(slow), log=log, run="key")
    asyncio.run(engine.run())
    gained = [reading.energy_j for reading in log.of(GpuReading)]
    assert gained[0] is None
    assert sum(filter(None, gained)) == engine.state.job.energy_j == 1190.0


def test_trouble_of_the_log_is_a_tell_and_the_run_goes_on(tmp_path: Path) -> None:
    write_prompts(tmp_path, 4)
    config, log = run_config(tmp_path), ListLog()
    log.trouble = "The run log is held by duckdb (process 7)."
    engine = Engine(config, Job.open(config), ScriptedHost(answer), log=log, run="key")
    asyncio.run(engine.run())
    assert [(tell.id, tell.level) for tell in engine.state.tells if tell.id == "log"] == [("log", TellLevel.LOOK)]
    assert [tell.sentence for tell in log.of(TellRecord) if tell.tell == "log"] == [log.trouble]
    assert len(shard_ids(config)) == 4


def test_a_launchs_flags_are_a_map_and_the_same_flags_have_the_same_name() -> None:
    argv = ("python", "-m", "sglang.launch_server", "--model-path", "m", "--disable-radix-cache", "--x", "1", "2")
    flags = launch_flags((*argv, "--host", "127.0.0.1", "--port", "30000"))
    assert flags == {"model-path": "m", "disable-radix-cache": "true", "x": "1 2"}
    assert flag_set(flags) == flag_set(launch_flags((*argv, "--port", "30001")))
    assert flag_set(flags) != flag_set({**flags, "x": "3"})
