"""Servers taken down and brought up again with other flags, while the others work on.

One restart: wait for a turn → send nothing more → wait for the rows in flight → give the rest back to the queue →
end the server → launch → smoke request → ready. Flags that do not come up are followed by those from before.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable

from msgspec.structs import replace

from genmon.config.schema import RunConfig
from genmon.engine.dispatch import Dispatcher
from genmon.engine.hosts import Host
from genmon.fleet.flags.flagset import FlagSet
from genmon.state import ServerPhase, ServerState

_LOOK_S = 0.2
_STOP_S = 20.0
"""Patience with a server told to end: 0.5.11 may wait for ever on requests it refused long ago."""
_START_FACTOR = 3.0
_START_MIN_S = 60.0
"""Other flags may compile other kernels: a start is never called too long before a minute."""
_FAILED = frozenset({ServerPhase.BACKOFF, ServerPhase.GIVEN_UP})


def why(state: ServerState) -> str:
    """Why a server does not serve, without what its supervision will do next."""
    return (state.reason or "no reason known").partition("; next try in")[0].rstrip(".")


class Order:
    """One change's wish, as the restarts in it see it: may be called off, says what happens."""

    def __init__(self, note: Callable[[str], None]) -> None:
        """`note` hears what happens now, in words."""
        self.note = note
        self.called_off = asyncio.Event()


class Rolling:
    """Restarts servers, at most `max_down` away at once."""

    def __init__(
        self, config: RunConfig, host: Host, dispatcher: Dispatcher, look: Callable[[], Awaitable[None]]
    ) -> None:
        """`look` polls the host at once and has its report heard everywhere."""
        self._config, self._host, self._dispatcher, self._look = config, host, dispatcher, look
        self.states: dict[str, ServerState] = {}
        """Each server as it was last heard of."""
        self._start_s: dict[str, float] = {}
        self.flags: dict[str, FlagSet] = {}
        """The launch flags of each server."""
        self.in_hand: set[str] = set()
        """Servers that are being restarted now."""

    def hear(self, servers: tuple[ServerState, ...]) -> None:
        """Take in the servers' states; learns how long a start takes."""
        for state in servers:
            self.states[state.name] = state
            if state.phase is ServerPhase.READY and state.launched_at is not None:
                self._start_s[state.name] = max(0.0, state.since - state.launched_at)

    def shown(self, servers: tuple[ServerState, ...]) -> tuple[ServerState, ...]:
        """The servers as views see them: one that gets no more rows is draining, whatever it knows itself."""
        return tuple(
            replace(state, phase=ServerPhase.DRAINING)
            if state.name in self.in_hand and state.phase is ServerPhase.READY
            else state
            for state in servers
        )

    async def restart(self, server: str, flags: FlagSet, order: Order) -> str | None:
        """Restart one server with these flags, or with its old ones again when they do not serve.

        Returns:
            Why it has not got them (called off, or one sentence of its log); None when it serves with them.
        """
        if not await self._turn(server, order):
            return "cancelled"
        old = self.flags[server]
        self._dispatcher.hold_server(server, True)
        try:
            if not await self._drain(server, order):
                return "cancelled"
            order.note(f"{server}: stopping")
            await self._host.stop(server, _STOP_S)
            trouble = await self._start(server, flags, order)
            if trouble is None:
                self.flags[server] = flags
            elif flags != old or order.called_off.is_set():
                await self._back(server, old, order, trouble)
            return trouble
        finally:
            self._dispatcher.hold_server(server, False)
            self.in_hand.discard(server)

    async def roll_back(self, server: str, flags: FlagSet, order: Order, why: str) -> None:
        """Give a server that does not work, and serves nobody, its old flags at once."""
        self.in_hand.add(server)
        try:
            await self._dispatcher.abandon(server)
            await self._back(server, flags, order, why)
        finally:
            self.in_hand.discard(server)

    async def _turn(self, server: str, order: Order) -> bool:
        """Wait until it may go down; one that is down already may at once. False when called off before."""
        while not order.called_off.is_set():
            away = [name for name in self.states if name != server and self._is_away(name)]
            if len(away) < self._config.servers.max_down or self._is_away(server):
                self.in_hand.add(server)
                return True
            order.note(f"{server}: waiting until {', '.join(sorted(away))} serves again")
            await asyncio.sleep(_LOOK_S)
        return False

    def _is_away(self, server: str) -> bool:
        if server in self.in_hand:
            return True
        return self.states[server].phase not in (ServerPhase.READY, ServerPhase.GIVEN_UP)

    async def _drain(self, server: str, order: Order) -> bool:
        """Wait for its rows in flight as long as that pays, then give the rest back. False when called off.

        Waiting costs what its empty places would have generated, giving back what the remaining rows have been given.
        When the first has come up to the second the rest is given back: never more than twice the least possible.
        """
        lane = self._dispatcher.lanes[server]
        deadline = time.monotonic() + self._config.limits.drain_s
        places, progress, idle_tokens = len(lane.flights), lane.progress, 0.0
        calling_off = asyncio.create_task(order.called_off.wait())
        try:
            while flights := self._dispatcher.flights(server):
                rows = "1 row" if len(flights) == 1 else f"{len(flights)} rows"
                order.note(f"{server}: waiting for {rows} in flight")
                await asyncio.wait({*flights, calling_off}, timeout=_LOOK_S, return_when=asyncio.FIRST_COMPLETED)
                if order.called_off.is_set():
                    return False
                idle_tokens += (places - len(lane.flights)) * (lane.progress - progress)
                progress = lane.progress
                if idle_tokens > lane.invested_tokens or time.monotonic() > deadline:
                    await self._dispatcher.abandon(server)
        finally:
            calling_off.cancel()
        return not order.called_off.is_set()

    async def _back(self, server: str, flags: FlagSet, order: Order, why: str) -> None:
        order.note(f"{server}: back to its old flags: {why}")
        await self._host.stop(server, 0.0)
        self.flags[server] = flags
        await self._start(server, flags, Order(order.note))

    async def _start(self, server: str, flags: FlagSet, order: Order) -> str | None:
        """Launch a stopped server and wait until it serves; why it does not, or None."""
        await self._look()
        before = self.states[server]
        limit_s = self._start_limit_s(server)
        deadline = time.monotonic() + limit_s
        order.note(f"{server}: starting")
        await self._host.start(server, flags)
        while not order.called_off.is_set():
            await self._look()
            now = self.states[server]
            if (now.phase, now.since) != (before.phase, before.since):
                if now.phase is ServerPhase.READY:
                    return None
                if now.phase in _FAILED:
                    return why(now)
            if time.monotonic() > deadline:
                return f"it was not ready after {limit_s:.0f} s"
            await asyncio.sleep(_LOOK_S)
        return "cancelled"

    def _start_limit_s(self, server: str) -> float:
        """Three times a usual start, where one was seen."""
        most_s = self._config.servers.start_timeout_s
        usual_s = self._start_s.get(server, max(self._start_s.values(), default=most_s))
        return min(most_s, max(_START_MIN_S, _START_FACTOR * usual_s))
