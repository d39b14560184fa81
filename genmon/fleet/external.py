"""A server that somebody else runs: proved and watched like our own, never started, stopped or restarted."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

from msgspec.structs import replace

from genmon.errors import ServerBusy, ServerError
from genmon.fleet.http import ServerInfo, SglangHttp
from genmon.fleet.pulse import Pulse
from genmon.state import ServerPhase, ServerState

_POLL_S = 1.0
_RETRY_S = 2.0
_INFO_EVERY_S = 30.0


class ExternalServer:
    """The same face as `Server`, for `servers.urls`; it has no flags of ours, so there is no `respec`."""

    def __init__(self, *, host: str, name: str, url: str, model_name: str, api_key: str | None) -> None:
        """`url` is http://host:port."""
        self._model_name, self._api_key = model_name, api_key
        self._watching: asyncio.Task[None] | None = None
        self.in_flight = 0
        self.on_change: Callable[[ServerState], None] | None = None
        self._state = ServerState(
            host=host, name=name, url=url, phase=ServerPhase.WAITING, since=time.time(), external=True
        )

    def state(self) -> ServerState:
        """The server as it is known now."""
        return self._state

    def row_finished(self) -> None:
        """Nothing to forgive: it is never given up."""

    async def start(self) -> None:
        """Begin to watch; returns at once."""
        if self._watching is None:
            self._watching = asyncio.create_task(self._watch())

    async def restart(self, reason: str) -> None:
        """Prove it anew, no more: it is somebody else's."""
        await self.stop(0.0)
        await self.start()

    async def stop(self, deadline_s: float) -> None:
        """Stop watching. The server goes on."""
        if self._watching is not None:
            self._watching.cancel()
            await asyncio.wait([self._watching])
            self._watching = None
        self._change(ServerPhase.STOPPED)

    async def _watch(self) -> None:
        http = SglangHttp(self._state.url, self._api_key)
        try:
            self._change(ServerPhase.SMOKE)
            while True:
                try:
                    await self._prove(http)
                    await self._poll(http)
                except ServerError as error:
                    self._state = replace(self._state, running=None, queued=None, tokens_per_s=None)
                    self._change(ServerPhase.BACKOFF, str(error))
                await asyncio.sleep(_RETRY_S)
        finally:
            await http.close()

    async def _prove(self, http: SglangHttp) -> None:
        await http.smoke(self._model_name)
        try:
            info = await http.info()
        except ServerBusy:
            info = ServerInfo()  # it serves: that its own words cannot be read hinders nothing
        self._state = replace(
            self._state,
            launches=self._state.launches + 1,
            version=info.version,
            mtp=info.mtp,
            cap=info.cap,
            cap_requested=info.cap_requested,
            overlap=info.overlap,
            cuda_graph_max_batch=info.cuda_graph_max_batch,
            simulated=info.simulated,
        )
        self._change(ServerPhase.READY)

    async def _poll(self, http: SglangHttp) -> None:
        """Poll until it does not answer twice in a row."""
        pulse = Pulse(http)
        asked_at, missed = time.monotonic(), 0
        while True:
            await asyncio.sleep(_POLL_S)
            try:
                self._state = await pulse.take(self._state, self.in_flight)
                if time.monotonic() - asked_at > _INFO_EVERY_S:
                    asked_at = time.monotonic()
                    info = await http.info()
                    self._state = replace(self._state, cap=info.cap or self._state.cap, mtp=info.mtp)
                missed = 0
            except ServerError:
                missed += 1
                if missed == 2:
                    raise

    def _change(self, phase: ServerPhase, reason: str | None = None) -> None:
        if (phase, reason) != (self._state.phase, self._state.reason):
            self._state = replace(self._state, phase=phase, reason=reason, since=time.time())
            if self.on_change is not None:
                self.on_change(self._state)
