"""Flag changes of a run: planned, carried out one after the other, watched, and kept with their outcome."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable

from msgspec.structs import replace

from genmon.commands import CancelChange, Plan, Promote, Restart, Revert, ServerPlan
from genmon.config.schema import RunConfig
from genmon.engine.dispatch import Dispatcher
from genmon.engine.hosts import Host, HostInfo, HostReport
from genmon.engine.rolling import Order, Rolling, why
from genmon.errors import Refused
from genmon.fleet.edits import diff, edit, forbidden, words
from genmon.fleet.flags import FlagSet
from genmon.state import FlagChange, ServerFlags, ServerPhase, ServerState

ChangeCommand = Restart | CancelChange | Promote | Revert
_KEPT = 8
_PROBATION_S = 300.0
"""After new flags: so long they are on trial."""
_CRASHES = 2
"""So many crashes on trial, and they are taken back."""


class _Change:
    """A change under way or ended."""

    def __init__(
        self,
        public: FlagChange,
        command: Restart,
        before: dict[str, FlagSet],
        after: dict[str, FlagSet],
        show: Callable[[], None],
    ) -> None:
        self.public, self.command, self.before, self.after = public, command, before, after
        self._show = show
        self.order = Order(self._note)
        self.task: asyncio.Task[None] | None = None
        self.failed: str | None = None
        self.on_trial: dict[str, tuple[float, int]] = {}
        """When each changed server was ready, monotonic, and the number of that launch."""

    def _note(self, stage: str) -> None:
        if stage != self.public.stage:
            self.tell(stage=stage)

    def tell(self, **fields: object) -> None:
        """Change what views see of it."""
        self.public = replace(self.public, **fields)
        self._show()


class Changes:
    """Plans and obeys what is asked of launch flags."""

    def __init__(
        self,
        config: RunConfig,
        host: Host,
        dispatcher: Dispatcher,
        look: Callable[[], Awaitable[None]],
        say: Callable[[str], None],
        show: Callable[[], None],
    ) -> None:
        """`look` polls the host at once, `say` puts a line into the run's story, `show` makes a new picture of it."""
        self._config, self._say, self._show = config, say, show
        self._dispatcher = dispatcher
        self._rolling = Rolling(config, host, dispatcher, look)
        self._info: HostInfo | None = None
        self._changes: list[_Change] = []
        self._count = 0
        self._one_at_a_time = asyncio.Lock()
        self._rolling_back: set[asyncio.Task[None]] = set()

    @property
    def in_hand(self) -> frozenset[str]:
        """Servers that are being restarted: whatever state they are in, they are not lost."""
        return frozenset(self._rolling.in_hand)

    def begin(self, info: HostInfo) -> None:
        """Learn what the host launches, and how."""
        self._info = info
        self._rolling.flags = dict.fromkeys(info.servers, info.flags)

    def hear(self, report: HostReport) -> None:
        """Take in a poll; flags whose servers crash while on trial are taken back."""
        self._rolling.hear(report.servers)
        for change in self._changes:
            for server in list(change.on_trial):
                self._try(change, self._rolling.state(server))

    def public(self) -> tuple[FlagChange, ...]:
        """All changes under way and the last few that ended."""
        return tuple(change.public for change in self._changes)

    def shown(self, servers: tuple[ServerState, ...]) -> tuple[ServerState, ...]:
        """The servers as views see them."""
        return self._rolling.shown(servers)

    def plan(self, command: ChangeCommand) -> Plan:
        """What a command would do. Raises `Refused`."""
        if isinstance(command, CancelChange):
            change = self._under_way(command.id)
            return Plan(sentence=f"Cancel: {change.public.what}; servers not yet restarted keep their flags.")
        restart = self._as_restart(command)
        after = self._after(restart)
        flights = {server: len(self._dispatcher.flights(server)) for server in after}
        rows = sum(flights.values())
        waited = f"{'1 row' if rows == 1 else f'{rows} rows'} in flight finish first"
        one = (
            "one after the other" if self._config.servers.max_down == 1 else f"{self._config.servers.max_down} at once"
        )
        manner = f", {one}" if len(after) > 1 else ""
        return Plan(
            sentence=f"Restart {', '.join(after)}{manner}: {_what(restart)}; {waited}, the job goes on.",
            servers=tuple(
                ServerPlan(
                    server=server,
                    before=words(self._rolling.flags[server]),
                    after=words(flags),
                    in_flight=flights[server],
                )
                for server, flags in after.items()
            ),
        )

    def obey(self, command: ChangeCommand, by: str) -> str:
        """Begin a change, or end one. Raises `Refused`."""
        if isinstance(command, CancelChange):
            change = self._under_way(command.id)
            change.order.called_off.set()
            return f"Cancelled: {change.public.what}."
        restart = self._as_restart(command)
        after = self._after(restart)
        before = {server: self._rolling.flags[server] for server in after}
        self._count += 1
        change = _Change(
            FlagChange(
                id=self._count,
                what=_what(restart),
                servers=tuple(after),
                started_at=time.time(),
                by=by,
                flags=tuple(
                    ServerFlags(server=server, before=words(before[server]), after=words(flags))
                    for server, flags in after.items()
                ),
                canary=restart.canary,
                stage="waiting for the change before it" if self._one_at_a_time.locked() else "",
            ),
            restart,
            before,
            after,
            self._show,
        )
        self._changes.append(change)
        self._forget()
        change.task = asyncio.create_task(self._carry_out(change))
        return f"Restarting {', '.join(after)}: {change.public.what}."

    async def close(self) -> None:
        """Leave every change as it is: the servers are about to be ended."""
        tasks = [change.task for change in self._changes if change.task is not None] + list(self._rolling_back)
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    async def _carry_out(self, change: _Change) -> None:
        async with self._one_at_a_time:
            places = asyncio.Semaphore(self._config.servers.max_down)
            await asyncio.gather(*(self._restart(change, server, places) for server in change.after))
        self._end(change)

    async def _restart(self, change: _Change, server: str, places: asyncio.Semaphore) -> None:
        async with places:
            if change.failed is not None or change.order.called_off.is_set():
                return
            trouble = await self._rolling.restart(server, change.after[server], change.order)
        if change.order.called_off.is_set() and trouble is not None:
            return
        if trouble is not None:
            change.failed = f"{server}: {trouble}"
            changed = change.after[server] != change.before[server]
            change.tell(rolled_back=change.public.rolled_back or changed)
            return
        change.tell(done=(*change.public.done, server))
        if change.after[server] != change.before[server]:
            self._stop_trials(server)
            change.on_trial[server] = (time.monotonic(), self._rolling.state(server).launches)

    def _end(self, change: _Change) -> None:
        public = change.public
        left = [server for server in public.servers if server not in public.done]
        if change.failed is not None:
            kept = "it has its old flags again" if public.rolled_back else "genmon goes on trying"
            outcome = f"failed on {change.failed}; {kept}"
            rest = [server for server in left if not change.failed.startswith(f"{server}:")]
            if rest:
                outcome += f"; {', '.join(rest)} not changed"
        elif change.order.called_off.is_set() and left:
            outcome = f"cancelled: {', '.join(left)} not changed"
        else:
            outcome = "done"
        self._say(f"{public.what} on {', '.join(public.servers)}: {outcome}")
        change.tell(stage="", ended_at=time.time(), outcome=outcome)

    def _try(self, change: _Change, state: ServerState) -> None:
        """Look whether new flags prove themselves on one server."""
        since, launch = change.on_trial[state.name]
        if state.name in self._rolling.in_hand or time.monotonic() - since > _PROBATION_S:
            if state.name not in self._rolling.in_hand:
                del change.on_trial[state.name]
            return
        down = state.phase in (ServerPhase.BACKOFF, ServerPhase.GIVEN_UP)
        crashes = state.launches - launch + down
        if crashes < _CRASHES and state.phase is not ServerPhase.GIVEN_UP:
            return
        del change.on_trial[state.name]
        reason = why(state)
        outcome = f"{state.name} crashed with the new flags and has its old ones again: {reason}"
        self._say(f"{change.public.what}: {outcome}")
        change.tell(rolled_back=True, outcome=outcome)
        task = asyncio.create_task(self._roll_back(change, state.name, reason))
        self._rolling_back.add(task)
        task.add_done_callback(self._rolling_back.discard)

    async def _roll_back(self, change: _Change, server: str, reason: str) -> None:
        await self._rolling.roll_back(server, change.before[server], change.order, reason)
        change.tell(stage="")

    def _stop_trials(self, server: str) -> None:
        for change in self._changes:
            change.on_trial.pop(server, None)

    def _as_restart(self, command: Restart | Promote | Revert) -> Restart:
        if isinstance(command, Restart):
            return command
        raise Refused(f"{type(command).__name__} is not built yet.")

    def _after(self, command: Restart) -> dict[str, FlagSet]:
        """The flags of each server after a command. Raises `Refused`."""
        if self._info is None:
            raise Refused("No server is launched yet: wait a moment.")
        if not command.servers:
            raise Refused("No server is named.")
        after: dict[str, FlagSet] = {}
        for server in command.servers:
            self._refuse_server(server)
            flags = self._rolling.flags[server]
            version = self._rolling.state(server).version or self._info.sglang
            after[server] = edit(
                flags,
                mtp=command.mtp,
                unset=command.unset,
                set=command.set,
                version=version,
                mtp_config=self._config.servers.mtp,
            )
            asked = command.mtp is not None or command.set or command.unset
            if asked and not diff(flags, after[server]):
                raise Refused(f"Nothing would change: {server} has these flags already.")
            trouble = forbidden(after[server], version, self._info.known_flags)
            if trouble is not None:
                raise Refused(f"{server} would not start: {trouble}.")
        return after

    def _refuse_server(self, server: str) -> None:
        try:
            state = self._rolling.state(server)
        except KeyError:
            raise Refused(f"There is no server {server}.") from None
        if state.external:
            raise Refused(f"{server} was not started by genmon (servers.urls), so genmon cannot restart it.")
        if state.phase is ServerPhase.WAITING:
            raise Refused(f"{server} has not been launched yet: wait a moment.")
        for change in self._changes:
            public = change.public
            if public.ended_at is None and server in public.servers and server not in public.done:
                raise Refused(f"{server} is in a change under way ({public.what}): cancel it, or wait.")
        if server in self._rolling.in_hand:
            raise Refused(f"{server} is being given its old flags again: wait a moment.")

    def _under_way(self, id: int) -> _Change:
        for change in self._changes:
            if change.public.id == id and change.public.ended_at is None:
                return change
        raise Refused("That change has ended already.")

    def _forget(self) -> None:
        ended = [change for change in self._changes if change.public.ended_at is not None and not change.on_trial]
        for change in ended[: max(0, len(ended) - _KEPT)]:
            self._changes.remove(change)


def _what(command: Restart) -> str:
    """A change in words."""
    parts = [] if command.mtp is None else [f"MTP {'on' if command.mtp else 'off'}"]
    parts += [f"−{name}" for name in command.unset]
    parts += [name if value is True else f"{name}={value}" for name, value in command.set.items()]
    return ", ".join(parts) or "restart"
