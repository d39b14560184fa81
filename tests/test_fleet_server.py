"""One supervised server, from launch to end, with small real processes."""

from __future__ import annotations

import asyncio
import signal
import socket
import stat
import time
from pathlib import Path

import pytest
from msgspec.structs import replace

from genmon.fleet import readiness
from genmon.fleet import server as supervision
from genmon.fleet.groups import Groups
from genmon.fleet.process import masked
from genmon.fleet.server import Server
from genmon.state import ServerPhase
from tests.fleet import STUB, kill, session, stub, stub_pid, supervised

P = ServerPhase
OOM = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB."


@pytest.fixture
def groups(tmp_path: Path) -> Groups:
    return Groups(tmp_path)


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same, at a faster pace."""
    monkeypatch.setattr(readiness, "_POLL_S", 0.03)
    monkeypatch.setattr("genmon.fleet.process._LOOK_S", 0.02)
    for name, seconds in {
        "_POLL_S": 0.05,
        "_BACKOFF_FIRST_S": 0.05,
        "_INFO_EVERY_S": 0.2,
        "_MEMORY_WAIT_S": 0.1,
        "_MEMORY_POLL_S": 0.02,
    }.items():
        monkeypatch.setattr(supervision, name, seconds)


def test_it_becomes_ready_and_says_what_it_is(tmp_path: Path, groups: Groups, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PROMETHEUS_MULTIPROC_DIR", "/shared")
    spec = stub(
        tmp_path,
        "--mtp",
        gpu_uuid="GPU-1",
        gpu_index=1,
        api_key="sk-secret",
        env={"SGLANG_ENABLE_HEALTH_ENDPOINT_GENERATION": "1", "MINE": "yes"},
    )

    async def run() -> None:
        async with supervised(spec, groups) as it:
            state = await it.until(P.READY)
            assert it.phases == [P.STARTING, P.SMOKE, P.READY]
            assert (state.version, state.mtp, state.cap, state.cap_requested) == ("0.5.11", True, 48, 64)
            assert (state.launches, state.url) == (1, f"http://127.0.0.1:{spec.port}")
            env = await it.env()
            assert env["CUDA_VISIBLE_DEVICES"] == "GPU-1"
            assert env["SGLANG_ENABLE_HEALTH_ENDPOINT_GENERATION"] == "1"  # the run file's own wins
            assert env["SGLANG_ENABLE_STRICT_MEM_CHECK_DURING_IDLE"] == "0"
            assert env["MINE"] == "yes"
            assert env["GENMON_LAUNCH"]
            assert "PROMETHEUS_MULTIPROC_DIR" not in env
            assert state.argv[-2:] == ("--api-key", "***")
            log = spec.log_path.read_text()
            assert "secret" not in log
            assert f"--port {spec.port}" in log.splitlines()[0]
            assert stat.S_IMODE(spec.log_path.stat().st_mode) == 0o600
            assert "secret" not in (tmp_path / "servers.json").read_text()
        assert it.server.state().phase is P.STOPPED
        assert session(state.pid) == {}

    asyncio.run(run())


@pytest.mark.parametrize(
    ("command", "shown"),
    [
        (("--api-key", "x", "--port", "1"), ("--api-key", "***", "--port", "1")),
        (("--admin-api-key=x", "--model-path", "api-key"), ("--admin-api-key=***", "--model-path", "api-key")),
        (("--tokenizer-path", "p"), ("--tokenizer-path", "p")),
    ],
)
def test_secret_flags_are_masked(command: tuple[str, ...], shown: tuple[str, ...]) -> None:
    assert masked(command) == shown


def test_it_is_watched(tmp_path: Path, groups: Groups) -> None:
    async def run() -> None:
        async with (
            supervised(stub(tmp_path, "--mtp", "--rate", "1000"), groups) as on,
            supervised(stub(tmp_path, name="s1"), groups) as off,
            supervised(stub(tmp_path, "--no-metrics", name="s2"), groups) as blind,
            supervised(stub(tmp_path, "--bad-info", name="s3"), groups) as odd,
        ):
            began = time.time()
            state = await on.until(lambda state: state.tokens_per_s is not None)
            assert (state.running, state.queued, state.kv_usage, state.mamba_usage) == (3, 1, 0.25, 0.5)
            assert state.acceptance_length == 2.8
            assert (state.taken_at or 0) >= began
            await on.until(lambda state: 900 < (state.tokens_per_s or 0) < 1100)
            # The series is there without speculation too, and then means nothing.
            state = await off.until(lambda state: state.tokens_per_s is not None)
            assert (state.mtp, state.acceptance_length) == (False, None)
            state = await blind.until(lambda state: state.taken_at is not None)
            assert (state.phase, state.running, state.queued) == (P.READY, 3, 1)
            assert (state.tokens_per_s, state.decode_tokens) == (None, None)
            assert "--enable-metrics" in str(state.reason)
            # It serves: that its description cannot be read makes nothing known, and hinders nothing.
            state = await odd.until(P.READY)
            assert (state.version, state.mtp, state.cap) == (None, None, 96)

    asyncio.run(run())


def test_a_crash_is_explained_and_it_starts_again(tmp_path: Path, groups: Groups) -> None:
    async def run() -> None:
        async with supervised(stub(tmp_path, "--children", "2"), groups) as it:
            first = await it.ready(1)
            assert len(session(first.pid)) == 4
            await it.until(lambda state: state.tokens_per_s is not None)
            await it.order(die="RuntimeError: Unsupported device: cpu", code=-9)
            second = await it.ready(2)
            assert session(first.pid) == {}
            assert second.pid != first.pid
            backoff = next(state for state in it.told if state.phase is P.BACKOFF)
            assert str(backoff.reason).startswith("its scheduler crashed: RuntimeError: Unsupported device: cpu; next")
            # What was true of the dead launch is not shown as true.
            assert (backoff.tokens_per_s, backoff.running, backoff.pid) == (None, None, None)

    asyncio.run(run())


def test_whatever_is_killed_it_starts_again_and_nothing_is_left(tmp_path: Path, groups: Groups) -> None:
    async def run() -> None:
        async with (
            supervised(stub(tmp_path, "--children", "1", name="server"), groups) as a,
            supervised(stub(tmp_path, "--children", "1", name="watcher"), groups) as b,
            supervised(stub(tmp_path, "--children", "1", name="both"), groups) as c,
        ):
            for it in (a, b, c):
                first = await it.ready(1)
                server = stub_pid(first.pid)
                if it is not a:
                    kill(first.pid, signal.SIGKILL)
                if it is not b:
                    kill(server, signal.SIGKILL)
            for it in (a, b, c):
                await it.ready(2)
                assert session(it.told[0].pid) == {}
                assert any("SIGKILL" in reason for reason in it.reasons)

    asyncio.run(run())


def test_what_would_fail_again_is_given_up_at_once(tmp_path: Path, groups: Groups) -> None:
    async def run() -> None:
        async with (
            supervised(stub(tmp_path, "--mem-fraction-statics", "0.9"), groups) as flag,
            supervised(stub(tmp_path, "--die", "ValueError: not compatible", "1", name="s1"), groups) as config,
            supervised(stub(tmp_path, "--die", OOM, "-9", name="s2"), groups) as memory,
            supervised(stub(tmp_path, "--die", "boom", "1", name="s3", max_restarts=2), groups) as unlucky,
            supervised(stub(tmp_path, name="s4", command=("/nowhere/python",)), groups) as nowhere,
        ):
            state = await flag.until(P.GIVEN_UP)
            assert (state.launches, state.reason) == (1, "unrecognized arguments: --mem-fraction-statics 0.9")
            state = await config.until(P.GIVEN_UP)
            assert (state.launches, state.reason) == (1, "it did not start: ValueError: not compatible")
            state = await memory.until(P.GIVEN_UP)
            assert state.launches == 2
            assert str(state.reason).startswith("torch.OutOfMemoryError: CUDA out of memory.")
            state = await unlucky.until(P.GIVEN_UP)
            assert state.launches == 3
            assert state.reason == "it ended with code 1: boom (given up after 3 failures in a row)"
            assert "/nowhere/python cannot be started" in str((await nowhere.until(P.GIVEN_UP)).reason)
        assert flag.server.state().phase is P.GIVEN_UP

    asyncio.run(run())


@pytest.mark.slow
def test_a_finished_row_forgives_earlier_failures(tmp_path: Path, groups: Groups) -> None:
    async def run() -> None:
        async with supervised(stub(tmp_path, max_restarts=1), groups) as it:
            for launch in (1, 2):
                await it.ready(launch)
                it.server.row_finished()
                await it.order(die="RuntimeError: again", code=1)
            await it.ready(3)
            await it.order(die="RuntimeError: and now no row between", code=1)
            assert "given up after 2 failures" in str((await it.until(P.GIVEN_UP)).reason)
            await it.server.start()  # by hand: it begins anew
            await it.ready(4)

    asyncio.run(run())


def test_a_hang_is_seen_and_mended(tmp_path: Path, groups: Groups) -> None:
    async def run() -> None:
        async with (
            supervised(stub(tmp_path, hang_after_s=0.3), groups) as busy,
            supervised(stub(tmp_path, hang_after_s=0.3, name="s1"), groups) as idle,
            supervised(stub(tmp_path, hang_after_s=0.3, name="s2"), groups) as prefilling,
            supervised(stub(tmp_path, "--no-metrics", hang_after_s=0.3, name="s3"), groups) as blind,
        ):
            for it in (busy, idle, prefilling, blind):
                await it.until(lambda state: state.taken_at is not None)
                await it.order(decoding=False, prefilling=it is prefilling)
            busy.server.in_flight = blind.server.in_flight = 7
            prefilling.server.in_flight = 1
            for it in (busy, blind):
                await it.ready(2)
                assert any("hung: no token decoded for" in why and "7 rows in flight" in why for why in it.reasons)
            for it in (idle, prefilling):
                assert (await it.polled()).launches == 1

    asyncio.run(run())


@pytest.mark.slow
def test_a_server_that_is_mute_altogether_is_a_hang_too(
    tmp_path: Path, groups: Groups, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("genmon.fleet.http._TIMEOUT_S", 0.3)

    async def run() -> None:
        async with supervised(stub(tmp_path, hang_after_s=0.6), groups) as it:
            state = await it.polled()
            it.server.in_flight = 1
            await it.polled()
            kill(stub_pid(state.pid), signal.SIGSTOP)
            await it.ready(2)
            assert any("hung: no token decoded" in why for why in it.reasons)
            assert session(state.pid) == {}

    asyncio.run(run())


@pytest.mark.slow
def test_work_that_has_just_come_is_not_late(tmp_path: Path, groups: Groups) -> None:
    async def run() -> None:
        async with supervised(stub(tmp_path, hang_after_s=0.4), groups) as it:
            await it.polled()
            await it.order(decoding=False, prefilling=False)
            idle_until = time.time() + 0.5
            await it.until(lambda state: (state.taken_at or 0) > idle_until)
            it.server.in_flight = 1
            for _ in range(3):
                assert (await it.polled()).launches == 1

    asyncio.run(run())


def test_ready_is_a_real_answer(tmp_path: Path, groups: Groups) -> None:
    async def run() -> None:
        async with (
            supervised(stub(tmp_path, "--smoke", "blank", max_restarts=0), groups) as blank,
            supervised(stub(tmp_path, "--smoke", "400", name="s1", max_restarts=0), groups) as refusing,
            supervised(
                stub(tmp_path, "--smoke", "503", name="s2", start_timeout_s=3.0, max_restarts=0), groups
            ) as busy,
            supervised(
                stub(tmp_path, "--listen-after", "60", name="s3", start_timeout_s=0.5, max_restarts=0), groups
            ) as mute,
            supervised(stub(tmp_path, "--smoke", "thought", name="s4"), groups) as thinking,
        ):
            await thinking.until(P.READY)
            assert "answered with nothing" in str((await blank.until(P.GIVEN_UP)).reason)
            assert "HTTP 400" in str((await refusing.until(P.GIVEN_UP)).reason)
            state = await busy.until(P.GIVEN_UP)
            assert "not ready after 3 s" in str(state.reason)
            assert "HTTP 503" in str(state.reason)
            assert "its port stayed closed" in str((await mute.until(P.GIVEN_UP)).reason)
            for it in (blank, refusing, busy, mute):
                assert P.READY not in it.phases
                assert session(it.told[0].pid) == {}

    asyncio.run(run())


@pytest.mark.slow
def test_a_stranger_on_its_port_is_not_taken_for_it(tmp_path: Path, groups: Groups) -> None:
    """SGLang binds its port minutes after it was found free, and answers under any model name."""
    spec = stub(tmp_path, "--listen-after", "3")

    async def run() -> None:
        async with supervised(spec, groups) as it:
            await it.until(P.STARTING)
            stranger = await asyncio.create_subprocess_exec(
                *STUB, "--port", str(spec.port), stdout=asyncio.subprocess.DEVNULL
            )
            try:
                state = await it.until(P.READY)
                assert state.launches == 2
                assert state.url != f"http://127.0.0.1:{spec.port}"
                assert f"port {spec.port} was taken by another process" in it.reasons[0]
            finally:
                stranger.kill()
                await stranger.wait()

    asyncio.run(run())


@pytest.mark.slow
def test_no_two_servers_get_the_same_port(tmp_path: Path, groups: Groups) -> None:
    spec = stub(tmp_path, "--listen-after", "0.3")
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", spec.port))
        taken.listen()

        async def run() -> None:
            async with (
                supervised(replace(spec, name="a"), groups) as first,
                supervised(replace(spec, name="b"), groups) as second,
            ):
                urls = {(await it.until(P.READY)).url for it in (first, second)}
                assert len(urls) == 2
                assert f"http://127.0.0.1:{spec.port}" not in urls
                argvs = [it.server.state().argv for it in (first, second)]
                assert len({argv[argv.index("--nccl-port") + 1] for argv in argvs}) == 2

        asyncio.run(run())


def test_stop_asks_then_insists(tmp_path: Path, groups: Groups) -> None:
    async def run() -> None:
        async with (
            supervised(stub(tmp_path, "--children", "1"), groups) as polite,
            supervised(stub(tmp_path, "--children", "1", "--ignore-term", name="s1"), groups) as deaf,
        ):
            states = [await it.until(P.READY) for it in (polite, deaf)]
            began = time.monotonic()
            await polite.server.stop(10.0)
            assert time.monotonic() - began < 5.0
            assert "SIGTERM received" in (tmp_path / "logs" / "s0.log").read_text()
            await deaf.server.stop(0.3)
            assert "SIGTERM received" in (tmp_path / "logs" / "s1.log").read_text()
            for it, state in zip((polite, deaf), states, strict=True):
                assert it.phases[-2:] == [P.STOPPING, P.STOPPED]
                assert session(state.pid) == {}
                assert it.server.state().pid is None
            await polite.server.start()
            await polite.ready(2)

    asyncio.run(run())


def test_stop_ends_a_start_in_progress(tmp_path: Path, groups: Groups) -> None:
    async def run() -> None:
        async with supervised(stub(tmp_path, "--listen-after", "60", "--children", "1"), groups) as it:
            state = await it.until(P.STARTING)
            await it.until(lambda _: len(session(state.pid)) == 3)
            await it.server.stop(0.2)
            assert it.phases[-1] is P.STOPPED
            assert session(state.pid) == {}
        never = Server(stub(tmp_path, name="s1"), groups)
        await never.stop(1.0)
        assert never.state().phase is P.STOPPED

    asyncio.run(run())


def test_a_cancelled_engine_leaves_nothing(tmp_path: Path, groups: Groups) -> None:
    leader = None

    async def run() -> None:
        nonlocal leader
        server = Server(stub(tmp_path, "--children", "2", "--ignore-term"), groups)
        await server.start()
        while server.state().phase is not P.READY:
            await asyncio.sleep(0.01)
        leader = server.state().pid
        assert len(session(leader)) == 4
        # and now the engine falls: nobody stops the server

    asyncio.run(run())
    assert session(leader) == {}


def test_stop_means_gone_however_often_it_is_asked(tmp_path: Path, groups: Groups) -> None:
    async def run() -> None:
        async with supervised(stub(tmp_path, "--children", "2"), groups) as it:
            leader = (await it.until(P.READY)).pid
            for _ in range(3):  # each cancels the supervisor, the later ones while it ends the group
                asking = asyncio.create_task(it.server.stop(0.0))
                await asyncio.sleep(0.002)
            await asking
            assert session(leader) == {}
            assert it.server.state().pid is None

    asyncio.run(run())


def test_restart_takes_new_flags(tmp_path: Path, groups: Groups) -> None:
    spec = stub(tmp_path)

    async def run() -> None:
        async with supervised(spec, groups) as it:
            first = await it.ready(1)
            assert first.mtp is False
            it.server.respec(replace(spec, command=(*spec.command, "--mtp")))
            await it.server.restart("MTP on")
            assert session(first.pid) == {}
            assert (await it.ready(2)).mtp is True
            assert set(it.reasons) == {"MTP on"}

    asyncio.run(run())


def test_restart_does_not_wait_for_a_back_off(tmp_path: Path, groups: Groups, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(supervision, "_BACKOFF_FIRST_S", 60.0)

    async def run() -> None:
        async with supervised(stub(tmp_path, "--die", "boom", "1"), groups) as it:
            await it.until(P.BACKOFF)
            it.server.respec(stub(tmp_path))
            await it.server.restart("by hand")
            await it.until(P.READY)

    asyncio.run(run())


def test_a_launch_waits_for_memory_but_not_for_ever(tmp_path: Path, groups: Groups) -> None:
    free = False

    async def memory_free() -> bool:
        return free

    async def run() -> None:
        nonlocal free
        async with supervised(stub(tmp_path), groups, memory_free) as it:
            state = await it.until(P.STARTING)
            assert "partly in use by others" in str(state.reason)
            await it.until(P.READY)
        async with supervised(stub(tmp_path), groups, memory_free) as it:
            free = True
            await it.until(P.READY)
            assert it.reasons == []

    asyncio.run(run())


@pytest.mark.slow
def test_a_crash_before_ready_is_tried_again(tmp_path: Path, groups: Groups) -> None:
    async def run() -> None:
        flags = ("--die", "Segmentation", "-11", "--die-once", str(tmp_path / "died"))
        async with supervised(stub(tmp_path, *flags), groups) as it:
            await it.until(P.READY)
            assert it.reasons[0].startswith("it crashed with SIGSEGV: Segmentation; next try in")

    asyncio.run(run())


def test_a_bug_of_our_own_is_told(tmp_path: Path, groups: Groups) -> None:
    async def broken() -> bool:
        raise LookupError("a bug")

    async def run() -> None:
        async with supervised(stub(tmp_path), groups, broken) as it:
            assert (await it.until(P.GIVEN_UP)).reason == "genmon itself failed: LookupError('a bug')"

    asyncio.run(run())
