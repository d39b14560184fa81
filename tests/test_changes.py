"""Flags changed while the job runs, on a scripted host: no row lost or doubled, one server away, bad flags undone."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from msgspec.structs import replace

from genmon.commands import CancelChange, Promote, Restart, Revert
from genmon.engine.engine import Engine
from genmon.engine.hosts import ChatRequest
from genmon.engine.launches import Launches
from genmon.errors import Refused
from genmon.fleet.flags.flagset import FlagSet
from genmon.job.job import Job
from genmon.job.row import Answer
from genmon.job.verify import verify
from genmon.state import FlagChange, RunPhase, ServerPhase, ServerState
from tests.scripted import FLAGS, ScriptedHost, good, run_config, shard_ids, until, write_prompts

ROWS = 300


class Box:
    """A running engine on a scripted host whose answers take a few milliseconds, until the test lets them end."""

    def __init__(self, folder: Path, servers: int) -> None:
        write_prompts(folder, ROWS)
        self.config = run_config(folder)
        self.slow_s = 0.1
        self.hangs_on: str | None = None
        """The server whose next answer takes a minute."""
        self.host = ScriptedHost(self._answer, servers=servers)
        self.engine = Engine(self.config, Job.open(self.config), self.host)
        self.most_away = 0
        self.host.bring_up = self._bring_up
        self.refuses: Callable[[str, FlagSet], str | None] = lambda server, flags: None

    async def _answer(self, server: str, request: ChatRequest) -> Answer:
        if server == self.hangs_on:
            self.hangs_on = None
            await asyncio.sleep(60.0)
        await asyncio.sleep(self.slow_s)
        return good()

    def _bring_up(self, server: str, flags: FlagSet) -> str | None:
        away = [s for s in self.host.states.values() if s.phase is not ServerPhase.READY]
        if self.engine.state.phase is RunPhase.RUNNING:
            self.most_away = max(self.most_away, len(away))
        return self.refuses(server, flags)

    def change(self, id: int = 1) -> FlagChange:
        return next(change for change in self.engine.state.changes if change.id == id)

    async def ended(self, id: int = 1) -> FlagChange:
        await until(lambda: self.change(id).ended_at is not None)
        return self.change(id)


def on_box(folder: Path, script: Callable[[Box], Awaitable[None]], servers: int = 3) -> Box:
    """Run a job while `script` gives commands; in the end every row is there once."""

    async def run() -> Box:
        box = Box(folder, servers)
        running = asyncio.create_task(box.engine.run())
        await until(lambda: len(box.host.starts) == servers)
        await box.engine._look()
        await script(box)
        box.slow_s = 0.0
        assert (await running).phase is RunPhase.FINISHED
        return box

    box = asyncio.run(run())
    assert sorted(shard_ids(box.config)) == sorted(f"r{n}" for n in range(ROWS))
    assert verify(box.config.output).clean
    assert box.most_away <= 1
    return box


def test_mtp_goes_on_one_server_after_the_other(tmp_path: Path) -> None:
    async def script(box: Box) -> None:
        command = Restart(servers=("s0", "s1", "s2"), mtp=True)
        await until(lambda: box.host.in_flight["s0"] == 4)
        plan = box.engine.plan(command)
        assert [each.server for each in plan.servers] == ["s0", "s1", "s2"]
        assert "speculative-algorithm NEXTN" in plan.servers[0].after
        assert "speculative-algorithm NEXTN" not in plan.servers[0].before
        assert plan.servers[0].in_flight == 4
        box.engine.command(command, by="a test")
        change = await box.ended()
        assert (change.what, change.by, change.outcome, change.rolled_back) == ("MTP on", "a test", "done", False)
        assert change.done == ("s0", "s1", "s2")
        assert [server for server, _ in box.host.starts[3:]] == ["s0", "s1", "s2"]
        assert all(flags["speculative-algorithm"] == "NEXTN" for flags in box.host.flags.values())
        box.engine.command(Restart(servers=("s1",), mtp=False))
        await box.ended(2)
        assert box.host.flags["s1"] == FLAGS

    on_box(tmp_path, script)


def test_flags_that_do_not_serve_are_taken_back_and_the_others_left_alone(tmp_path: Path) -> None:
    async def script(box: Box) -> None:
        box.refuses = lambda server, flags: "RuntimeError: Not enough memory" if "page-size" in flags else None
        box.engine.command(Restart(servers=("s1", "s0"), set={"page-size": "64"}))
        change = await box.ended()
        assert change.rolled_back
        assert change.outcome is not None
        assert "s1: RuntimeError: Not enough memory" in change.outcome
        assert [server for server, _ in box.host.starts[3:]] == ["s1", "s1"]
        assert box.host.flags == dict.fromkeys(("s0", "s1", "s2"), FLAGS)
        assert box.host.states["s1"].phase is ServerPhase.READY

    on_box(tmp_path, script)


def test_the_only_server_given_up_with_bad_flags_comes_back(tmp_path: Path) -> None:
    async def script(box: Box) -> None:
        def refuse(server: str, flags: FlagSet) -> str | None:
            return "ValueError: no" if "page-size" in flags else None

        box.refuses = refuse
        box.engine.command(Restart(servers=("s0",), set={"page-size": "64"}))
        assert (await box.ended()).rolled_back
        box.engine.command(Restart(servers=("s0",), set={"max-running-requests": "3"}))
        assert (await box.ended(2)).outcome == "done"
        box.host.change("s0", phase=ServerPhase.GIVEN_UP, reason="CUDA error")
        await until(lambda: box.change(2).rolled_back and box.host.states["s0"].phase is ServerPhase.READY)
        assert box.host.flags["s0"] == FLAGS

    on_box(tmp_path, script, servers=1)


def test_flags_whose_server_crashes_twice_are_taken_back(tmp_path: Path) -> None:
    async def script(box: Box) -> None:
        box.engine.command(Restart(servers=("s0",), set={"page-size": "64"}))
        await box.ended()
        for _ in range(2):
            assert not box.change().rolled_back
            box.host.change("s0", phase=ServerPhase.BACKOFF, reason="CUDA error; next try in 2 s")
            await box.engine._look()
            if not box.change().rolled_back:
                await box.host.start("s0")
                await box.engine._look()
        assert box.change().outcome == "s0 crashed with the new flags and has its old ones again: CUDA error"
        await until(lambda: box.host.states["s0"].phase is ServerPhase.READY)
        assert box.host.flags["s0"] == FLAGS

    on_box(tmp_path, script)


def test_cancel_while_rows_are_waited_for_leaves_the_server_as_it_is(tmp_path: Path) -> None:
    async def script(box: Box) -> None:
        box.slow_s = 0.5
        await until(lambda: box.host.in_flight["s0"] == 4)
        box.engine.command(Restart(servers=("s0", "s1"), mtp=True))
        await until(lambda: "waiting for 4 rows" in box.change().stage)
        box.engine.command(CancelChange(1))
        change = await box.ended()
        assert change.outcome == "cancelled: s0, s1 not changed"
        assert len(box.host.starts) == 3

    on_box(tmp_path, script)


def test_no_server_is_taken_down_while_another_is_away_but_one_that_is_down_needs_no_turn(tmp_path: Path) -> None:
    async def script(box: Box) -> None:
        box.host.change("s2", phase=ServerPhase.BACKOFF, reason="CUDA error")
        await box.engine._look()
        box.engine.command(Restart(servers=("s0",)))
        await until(lambda: box.change().stage == "s0: waiting until s2 serves again")
        await asyncio.sleep(0.5)
        assert box.host.states["s0"].phase is ServerPhase.READY
        box.engine.command(CancelChange(1))
        assert (await box.ended()).outcome == "cancelled: s0 not changed"
        box.engine.command(Restart(servers=("s2",)))
        assert (await box.ended(2)).outcome == "done"
        box.engine.command(Restart(servers=("s0",)))
        assert (await box.ended(3)).outcome == "done"

    on_box(tmp_path, script)


def test_a_row_that_keeps_a_server_from_restarting_is_generated_elsewhere(tmp_path: Path) -> None:
    """Waiting pays only until the empty places have cost as much as the row would cost anew."""

    async def script(box: Box) -> None:
        for name in ("s0", "s1"):
            box.host.change(name, tokens_per_s=1000.0)
        box.hangs_on = "s0"
        await until(lambda: box.hangs_on is None)
        box.engine.command(Restart(servers=("s0",)))
        async with asyncio.timeout(10):
            while box.change().ended_at is None:
                await box.engine._look()
                await asyncio.sleep(0.01)
        assert box.change().outcome == "done"

    on_box(tmp_path, script, servers=2)


def test_a_canary_is_promoted_to_the_others_and_taken_back(tmp_path: Path) -> None:
    async def script(box: Box) -> None:
        box.slow_s = 0.15
        box.engine.command(Restart(servers=("s1",), mtp=True, canary=True))
        assert (await box.ended()).canary
        await until(lambda: box.change().verdict is not None)
        verdict = box.change().verdict
        assert verdict is not None
        assert "No comparison" in verdict.sentence
        assert [each.server for each in box.engine.plan(Promote(1)).servers] == ["s0", "s2"]
        box.engine.command(Promote(1))
        with pytest.raises(Refused, match="under way"):
            box.engine.plan(Revert(2))
        assert (await box.ended(2)).what == "MTP on for all"
        assert all("speculative-algorithm" in flags for flags in box.host.flags.values())
        with pytest.raises(Refused, match="No other server"):
            box.engine.plan(Promote(1))
        box.engine.command(Revert(2))
        assert (await box.ended(3)).done == ("s0", "s2")
        assert box.host.flags["s0"] == FLAGS
        assert "speculative-algorithm" in box.host.flags["s1"]
        with pytest.raises(Refused, match="flags of that change any more"):
            box.engine.plan(Revert(2))

    on_box(tmp_path, script)


REFUSED: list[tuple[Restart | CancelChange, str]] = [
    (Restart(servers=("s7",)), "no server s7"),
    (Restart(servers=()), "No server"),
    (Restart(servers=("s0",), mtp=False), "Nothing would change"),
    (Restart(servers=("s0",), unset=("page-size",)), "not among its launch flags"),
    (Restart(servers=("s0",), set={"port": "1"}), "cannot be changed"),
    (Restart(servers=("s0",), set={"cuda-graph-max-bs-decode": "8"}), "has no --cuda-graph-max-bs-decode"),
    (CancelChange(9), "no change 9"),
]


def test_what_cannot_be_done_is_refused_with_the_reason(tmp_path: Path) -> None:
    async def script(box: Box) -> None:
        for command, reason in REFUSED:
            for ask in (box.engine.plan, box.engine.command):
                with pytest.raises(Refused, match=reason):
                    ask(command)
        box.engine.command(Restart(servers=("s0",)))
        with pytest.raises(Refused, match="in a change under way"):
            box.engine.command(Restart(servers=("s1", "s0"), mtp=True))
        await box.ended()
        assert box.engine.state.changes[0].what == "restart"

    on_box(tmp_path, script)


def test_flags_changed_by_hand_do_not_outlive_the_engine_and_the_next_one_says_so(tmp_path: Path) -> None:
    """An engine killed while flags are changed starts anew with the run file's."""
    server = ServerState(host="here", name="s0", url="", phase=ServerPhase.READY, since=0.0, launches=2)
    argv = ("python", "-m", "sglang.launch_server", "--a", "64", "--b", "--host", "127.0.0.1", "--port", "30000")
    Launches(tmp_path).record(replace(server, argv=argv))
    with (tmp_path / "launches.jsonl").open("a") as file:
        file.write('{"launch": "s0#3", "ar')
    sentence = Launches(tmp_path).changed_since(("s0", "s1"), ("--a", "16"))
    assert sentence is not None
    assert sentence.endswith("changed since their last launch: s0: −b, a 64→16")
    assert Launches(tmp_path).changed_since(("s0",), ("--a", "64", "--b")) is None
