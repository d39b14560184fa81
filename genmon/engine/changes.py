"""Flag changes of a run: planned, carried out one after the other, on trial, and kept with their outcome."""

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
from genmon.engine.slices import Slices
from genmon.engine.trial import Trial
from genmon.engine.wishes import Fleet, Wish
from genmon.errors import GenmonError, Refused
from genmon.fleet.flags.flagset import FlagSet, diff
from genmon.state import FlagChange, ServerState

ChangeCommand = Restart | CancelChange | Promote | Revert
_KEPT = 8


class _Change:
    """A change under way, on trial, or ended."""

    def __init__(
        self, public: FlagChange, wish: Wish, before: dict[str, FlagSet], trial: Trial, show: Callable[[], None]
    ) -> None:
        self.public, self.wish, self.before, self.trial, self._show = public, wish, before, trial, show
        self.order = Order(self._note)
        self.task: asyncio.Task[None] | None = None
        self.failed: str | None = None

    def alters(self, server: str) -> bool:
        """Whether this server's flags become others."""
        return bool(diff(self.before[server], self.wish.after[server]))

    def tell(self, **fields: object) -> None:
        """Change what views see of it."""
        self.public = replace(self.public, **fields)
        self._show()

    def _note(self, stage: str) -> None:
        if stage != self.public.stage:
            self.tell(stage=stage)


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
        self._slices = Slices(dispatcher.full, lambda: dispatcher.latency_s)
        self._flags_since: dict[str, float] = {}
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

    def hear(self, report: HostReport, now: float) -> None:
        """Take in a poll at `now`: flags whose servers crash are taken back, verdicts are found."""
        self._rolling.hear(report.servers)
        self._slices.hear(report.servers, report.gpus, now)
        for change in self._changes:
            for state in report.servers:
                if state.name not in self._rolling.in_hand and change.trial.crashed(state):
                    self._take_back(change, state)
            verdict = change.trial.verdict() if change.public.ended_at is not None else None
            if verdict is not None:
                change.tell(verdict=verdict)
                if verdict.settled:
                    self._say(f"{change.public.what}: {verdict.word}: {verdict.sentence}")

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
        fleet = self._fleet()
        wish = self._wish(fleet, command)
        flights = {server: len(self._dispatcher.flights(server)) for server in wish.after}
        rows = sum(flights.values())
        at_once = self._config.servers.max_down
        manner = "" if len(flights) == 1 else ", one after the other" if at_once == 1 else f", {at_once} at once"
        waited = f"{'1 row' if rows == 1 else f'{rows} rows'} in flight finish first, as far as waiting pays"
        return Plan(
            sentence=f"Restart {', '.join(flights)}{manner}: {wish.what}; {waited}, the job goes on."
            + _unfair(wish, fleet),
            servers=tuple(
                ServerPlan(server=each.server, before=each.before, after=each.after, in_flight=flights[each.server])
                for each in fleet.differences(wish)
            ),
        )

    def obey(self, command: ChangeCommand, by: str) -> str:
        """Begin a change, or end one. Raises `Refused`."""
        if isinstance(command, CancelChange):
            change = self._under_way(command.id)
            change.order.called_off.set()
            return f"Cancelled: {change.public.what}."
        fleet = self._fleet()
        wish = self._wish(fleet, command)
        self._count += 1
        public = FlagChange(
            id=self._count,
            what=wish.what,
            servers=tuple(wish.after),
            started_at=time.time(),
            by=by,
            flags=fleet.differences(wish),
            canary=wish.canary,
            stage="waiting for the change before it" if self._one_at_a_time.locked() else "",
        )
        before = {server: self._rolling.flags[server] for server in wish.after}
        trial = Trial(self._slices, [server for server in fleet.states if server not in wish.after])
        change = _Change(public, wish, before, trial, self._show)
        self._changes.append(change)
        self._forget()
        change.task = asyncio.create_task(self._carry_out(change))
        change.task.add_done_callback(lambda task: self._ended_badly(change, task))
        return f"Restarting {', '.join(wish.after)}: {wish.what}."

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
            await asyncio.gather(*(self._restart(change, server, places) for server in change.wish.after))
        self._end(change)

    async def _restart(self, change: _Change, server: str, places: asyncio.Semaphore) -> None:
        async with places:
            if change.failed is not None or change.order.called_off.is_set():
                return
            try:
                trouble = await self._rolling.restart(server, change.wish.after[server], change.order)
            except (GenmonError, OSError) as error:
                trouble = str(error)
        state = self._rolling.states[server]
        if trouble is None:
            if change.alters(server):
                self._leave_out(server)
                change.trial.begin(state, self._flags_since.get(server, 0.0))
                self._flags_since[server] = state.since
            change.tell(done=(*change.public.done, server))
        elif not change.order.called_off.is_set():
            change.failed = f"{server}: {trouble}"
            change.tell(rolled_back=change.public.rolled_back or change.alters(server))
        for each in self._changes:
            each.trial.restarted(state)

    def _ended_badly(self, change: _Change, task: asyncio.Task[None]) -> None:
        """A bug of genmon's own is told, and does not keep its servers from being changed for ever."""
        if not task.cancelled() and (error := task.exception()) is not None:
            change.failed = f"genmon itself: {error!r}"
            self._end(change)

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
        self._say(f"{', '.join(public.servers)}: {public.what}: {outcome}")
        change.tell(stage="", ended_at=time.time(), outcome=outcome)

    def _take_back(self, change: _Change, state: ServerState) -> None:
        """New flags whose server crashes are replaced by those before them."""
        reason = why(state)
        outcome = f"{state.name} crashed with the new flags and has its old ones again: {reason}"
        self._say(f"{change.public.what}: {outcome}")
        self._leave_out(state.name)
        self._rolling.in_hand.add(state.name)  # from now on, or the run would end for want of a server
        change.tell(rolled_back=True, outcome=outcome)
        task = asyncio.create_task(self._roll_back(change, state.name, reason))
        self._rolling_back.add(task)
        task.add_done_callback(self._rolling_back.discard)
        task.add_done_callback(lambda task: self._ended_badly(change, task))

    async def _roll_back(self, change: _Change, server: str, reason: str) -> None:
        await self._rolling.roll_back(server, change.before[server], change.order, reason)
        self._flags_since[server] = self._rolling.states[server].since
        change.tell(stage="")

    def _leave_out(self, server: str) -> None:
        for change in self._changes:
            change.trial.leave_out(server)

    def _fleet(self) -> Fleet:
        if self._info is None:
            raise Refused("No server is launched yet: wait a moment.")
        return Fleet(self._info, self._rolling.states, self._rolling.flags, self._config.servers.mtp)

    def _wish(self, fleet: Fleet, command: Restart | Promote | Revert) -> Wish:
        """What a command asks for, if it can be begun now."""
        match command:
            case Restart():
                wish = fleet.wish(command)
            case Promote(id):
                change = self._ended(id)
                if not change.public.done or change.public.rolled_back:
                    raise Refused(f"{change.public.what} did not work: there is nothing to promote.")
                wish = fleet.promoted(change.wish, change.public.servers)
            case Revert(id):
                change = self._ended(id)
                wish = fleet.reverted(change.wish, {server: change.before[server] for server in change.public.done})
        for server in wish.after:
            for change in self._changes:
                public = change.public
                if public.ended_at is None and server in public.servers and server not in public.done:
                    raise Refused(f"{server} is in a change under way ({public.what}): cancel it, or wait.")
            if server in self._rolling.in_hand:
                raise Refused(f"{server} is being given its old flags again: wait a moment.")
        return wish

    def _under_way(self, id: int) -> _Change:
        change = self._find(id)
        if change.public.ended_at is not None:
            raise Refused(f"That change has ended already: {change.public.what}.")
        return change

    def _ended(self, id: int) -> _Change:
        change = self._find(id)
        if change.public.ended_at is None:
            raise Refused(f"{change.public.what} is still under way: cancel it, or wait.")
        return change

    def _find(self, id: int) -> _Change:
        for change in self._changes:
            if change.public.id == id:
                return change
        raise Refused(f"There is no change {id} any more.")

    def _forget(self) -> None:
        ended = [change for change in self._changes if change.public.ended_at is not None and not change.trial.open]
        for change in ended[: max(0, len(ended) - _KEPT)]:
            self._changes.remove(change)


def _unfair(wish: Wish, fleet: Fleet) -> str:
    """What a comparison would also be of: MTP takes the radix cache away where it would not start with it."""
    off = "disable-radix-cache"
    if any(flags.get(off) and not fleet.flags[server].get(off) for server, flags in wish.after.items()):
        return " The radix cache goes off with it, so the verdict is on both."
    return ""
