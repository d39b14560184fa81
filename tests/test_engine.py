"""The engine on a scripted host: whatever the host does, each row is there exactly once."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from genmon.commands import Drain, Pause, Resume, SetConcurrency, Stop
from genmon.config.schema import LimitsConfig, SamplingConfig
from genmon.engine.engine import Engine, Outcome
from genmon.engine.hosts import ChatRequest
from genmon.errors import RowRefused, ServerBusy, ServerGone
from genmon.fleet.flags.flagset import FlagSet
from genmon.job import writer
from genmon.job.job import Job
from genmon.job.row import Answer
from genmon.job.verify import verify
from genmon.state import RunPhase, ServerPhase
from tests.scripted import (
    ScriptedHost,
    failed_rows,
    good,
    run_config,
    run_engine,
    shard_ids,
    shard_rows,
    until,
    write_prompts,
)


async def answer_at_once(server: str, request: ChatRequest) -> Answer:
    return good()


def test_every_row_is_done_once_and_within_the_cap(tmp_path: Path) -> None:
    write_prompts(tmp_path, 60)
    config = run_config(tmp_path)

    async def slowly(server: str, request: ChatRequest) -> Answer:
        await asyncio.sleep(0.002)
        return good()

    host = ScriptedHost(slowly, servers=2, cap=4)
    outcome = asyncio.run(run_engine(config, host))
    assert (outcome.phase, outcome.exit_code) == (RunPhase.FINISHED, 0)
    assert sorted(shard_ids(config)) == sorted(f"r{n}" for n in range(60))
    assert host.most_in_flight == {"s0": 4, "s1": 4}
    assert host.closed
    assert verify(config.output).clean


def test_a_finished_job_starts_no_server(tmp_path: Path) -> None:
    write_prompts(tmp_path, 5)
    config = run_config(tmp_path)
    asyncio.run(run_engine(config, ScriptedHost(answer_at_once)))
    host = ScriptedHost(answer_at_once)
    outcome = asyncio.run(run_engine(config, host))
    assert outcome.exit_code == 0
    assert host.requests == []
    assert {state.phase for state in host.states.values()} == {ServerPhase.WAITING}


FATES = ["good", "gone", "busy", "abort", "empty", "slow", "late_gone"]


@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(seed=st.integers(0, 2**32), weights=st.lists(st.integers(0, 5), min_size=7, max_size=7))
def test_after_any_schedule_each_row_is_settled_once(
    tmp_path_factory: pytest.TempPathFactory, seed: int, weights: list[int]
) -> None:
    folder = tmp_path_factory.mktemp("schedule")
    write_prompts(folder, 40)
    config = run_config(folder)
    chance = random.Random(seed)

    async def fate(server: str, request: ChatRequest) -> Answer:
        await asyncio.sleep(chance.random() * 0.003)
        match chance.choices(FATES, [weights[0] + 6, *weights[1:]])[0]:
            case "gone":
                host.change(server, launches=host.states[server].launches + 1)
                raise ServerGone("connection reset")
            case "busy":
                raise ServerBusy("HTTP 500: no")
            case "abort":
                return Answer(content="half an ans", reasoning=None, finish_reason="abort")
            case "empty":
                return Answer(content="", reasoning=None, finish_reason="stop")
            case "slow":
                await asyncio.sleep(0.02)
            case "late_gone":
                await asyncio.sleep(0.02)
                host.change(server, launches=host.states[server].launches + 1)
                raise ServerGone("connection reset")
        return good()

    host = ScriptedHost(fate, servers=3, cap=5)

    async def run() -> None:
        job = Job.open(config)
        engine = Engine(config, job, host)
        running = asyncio.create_task(engine.run())
        while not running.done():
            # A poll a second is too slow for a test of milliseconds: tell of relaunched servers at once.
            engine.command(SetConcurrency(None))
            engine._dispatcher.hear(tuple(host.states.values()))
            await asyncio.sleep(0.01)
        assert running.result().phase is RunPhase.FINISHED

    asyncio.run(run())
    done, failed = shard_ids(config), [str(row["id"]) for row in failed_rows(config)]
    assert sorted(done + failed) == sorted(f"r{n}" for n in range(40))
    report = verify(config.output)
    assert report.clean, str(report)


def test_a_stop_loses_nothing_and_the_next_run_goes_on(tmp_path: Path) -> None:
    write_prompts(tmp_path, 50)
    config = run_config(tmp_path)

    async def first_run() -> None:
        async def twenty_then_never(server: str, request: ChatRequest) -> Answer:
            if len(host.requests) > 20:
                await asyncio.Event().wait()
            return good()

        host = ScriptedHost(twenty_then_never)
        engine = Engine(config, Job.open(config), host)
        running = asyncio.create_task(engine.run())
        await until(lambda: len(host.requests) > 20)
        engine.command(Stop())
        outcome = await running
        assert (outcome.phase, outcome.exit_code) == (RunPhase.STOPPED, 130)

    asyncio.run(first_run())
    done = set(shard_ids(config))
    assert 20 <= len(done) < 50
    host = ScriptedHost(answer_at_once)
    assert asyncio.run(run_engine(config, host)).exit_code == 0
    assert len(host.requests) == 50 - len(done)
    assert sorted(shard_ids(config)) == sorted(f"r{n}" for n in range(50))


def test_the_last_picture_shows_the_servers_as_they_are_left(tmp_path: Path) -> None:
    """A run that has ended must not look like one whose servers still serve."""
    write_prompts(tmp_path, 5)
    config = run_config(tmp_path)

    async def run() -> None:
        engine = Engine(config, Job.open(config), ScriptedHost(answer_at_once))
        assert (await engine.run()).phase is RunPhase.FINISHED
        assert {server.phase for server in engine.state.servers} == {ServerPhase.STOPPED}

    asyncio.run(run())


def test_a_disk_that_is_full_at_the_end_is_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writer, "_CLOSE_PATIENCE_S", 0.1)
    write_prompts(tmp_path, 10)
    config = run_config(tmp_path)
    in_the_way = config.output / "shards" / "00000.jsonl"

    async def run() -> None:
        job = Job.open(config)
        in_the_way.mkdir()
        rows = iter(range(10))
        host = ScriptedHost(answer_at_once)

        async def last_one_late(server: str, request: ChatRequest) -> Answer:
            if next(rows) == 9:
                await until(lambda: job.trouble is not None)
            return good()

        host.script = last_one_late
        engine = Engine(config, job, host)
        running = asyncio.create_task(engine.run())
        await until(lambda: engine.state.phase is RunPhase.PAUSED and not sum(host.in_flight.values()))
        in_the_way.rmdir()
        assert (await running).exit_code == 0

    asyncio.run(run())
    assert verify(config.output).clean
    assert len(shard_ids(config)) == 10


def test_a_disk_that_stays_full_is_no_success(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writer, "_CLOSE_PATIENCE_S", 0.1)
    write_prompts(tmp_path, 3)
    config = run_config(tmp_path)

    async def run() -> Outcome:
        job = Job.open(config)
        (config.output / "shards" / "00000.jsonl").mkdir()
        return await Engine(config, job, ScriptedHost(answer_at_once)).run()

    outcome = asyncio.run(run())
    assert (outcome.phase, outcome.exit_code) == (RunPhase.FAILED, 3)
    assert outcome.sentence.startswith("3 finished rows were not written: Rows cannot be written to ")
    assert outcome.sentence.endswith("Is a directory. Make room; the same command generates them again")


def test_a_drain_keeps_what_was_in_flight(tmp_path: Path) -> None:
    write_prompts(tmp_path, 50)
    config = run_config(tmp_path)

    async def run() -> None:
        gate = asyncio.Event()

        async def gated(server: str, request: ChatRequest) -> Answer:
            await gate.wait()
            return good()

        host = ScriptedHost(gated, servers=2, cap=4)
        engine = Engine(config, Job.open(config), host)
        running = asyncio.create_task(engine.run())
        await until(lambda: len(host.requests) == 8)
        engine.command(Drain())
        await until(lambda: engine.state.phase is RunPhase.DRAINING or engine._phase is RunPhase.DRAINING)
        gate.set()
        assert (await running).exit_code == 130
        assert len(host.requests) == 8

    asyncio.run(run())
    assert len(shard_ids(config)) == 8


def test_a_second_interrupt_ends_a_drain_at_once(tmp_path: Path) -> None:
    write_prompts(tmp_path, 20)
    config = run_config(tmp_path)

    async def run() -> None:
        async def never(server: str, request: ChatRequest) -> Answer:
            await asyncio.Event().wait()
            return good()

        host = ScriptedHost(never)
        engine = Engine(config, Job.open(config), host)
        running = asyncio.create_task(engine.run())
        await until(lambda: len(host.requests) == 8)
        engine.command(Drain())
        await asyncio.sleep(0)
        engine.command(Stop())
        assert (await asyncio.wait_for(running, 10)).phase is RunPhase.STOPPED

    asyncio.run(run())
    assert shard_ids(config) == []


def test_a_refused_row_fails_with_the_servers_reason_and_can_be_tried_again(tmp_path: Path) -> None:
    write_prompts(tmp_path, 10)
    config = run_config(tmp_path)

    async def refuse_one(server: str, request: ChatRequest) -> Answer:
        if request.messages[-1].content == "Question 3?":
            raise RowRefused("HTTP 400: the prompt is too long")
        return good()

    outcome = asyncio.run(run_engine(config, ScriptedHost(refuse_one)))
    assert outcome.exit_code == 1
    (failed,) = failed_rows(config)
    assert failed["id"] == "r3"
    assert "the prompt is too long" in str(failed["error"])
    assert asyncio.run(run_engine(config, ScriptedHost(answer_at_once))).exit_code == 1
    assert asyncio.run(run_engine(config, ScriptedHost(answer_at_once), retry_failed=True)).exit_code == 0
    assert sorted(shard_ids(config)) == sorted(f"r{n}" for n in range(10))
    assert failed_rows(config) == []


def test_an_aborted_answer_is_never_done(tmp_path: Path) -> None:
    write_prompts(tmp_path, 6)
    config = run_config(tmp_path)
    seen: set[str] = set()

    async def abort_first(server: str, request: ChatRequest) -> Answer:
        question = str(request.messages[-1].content)
        if question not in seen:
            seen.add(question)
            return Answer(content="half", reasoning=None, finish_reason="abort")
        return good("whole")

    assert asyncio.run(run_engine(config, ScriptedHost(abort_first))).exit_code == 0
    assert {str(row["conversations"][-1]["content"]) for row in shard_rows(config)} == {"whole"}  # type: ignore[index]


def test_an_empty_answer_is_tried_again_with_another_seed_then_fails(tmp_path: Path) -> None:
    write_prompts(tmp_path, 1)
    config = run_config(tmp_path, limits=LimitsConfig(retries=2, pause_above=1.0), sampling=SamplingConfig(seed=7))

    async def empty(server: str, request: ChatRequest) -> Answer:
        return Answer(content=" ", reasoning=None, finish_reason="stop")

    host = ScriptedHost(empty)
    assert asyncio.run(run_engine(config, host)).exit_code == 1
    seeds = [request.params["seed"] for request in host.requests]
    assert seeds[0] == 7
    assert len(set(seeds)) == 3
    assert "empty in each of 3 tries" in str(failed_rows(config)[0]["error"])


def test_rubbish_past_the_threshold_pauses_the_run_and_resume_goes_on(tmp_path: Path) -> None:
    write_prompts(tmp_path, 400)
    config = run_config(tmp_path, limits=LimitsConfig(pause_above=0.05, pause_window=200))

    async def run() -> None:
        rubbish = True

        async def answer(server: str, request: ChatRequest) -> Answer:
            await asyncio.sleep(0)
            return Answer(content="", reasoning="Hm.", finish_reason="stop") if rubbish else good()

        host = ScriptedHost(answer)
        engine = Engine(config, Job.open(config), host)
        running = asyncio.create_task(engine.run())
        await until(lambda: engine.state.phase is RunPhase.PAUSED)
        assert any("unclosed" in tell.sentence for tell in engine.state.tells)
        sent = len(host.requests)
        assert sent < 400
        await asyncio.sleep(0.05)
        assert len(host.requests) == sent
        rubbish = False
        engine.command(Resume())
        assert (await running).phase is RunPhase.FINISHED

    asyncio.run(run())


def test_a_row_that_outlives_too_many_servers_is_suspected(tmp_path: Path) -> None:
    write_prompts(tmp_path, 2)
    config = run_config(tmp_path, limits=LimitsConfig(server_failures=2, pause_above=1.0))

    async def busy(server: str, request: ChatRequest) -> Answer:
        raise ServerBusy("HTTP 500: CUDA error")

    assert asyncio.run(run_engine(config, ScriptedHost(busy))).exit_code == 1
    assert {"CUDA error" in str(row["error"]) for row in failed_rows(config)} == {True}


def test_an_unreachable_server_costs_no_row_its_tries(tmp_path: Path) -> None:
    """A corpse refuses connections at once: a row bounced off it often is not at fault."""
    write_prompts(tmp_path, 30)
    config = run_config(tmp_path, limits=LimitsConfig(server_failures=2, pause_above=1.0))

    async def one_dead(server: str, request: ChatRequest) -> Answer:
        if server == "s1":
            raise ServerGone("connection refused")
        await asyncio.sleep(0.01)
        return good()

    assert asyncio.run(run_engine(config, ScriptedHost(one_dead))).exit_code == 0
    assert len(shard_ids(config)) == 30


def test_all_servers_given_up_ends_the_run_with_the_reason(tmp_path: Path) -> None:
    write_prompts(tmp_path, 5)
    config = run_config(tmp_path)

    class Hopeless(ScriptedHost):
        async def start(self, server: str, flags: FlagSet | None = None) -> None:
            self.change(server, phase=ServerPhase.GIVEN_UP, reason="unknown flag --speculativ")

    outcome = asyncio.run(run_engine(config, Hopeless(answer_at_once)))
    assert (outcome.phase, outcome.exit_code) == (RunPhase.FAILED, 3)
    assert "unknown flag --speculativ" in outcome.sentence


def test_turns_are_generated_one_by_one_with_history_without_reasoning(tmp_path: Path) -> None:
    (tmp_path / "prompts.jsonl").write_text(
        '{"id": "m", "conversations": [{"role": "user", "content": "One?"},'
        ' {"role": "assistant", "content": "old"}, {"role": "user", "content": "Two?"}]}\n'
    )
    config = run_config(tmp_path)

    async def count(server: str, request: ChatRequest) -> Answer:
        return good(f"Answer {len(host.requests)}.")

    host = ScriptedHost(count)
    assert asyncio.run(run_engine(config, host)).exit_code == 0
    second = host.requests[1].messages
    assert [message.content for message in second] == ["One?", "Answer 1.", "Two?"]
    assert second[1].reasoning_content is None
    (row,) = shard_rows(config)
    assert set(row) == {"id", "conversations", "status"}
    assert row["conversations"][3] == {  # type: ignore[index]
        "role": "assistant",
        "content": "Answer 2.",
        "reasoning_content": "Thought.",
    }


def test_pause_sends_nothing_new(tmp_path: Path) -> None:
    write_prompts(tmp_path, 30)
    config = run_config(tmp_path)

    async def run() -> None:
        gate = asyncio.Event()

        async def gated(server: str, request: ChatRequest) -> Answer:
            await gate.wait()
            return good()

        host = ScriptedHost(gated)
        engine = Engine(config, Job.open(config), host)
        running = asyncio.create_task(engine.run())
        await until(lambda: len(host.requests) == 8)
        engine.command(Pause())
        gate.set()
        await until(lambda: sum(host.in_flight.values()) == 0)
        await asyncio.sleep(0.05)
        assert len(host.requests) == 8
        engine.command(Resume())
        assert (await running).exit_code == 0

    asyncio.run(run())


@pytest.mark.parametrize("content", [b"", b"\x00\xff not json\n" * 3])
def test_prompts_without_a_usable_row_are_no_finished_job(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "prompts.jsonl").write_bytes(content)

    async def never(server: str, request: ChatRequest) -> Answer:
        raise AssertionError("nothing is to be sent")

    outcome = asyncio.run(run_engine(run_config(tmp_path), ScriptedHost(never)))
    assert (outcome.phase, outcome.exit_code) == (RunPhase.FAILED, 3)
    assert "no usable row" in outcome.sentence
