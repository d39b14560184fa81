"""Engine and views apart: what a view sees, commands and refusals, stalls, logs, a gone engine."""

from __future__ import annotations

import asyncio
import random
import socket
import stat
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import msgspec
import pytest

from genmon.commands import Command, Pause, Plan, Restart, Resume, ServerPlan
from genmon.errors import Refused, StartError
from genmon.state import Event, GpuSample, RunPhase, ServerPhase, ServerState, State
from genmon.wire.address import find, running
from genmon.wire.client import SocketLink
from genmon.wire.messages import WIRE, EngineHello, FrameReader, FrameWriter, Snapshot
from genmon.wire.server import WireServer


class ScriptedEngine:
    """Shows the states it is given; obeys Pause, refuses Resume, plans restarts."""

    def __init__(self, state: State) -> None:
        self.state = state
        self.obeyed: list[tuple[Command, str]] = []

    def plan(self, command: Command) -> Plan:
        if not isinstance(command, Restart):
            raise Refused("Only restarts are planned here.")
        plans = tuple(ServerPlan(server=name, before=("a",), after=("b",), in_flight=3) for name in command.servers)
        return Plan(sentence="restarts", servers=plans)

    def command(self, command: Command, by: str = "") -> str:
        self.obeyed.append((command, by))
        if isinstance(command, Resume):
            raise Refused("The disk is full.")
        self.state = msgspec.structs.replace(self.state, phase=RunPhase.PAUSED)
        return "Paused."


def picture(at: float = 1000.0, servers: int = 2, log_path: Path | None = None, seed: int = 0) -> State:
    noise = random.Random(seed)
    return State(
        run="wired",
        phase=RunPhase.RUNNING,
        taken_at=at,
        started_at=900.0,
        servers=tuple(
            ServerState(
                host="here",
                name=f"s{number}",
                url=f"http://127.0.0.1:{30000 + number}",
                phase=ServerPhase.READY,
                since=950.0,
                gpu_uuid=f"GPU-{number}",
                gpu_index=number,
                argv=tuple(f"--flag-{n}={n}" for n in range(20)),
                tokens_per_s=noise.gauss(1700, 40),
                acceptance_length=noise.gauss(2.8, 0.05),
                kv_usage=noise.random(),
                decode_tokens=noise.randrange(10**8),
                in_flight=noise.randrange(32),
                launches=1,
                taken_at=at,
                log_path=str(log_path) if log_path else None,
            )
            for number in range(servers)
        ),
        gpus=tuple(
            GpuSample(
                host="here",
                index=number,
                uuid=f"GPU-{number}",
                name="NVIDIA H200",
                taken_at=at,
                power_w=noise.gauss(650, 8),
                power_instant_w=noise.gauss(650, 20),
                power_limit_w=700.0,
                energy_j=at * 650 + noise.random(),
                memory_used_b=noise.randrange(10**11),
            )
            for number in range(servers)
        ),
        events=tuple(Event(900.0 + n, f"s{n % servers}: something happened, number {n}") for n in range(200)),
    )


@asynccontextmanager
async def serving(directory: Path, engine: ScriptedEngine) -> AsyncIterator[WireServer]:
    server = WireServer(engine, directory)
    await server.open()
    try:
        yield server
    finally:
        await server.close()


async def closed(writer: asyncio.StreamWriter) -> None:
    writer.close()
    with suppress(OSError):
        await writer.wait_closed()


def shows(link: SocketLink, at: float) -> Callable[[], bool]:
    return lambda: link.state is not None and link.state.taken_at == at


async def until(condition: Callable[[], bool], link: SocketLink) -> None:
    """Wait for what arrives, not for time."""
    async with asyncio.timeout(10):
        while not condition():
            link.arrived.clear()
            if condition():
                return
            await link.arrived.wait()


@pytest.fixture(autouse=True)
def _own_list_of_engines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


def test_two_views_see_the_same_and_a_command_of_one_reaches_both(tmp_path: Path) -> None:
    async def scenario() -> None:
        engine = ScriptedEngine(picture())
        async with serving(tmp_path, engine), SocketLink(tmp_path) as one, SocketLink(tmp_path) as two:
            assert await one.first() == engine.state == await two.first()
            assert await one.do(Pause()) == "Paused."
            await until(lambda: two.state is not None and two.state.phase is RunPhase.PAUSED, two)
            assert two.state == engine.state
            command, by = engine.obeyed[0]
            assert command == Pause()
            assert by

    asyncio.run(scenario())


def test_a_refusal_comes_back_as_its_sentence_and_a_plan_as_a_plan(tmp_path: Path) -> None:
    async def scenario() -> None:
        engine = ScriptedEngine(picture())
        async with serving(tmp_path, engine), SocketLink(tmp_path) as link:
            with pytest.raises(Refused, match="The disk is full"):
                await link.do(Resume())
            plan = await link.plan(Restart(servers=("s1",), mtp=True))
            assert plan.servers[0].server == "s1"
            assert plan.servers[0].in_flight == 3
            assert engine.obeyed == [(Resume(), engine.obeyed[0][1])]

    asyncio.run(scenario())


def test_the_past_comes_along_so_that_a_late_view_draws_the_same_plots(tmp_path: Path) -> None:
    async def scenario() -> None:
        engine = ScriptedEngine(picture(at=1000.0))
        async with serving(tmp_path, engine), SocketLink(tmp_path) as early:
            for second in range(1, 6):
                engine.state = picture(at=1000.0 + second, seed=second)
                await until(shows(early, 1000.0 + second), early)
            async with SocketLink(tmp_path) as late:
                await late.first()
                assert late.history.tracks() == early.history.tracks()
                assert [point.at for point in late.history.track("s0").seconds] == [1000.0 + n for n in range(6)]

    asyncio.run(scenario())


def test_a_gone_engine_leaves_its_last_picture_and_is_found_again(tmp_path: Path) -> None:
    async def scenario() -> None:
        engine = ScriptedEngine(picture())
        async with serving(tmp_path, engine):
            link = SocketLink(tmp_path)
            await link.__aenter__()
            before = await link.first()
        await until(lambda: not link.connected, link)
        assert link.state == before
        assert "gone" in (link.trouble or "")
        with pytest.raises(Refused, match="gone"):
            await link.do(Pause())
        again = ScriptedEngine(picture(at=2000.0))
        async with serving(tmp_path, again):
            await until(shows(link, 2000.0), link)
            assert link.trouble is None
            assert await link.do(Pause()) == "Paused."
            await link.__aexit__(None, None, None)

    asyncio.run(scenario())


def test_a_run_that_ended_shows_its_last_state_and_says_so(tmp_path: Path) -> None:
    async def scenario() -> None:
        engine = ScriptedEngine(picture())
        server = WireServer(engine, tmp_path)
        await server.open()
        async with SocketLink(tmp_path) as link:
            await link.first()
            engine.state = msgspec.structs.replace(engine.state, phase=RunPhase.FINISHED)
            await server.close()
            await until(lambda: not link.connected, link)
            assert link.ended
            assert link.trouble == "The run has ended."
        assert find(tmp_path) is None

    asyncio.run(scenario())


def test_a_view_that_does_not_read_holds_up_nobody(tmp_path: Path) -> None:
    async def scenario() -> None:
        engine = ScriptedEngine(picture(servers=8))
        async with serving(tmp_path, engine), SocketLink(tmp_path) as link:
            reader, writer = await asyncio.open_unix_connection(str(tmp_path / "engine.sock"))
            writer.write(b'{"wire":1,"genmon":"0"}\n')
            await reader.readline()
            writer.transport.pause_reading()  # type: ignore[attr-defined]
            for second in range(100):
                noise = random.Random(second).randbytes(20_000).hex()
                state = picture(at=1001.0 + second, servers=8)
                engine.state = msgspec.structs.replace(state, events=(Event(1.0, noise),))
                assert await link.do(Pause()) == "Paused."
            await until(shows(link, 1100.0), link)
            await closed(writer)

    asyncio.run(scenario())


def test_another_wire_is_refused_with_a_sentence(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with serving(tmp_path, ScriptedEngine(picture())):
            reader, writer = await asyncio.open_unix_connection(str(tmp_path / "engine.sock"))
            writer.write(b'{"wire":%d,"genmon":"9.9"}\n' % (WIRE + 1))
            hello = msgspec.json.decode(await reader.readline(), type=EngineHello)
            assert hello.refused is not None
            assert "genmon 9.9" in hello.refused
            assert await reader.read() == b""
            await closed(writer)

    asyncio.run(scenario())


def test_rubbish_on_the_socket_harms_nothing(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with serving(tmp_path, ScriptedEngine(picture())), SocketLink(tmp_path) as link:
            for rubbish in (b"GET / HTTP/1.1\r\n\r\n", b"\x00" * 100, b'{"wire":1,"genmon":"0"}\n\xff\xff\xff\xff'):
                reader, writer = await asyncio.open_unix_connection(str(tmp_path / "engine.sock"))
                writer.write(rubbish)
                writer.write_eof()
                await reader.read()
                await closed(writer)
            assert await link.do(Pause()) == "Paused."

    asyncio.run(scenario())


def test_a_followed_log_shows_its_last_lines_and_then_what_comes(tmp_path: Path) -> None:
    log = tmp_path / "s0.log"
    log.write_text("".join(f"line {n}\n" for n in range(1000)))

    async def scenario() -> None:
        async with serving(tmp_path, ScriptedEngine(picture(log_path=log))), SocketLink(tmp_path) as link:
            await link.follow("s0")
            seen: list[str] = []

            async def wait_for(line: str) -> None:
                async with asyncio.timeout(10):
                    while line not in seen:
                        for batch in link.take_log():
                            seen.extend(batch.lines)
                        await asyncio.sleep(0.02)

            await wait_for("line 999")
            assert seen[0] == "line 800"
            with log.open("a") as file:
                file.write("torn")
                file.flush()
                file.write(" and whole\x1b[31m\n")
            await wait_for("torn and whole [31m")
            log.write_text("after a restart\n")
            await wait_for("after a restart")

    asyncio.run(scenario())


def test_the_socket_is_this_users_alone_and_the_list_knows_the_run(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with serving(tmp_path, ScriptedEngine(picture())):
            assert stat.S_IMODE((tmp_path / "engine.sock").stat().st_mode) == 0o600
            assert [address.run for address in await asyncio.to_thread(running)] == ["wired"]

    asyncio.run(scenario())
    assert running() == ()


def test_a_path_too_long_for_a_socket_is_served_all_the_same(tmp_path: Path) -> None:
    deep = tmp_path / ("d" * 90) / ("e" * 90)
    deep.mkdir(parents=True)

    async def scenario() -> None:
        engine = ScriptedEngine(picture())
        async with serving(deep, engine), SocketLink(deep) as link:
            assert await link.first() == engine.state

    asyncio.run(scenario())


def test_a_socket_left_by_a_killed_engine_is_no_engine(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as dead:
        dead.bind(str(tmp_path / "engine.sock"))
    (tmp_path / "engine.json").write_bytes(
        msgspec.json.encode(
            {
                "run": "dead",
                "directory": str(tmp_path),
                "socket": str(tmp_path / "engine.sock"),
                "pid": 1,
                "host": socket.gethostname(),
                "started_at": time.time(),
                "genmon": "0",
            }
        )
    )
    assert find(tmp_path) is None

    async def scenario() -> None:
        with pytest.raises(StartError, match="No engine runs"):
            await SocketLink(tmp_path).__aenter__()
        async with serving(tmp_path, ScriptedEngine(picture())), SocketLink(tmp_path) as link:
            await link.first()

    asyncio.run(scenario())


def test_eight_gpus_at_1_hz_fit_a_slow_link() -> None:
    writer, reader = FrameWriter(compress=True), FrameReader(compressed=True)
    states = [picture(at=1000.0 + second, servers=8, seed=second) for second in range(60)]
    frames = [writer.pack(Snapshot(state)) for state in states]
    decoder = msgspec.msgpack.Decoder(Snapshot)
    assert [decoder.decode(body).state for frame in frames for body in reader.feed(frame)] == states
    assert max(len(frame) for frame in frames[1:]) < 8_000


def test_frames_cut_anywhere_come_out_whole() -> None:
    writer, reader = FrameWriter(compress=True), FrameReader(compressed=True)
    stream = b"".join(writer.pack(Snapshot(picture(at=1000.0 + n, seed=n))) for n in range(5))
    bodies = [body for cut in range(0, len(stream), 7) for body in reader.feed(stream[cut : cut + 7])]
    times = [msgspec.msgpack.decode(body, type=Snapshot).state.taken_at for body in bodies]
    assert times == [1000.0 + n for n in range(5)]
