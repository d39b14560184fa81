"""SGLang's endpoints as the fleet asks them, and servers that somebody else runs."""

from __future__ import annotations

import asyncio
import subprocess
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

import pytest

from genmon.errors import ServerBusy, ServerGone
from genmon.fleet import external
from genmon.fleet.external import ExternalServer
from genmon.fleet.http import HttpStatus, SglangHttp
from genmon.state import ServerPhase, ServerState
from tests.fleet import DEADLINE_S, STUB, free_port, get, post, until


@contextmanager
def running(*flags: str, port: int | None = None) -> Iterator[str]:
    """A stub that nobody supervises; its URL."""
    port = port or free_port()
    process = subprocess.Popen([*STUB, "--port", str(port), *flags], stdout=subprocess.PIPE)
    assert process.stdout is not None
    try:
        process.stdout.readline()
        yield f"http://127.0.0.1:{port}"
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


T = TypeVar("T")


def asked(url: str, ask: Callable[[SglangHttp], Awaitable[T]], key: str | None = None) -> T:
    async def run() -> T:
        http = SglangHttp(url, key)
        try:
            return await ask(http)
        finally:
            await http.close()

    return asyncio.run(run())


def test_every_answer_is_understood_or_a_server_error() -> None:
    with running("--api-key", "sk-1", "--mtp") as url:
        info = asked(url, lambda http: http.info(), "sk-1")
        assert (info.version, info.mtp, info.cap, info.cap_requested) == ("0.5.11", True, 48, 64)
        assert "sk-1" not in repr(info)
        loads = asked(url, lambda http: http.loads(), "sk-1")
        assert (loads.running, loads.queued, loads.tokens_per_s) == (3, 1, None)
        assert asked(url, lambda http: http.answers())  # a locked door is an answer
        with pytest.raises(HttpStatus, match="HTTP 401") as refused:
            asked(url, lambda http: http.info())
        assert refused.value.status == 401
        asked(url, lambda http: http.abort("row-7"), "sk-1")
        assert get(url + "/aborted") == ["row-7"]
        with pytest.raises(ValueError, match="every request"):
            asked(url, lambda http: http.abort(""), "sk-1")
        post(url + "/stub", {"smoke": "blank"})
        with pytest.raises(ServerBusy, match="answered with nothing"):
            asked(url, lambda http: http.smoke("m"), "sk-1")
    assert not asked(url, lambda http: http.answers())
    with pytest.raises(ServerGone, match="cannot be reached"):
        asked(url, lambda http: http.metrics())


def test_without_metrics_there_are_none() -> None:
    with running("--no-metrics") as url:
        assert asked(url, lambda http: http.metrics()) is None


@pytest.mark.parametrize(
    "reply",
    [b"", b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\n<a>", b"HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\n{"],
)
def test_rubbish_is_a_server_error(reply: bytes) -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(reply)
        writer.close()

    async def run() -> None:
        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        http = SglangHttp(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}", None)
        try:
            for ask in (http.info, http.loads):
                with pytest.raises((ServerBusy, ServerGone)):
                    await ask()
        finally:
            await http.close()
            server.close()
            await server.wait_closed()

    asyncio.run(run())


def test_anothers_server_is_used_and_never_touched(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(external, "_POLL_S", 0.05)
    monkeypatch.setattr(external, "_RETRY_S", 0.05)
    port = free_port()
    told: list[ServerState] = []

    async def run() -> None:
        server = ExternalServer(host="here", name="s0", url=f"http://127.0.0.1:{port}", model_name="m", api_key=None)
        server.on_change = told.append

        async def reach(phase: ServerPhase) -> ServerState:
            async with asyncio.timeout(DEADLINE_S):
                while server.state().phase is not phase:
                    await asyncio.sleep(0.01)
            return server.state()

        await server.start()
        assert "cannot be reached" in str((await reach(ServerPhase.BACKOFF)).reason)
        with running("--mtp", port=port):
            state = await reach(ServerPhase.READY)
            assert (state.external, state.mtp, state.cap, state.launches) == (True, True, 48, 1)
            await asyncio.to_thread(until, lambda: server.state().tokens_per_s is not None, "polled")
        state = await reach(ServerPhase.BACKOFF)
        assert (state.running, state.tokens_per_s) == (None, None)
        before = len(told)
        await asyncio.sleep(0.3)  # several more tries
        assert len(told) == before  # one story, told once
        with running(port=port) as url:
            state = await reach(ServerPhase.READY)
            assert (state.launches, state.mtp) == (2, False)
            await server.restart("somebody pressed a key")
            await reach(ServerPhase.READY)
            await server.stop(0.0)
            assert server.state().phase is ServerPhase.STOPPED
            assert get(url + "/model_info") == {"model_path": "m"}  # it goes on

    asyncio.run(run())
