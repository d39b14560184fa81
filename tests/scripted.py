"""A host that does what a test's script says: it delays, drops, aborts, dies and answers late."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

from msgspec.structs import replace

from genmon.config.schema import (
    FlagValue,
    JobConfig,
    LimitsConfig,
    ModelConfig,
    RunConfig,
    SamplingConfig,
    ServersConfig,
)
from genmon.engine.engine import Engine, Outcome
from genmon.engine.hosts import ChatRequest, HostInfo, HostReport
from genmon.fleet.flags.flagset import FlagSet
from genmon.job.job import Job
from genmon.job.row import Answer
from genmon.state import Event, GpuSample, ServerPhase, ServerState

FLAGS: dict[str, FlagValue] = {"model-path": "Qwen/Qwen3.6-27B", "disable-radix-cache": True, "max-running-requests": 4}
"""The launch flags of a scripted server."""
BringUp = Callable[[str, FlagSet], str | None]
"""Why a server does not come up with these flags, or None."""
Script = Callable[[str, ChatRequest], Awaitable[Answer]]


def good(text: str = "A short and honest answer.", tokens: int = 20) -> Answer:
    return Answer(content=text, reasoning="Thought.", finish_reason="stop", prompt_tokens=10, completion_tokens=tokens)


class ScriptedHost:
    """Servers that are ready at once, whose answers come from `script`."""

    def __init__(self, script: Script, servers: int = 2, cap: int = 4) -> None:
        self.script = script
        self.states = {
            f"s{number}": ServerState(
                host="here",
                name=f"s{number}",
                url="",
                phase=ServerPhase.WAITING,
                since=time.time(),
                cap=cap,
                cap_requested=cap,
            )
            for number in range(servers)
        }
        self.flags: dict[str, dict[str, FlagValue]] = {name: dict(FLAGS) for name in self.states}
        self.starts: list[tuple[str, dict[str, FlagValue]]] = []
        """Every launch, with its flags."""
        self.bring_up: BringUp = lambda server, flags: None
        self.in_flight = dict.fromkeys(self.states, 0)
        self.most_in_flight = dict.fromkeys(self.states, 0)
        self.requests: list[ChatRequest] = []
        self.events: list[Event] = []
        self.gpus: tuple[GpuSample, ...] = ()
        self.closed = False

    async def hello(self) -> HostInfo:
        return HostInfo(host="here", servers=tuple(self.states), flags=dict(FLAGS), sglang="0.5.11")

    async def start(self, server: str, flags: FlagSet | None = None) -> None:
        if flags is not None:
            self.flags[server] = dict(flags)
        self.starts.append((server, dict(self.flags[server])))
        trouble = self.bring_up(server, self.flags[server])
        phase = ServerPhase.READY if trouble is None else ServerPhase.BACKOFF
        launches = self.states[server].launches + 1
        mtp = "speculative-algorithm" in self.flags[server]
        self.change(server, phase=phase, reason=trouble, launches=launches, mtp=mtp)

    async def stop(self, server: str, deadline_s: float) -> None:
        self.change(server, phase=ServerPhase.STOPPED)

    async def poll(self) -> HostReport:
        events, self.events = tuple(self.events), []
        return HostReport(gpus=self.gpus, servers=tuple(self.states.values()), events=events)

    async def complete(self, server: str, request: ChatRequest) -> Answer:
        self.requests.append(request)
        self.in_flight[server] += 1
        self.most_in_flight[server] = max(self.most_in_flight[server], self.in_flight[server])
        try:
            return await self.script(server, request)
        finally:
            self.in_flight[server] -= 1

    async def stream(self, server: str, request: ChatRequest) -> AsyncIterator[int | None]:
        answer = await self.complete(server, request)
        yield answer.completion_tokens

    async def close(self) -> None:
        self.closed = True
        for server, state in self.states.items():
            if state.phase is ServerPhase.READY:
                self.change(server, phase=ServerPhase.STOPPED)

    def change(self, server: str, **fields: object) -> None:
        self.states[server] = replace(self.states[server], since=time.time(), **fields)


def write_prompts(folder: Path, count: int, **fields: object) -> Path:
    """A prompt file of `count` rows with ids r0, r1, …"""
    path = folder / "prompts.jsonl"
    with path.open("w") as file:
        for number in range(count):
            file.write(json.dumps({"id": f"r{number}", "prompt": f"Question {number}?", **fields}) + "\n")
    return path


def run_config(
    folder: Path, *, limits: LimitsConfig | None = None, sampling: SamplingConfig | None = None
) -> RunConfig:
    return RunConfig(
        name="test",
        model=ModelConfig(path="model"),
        job=JobConfig(prompts=[str(folder / "prompts.jsonl")], output=str(folder / "out"), shard_size=16),
        limits=limits or LimitsConfig(pause_above=1.0),
        sampling=sampling or SamplingConfig(),
        servers=ServersConfig(stagger_s=0.0),
    )


async def run_engine(config: RunConfig, host: ScriptedHost, *, retry_failed: bool = False) -> Outcome:
    job = Job.open(config, retry_failed=retry_failed)
    return await Engine(config, job, host).run()


def shard_ids(config: RunConfig) -> list[str]:
    """Ids of all rows in all shards, in order of writing."""
    return [str(row["id"]) for row in shard_rows(config)]


def shard_rows(config: RunConfig) -> list[dict[str, object]]:
    return [
        json.loads(line)
        for path in sorted((config.output / "shards").glob("*.jsonl"))
        for line in path.read_text().splitlines()
    ]


def failed_rows(config: RunConfig) -> list[dict[str, object]]:
    path = config.output / "failed.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


async def until(condition: Callable[[], bool], within_s: float = 15.0) -> None:
    """Wait for a condition; fails when it does not come about."""
    deadline = time.monotonic() + within_s
    while not condition():
        assert time.monotonic() < deadline, "waited in vain"
        await asyncio.sleep(0.005)
