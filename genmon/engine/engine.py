"""One run: owns the tasks, holds the state, obeys commands.

Samples and commands go in, one frozen `State` comes out. A run ends in one of three ways: nothing is left to
generate, it was told to stop, or no server is left that could serve.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import deque
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from genmon import __version__
from genmon.commands import (
    CancelChange,
    Command,
    Dismiss,
    Drain,
    Pause,
    Plan,
    Promote,
    Restart,
    Resume,
    Revert,
    SetConcurrency,
    Stop,
)
from genmon.config.schema import RunConfig
from genmon.engine.changes import Changes
from genmon.engine.dispatch import Dispatcher
from genmon.engine.facts import run_facts
from genmon.engine.feed import RowFeed
from genmon.engine.hosts import Host, HostInfo, HostReport
from genmon.engine.launches import Launches
from genmon.engine.notify import Notifier
from genmon.engine.record import Log, Recorder
from genmon.engine.tally import Tally
from genmon.errors import GenmonError, Refused
from genmon.fleet.flags.flagset import argv
from genmon.fleet.process import masked
from genmon.job.answers import AnswerWindow
from genmon.job.job import Job
from genmon.job.row import Completion, Failure
from genmon.state import AnswerClass, Event, RunPhase, ServerPhase, ServerState, State, Tell, TellLevel
from genmon.tells.normal import Normal
from genmon.tells.table import rules
from genmon.tells.watch import Watch

_POLL_S = 1.0
_EVENTS_KEPT = 200
_ENDED = frozenset({RunPhase.FINISHED, RunPhase.STOPPED, RunPhase.FAILED})


class Outcome(Struct, frozen=True):
    """How a run ended: its phase, a sentence, and the exit code that says it."""

    phase: RunPhase
    sentence: str
    exit_code: int


class Engine:
    """One run of one job on one host."""

    def __init__(
        self,
        config: RunConfig,
        job: Job,
        host: Host,
        normal: Normal | None = None,
        *,
        log: Log | None = None,
        run: str = "",
    ) -> None:
        """The job is open and locked; the host is not yet asked anything. `normal` is what earlier runs taught,
        `run` the run's key in the log.
        """
        self._config, self._job, self._host = config, job, host
        self._feed = RowFeed(job.pending())
        self._window = AnswerWindow(config.limits.pause_window, config.limits.pause_above)
        self._record = Recorder(config, job.directory, log, run)
        self._dispatcher = Dispatcher(config, host, self._feed, job.submit, self._judge, self._record.attempt)
        self._tally = Tally(job, self._dispatcher)
        self._changes = Changes(config, host, self._dispatcher, self._look, self._say, self._show)
        self._holds: dict[str, str] = {}
        self._tells: dict[str, Tell] = {}
        self._watch = Watch(rules(Path(config.tells.rules) if config.tells.rules else None), run_facts(config), normal)
        self._notifier = Notifier(config.tells, config.name, self._say)
        self._events: deque[Event] = deque(maxlen=_EVENTS_KEPT)
        self._phase = RunPhase.STARTING
        self._reason: str | None = None
        self._end = asyncio.Event()
        self._launched = asyncio.Event()
        """Set once all servers were told to start, so that it is seen before the next look is due."""
        self._stopping: type[Drain] | type[Stop] | None = None
        self._report = HostReport(gpus=(), servers=())
        self._info: HostInfo | None = None
        self._launches = Launches(job.directory)
        self.state = self._compose()
        """The latest picture; replaced as a whole, so any thread may read it."""

    async def run(self) -> Outcome:
        """Run the job to its end. Never raises `GenmonError`: what stopped it is in the outcome."""
        try:
            outcome = await self._run()
        except GenmonError as error:
            outcome = Outcome(RunPhase.FAILED, str(error), 3)
        except OSError as error:
            outcome = Outcome(RunPhase.FAILED, f"The run cannot go on: {error}", 3)
        finally:
            await self._close()
        if unwritten := self._job.rows_unwritten:
            rows = "1 finished row was" if unwritten == 1 else f"{unwritten:,} finished rows were"
            sentence = f"{rows} not written: {self._job.trouble}. Make room; the same command generates them again"
            outcome = Outcome(RunPhase.FAILED, sentence, 3)
        left = await self._host.poll()  # the last picture shows the servers as they are left, not as they last served
        self._report = left
        self._events.extend(left.events)
        self._phase, self._reason = outcome.phase, outcome.sentence
        if outcome.phase is RunPhase.FINISHED and self._job.rows_failed:
            outcome = Outcome(outcome.phase, outcome.sentence, 1)
        self.state = self._compose()
        self._record.end(self.state)
        return outcome

    def plan(self, command: Command) -> Plan:
        """What a command would do, for a person to agree to. Call in the engine's event loop.

        Raises:
            Refused: it could not be obeyed now.
        """
        match command:
            case Drain() | Stop():
                in_flight = self._dispatcher.in_flight
                rows = "1 row is" if in_flight == 1 else f"{in_flight} rows are"
                after = "finish first" if isinstance(command, Drain) else "are generated again by the next run"
                return Plan(sentence=f"End the run: {rows} in flight and {after}.")
            case Pause():
                return Plan(sentence="Pause: nothing new is sent until p is pressed again; rows in flight go on.")
            case Resume() | SetConcurrency() | Dismiss():
                return Plan(sentence="Nothing is interrupted.")
            case Restart() | CancelChange() | Promote() | Revert():
                return self._changes.plan(command)

    def command(self, command: Command, by: str = "") -> str:
        """Obey a command; one sentence says what happens now. Call in the engine's event loop.

        `by` says who gave it, in words.

        Raises:
            Refused: it cannot be obeyed now.
        """
        try:
            sentence = self._obey(command, by)
        except Refused as refusal:
            self._record.command(command, by, str(refusal), obeyed=False)
            raise
        self._record.command(command, by, sentence, obeyed=True)
        self._show()
        return sentence

    def _obey(self, command: Command, by: str) -> str:
        match command:
            case Pause():
                self._hold("user", "paused by command")
                return "Paused: nothing new is sent, rows in flight go on."
            case Resume():
                self._tells.pop("rubbish", None)
                self._window.reset()
                self._holds.pop("answers", None)
                self._holds.pop("user", None)
                self._follow_holds()
                still = next(iter(self._holds.values()), None)
                return f"Still paused: {still}" if still else "Going on."
            case Drain() | Stop():
                if self._stopping is not Stop:
                    self._stopping = type(command)
                    self._say("stopping at once" if isinstance(command, Stop) else "draining: rows in flight finish")
                self._end.set()
                return "Stopping at once." if self._stopping is Stop else "Draining: rows in flight finish first."
            case SetConcurrency(concurrency):
                self._dispatcher.concurrency = concurrency
                self._dispatcher.hear(self._report.servers)
                return f"Concurrency: {concurrency if concurrency is not None else 'found for each server'}."
            case Dismiss(tell):
                if self._tells.pop(tell, None) is None and not self._watch.dismiss(tell):
                    raise Refused("This tell is gone already.")
                return "Dismissed."
            case Restart() | CancelChange() | Promote() | Revert():
                if self._stopping is not None:
                    raise Refused("The run is ending.")
                return self._changes.obey(command, by)

    async def _run(self) -> Outcome:
        if self._job.rows_skipped == self._job.rows_total:
            skipped = self._job.directory / "skipped.jsonl"
            return Outcome(RunPhase.FAILED, f"job.prompts: no usable row; {skipped} says why of each line.", 3)
        if self._nothing_left():
            return Outcome(RunPhase.FINISHED, "every row was already done", 0)
        self._info = await self._host.hello()
        self._changes.begin(self._info)
        if sentence := self._launches.changed_since(self._info.servers, masked(argv(self._info.flags))):
            self._say(sentence)
        await asyncio.to_thread(self._record.begin, self._compose(), self._info)
        loop = asyncio.get_running_loop()

        def durable(settled: list[Completion | Failure]) -> None:
            """Called in the writer's thread, also after this loop has ended."""
            with contextlib.suppress(RuntimeError):
                loop.call_soon_threadsafe(self._durable, settled)

        self._job.on_durable = durable
        polling = asyncio.create_task(self._poll_for_ever())
        measuring = asyncio.create_task(self._tally.measure_disk())
        launching = asyncio.create_task(self._launch(self._info.servers))
        sending = asyncio.create_task(self._dispatcher.run())
        ending = asyncio.create_task(self._end.wait())
        try:
            watched = {sending, ending, polling}
            while True:
                done, _ = await asyncio.wait(watched, return_when=asyncio.FIRST_COMPLETED)
                if polling in done:
                    return polling.result()
                if sending in done:
                    sending.result()
                    while self._job.trouble and not ending.done() and not polling.done():
                        await asyncio.wait({ending, polling}, timeout=_POLL_S)
                    return Outcome(RunPhase.FINISHED, "every row is done", 0)
                return await self._wind_down()
        finally:
            for task in (measuring, launching, sending, ending, polling):
                task.cancel()
            await asyncio.wait([measuring, launching, sending, ending, polling])

    async def _wind_down(self) -> Outcome:
        """Drain, unless it was to stop at once or is told so meanwhile."""
        self._phase = RunPhase.DRAINING
        self._dispatcher.hold(True)
        if self._stopping is Drain:
            self._end.clear()
            draining = asyncio.create_task(self._dispatcher.drain(self._config.limits.drain_s))
            while not draining.done() and self._stopping is Drain:
                ending = asyncio.create_task(self._end.wait())
                await asyncio.wait({draining, ending}, return_when=asyncio.FIRST_COMPLETED)
                ending.cancel()
                self._end.clear()
            draining.cancel()
            await asyncio.wait([draining])
        await self._dispatcher.abandon()
        if self._nothing_left():
            return Outcome(RunPhase.FINISHED, "every row is done", 0)
        return Outcome(RunPhase.STOPPED, "stopped; the same command goes on where this run ended", 130)

    async def _launch(self, servers: tuple[str, ...]) -> None:
        for number, server in enumerate(servers):
            if number:
                await asyncio.sleep(self._config.servers.stagger_s)
            await self._host.start(server)
        self._launched.set()

    async def _poll_for_ever(self) -> Outcome:
        while True:
            await self._look()
            servers, in_hand = self._report.servers, self._changes.in_hand
            if servers and all(s.phase is ServerPhase.GIVEN_UP and s.name not in in_hand for s in servers):
                reasons = {server.reason or "no reason known" for server in servers}
                return Outcome(RunPhase.FAILED, f"No server is left: {'; '.join(sorted(reasons))}", 3)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_POLL_S):
                    await self._launched.wait()
            self._launched.clear()

    async def _look(self) -> None:
        self._take_in(await self._host.poll())

    def _take_in(self, report: HostReport) -> None:
        now = time.time()
        self._report = report
        self._events.extend(report.events)
        for server in report.servers:
            self._record_launch(server)
        ready = any(server.phase is ServerPhase.READY for server in report.servers)
        self._tally.hear(report, now, ready=ready)
        if self._phase is RunPhase.STARTING and ready:
            self._phase = RunPhase.RUNNING
        trouble = self._job.trouble
        if trouble and "disk" not in self._holds:
            self._tell("disk", TellLevel.ALARM, trouble, "make room; the run goes on by itself")
            self._hold("disk", trouble)
        elif not trouble and "disk" in self._holds:
            self._tells.pop("disk", None)
            self._holds.pop("disk")
            self._say("the disk has room again: going on")
            self._follow_holds()
        for sentence in self._dispatcher.hear(report.servers):
            self._say(sentence)
        self._changes.hear(report, now)
        self._watch.see(self._compose())
        self._tell_of_log()
        self._notifier.hear((*self._tells.values(), *self._watch.tells))
        self._show()
        self._record.saw(self.state)

    def _tell_of_log(self) -> None:
        trouble = self._record.trouble
        if trouble is None:
            self._tells.pop("log", None)
        elif "log" not in self._tells or self._tells["log"].sentence != trouble:
            self._tell("log", TellLevel.LOOK, trouble, "the run goes on, and the log catches up by itself")

    def _record_launch(self, server: ServerState) -> None:
        try:
            self._launches.record(server)
        except OSError as error:
            self._say(f"launches.jsonl could not be written: {error}")

    def _durable(self, settled: list[Completion | Failure]) -> None:
        self._tally.settled(len(settled))

    def _judge(self, answer_class: AnswerClass) -> None:
        self._tally.answered(answer_class)
        self._window.add(answer_class)
        if self._window.tripped and "answers" not in self._holds:
            share = f"{self._window.share:.0%} of the last answers are empty, unclosed thoughts or loops"
            self._tell("rubbish", TellLevel.ALARM, f"Paused: {share}", "look at failed.jsonl; then resume or stop")
            self._hold("answers", share)
            self._show()

    def _hold(self, by: str, reason: str) -> None:
        self._holds[by] = reason
        self._say(f"paused: {reason}")
        self._follow_holds()

    def _follow_holds(self) -> None:
        self._dispatcher.hold(bool(self._holds))
        if self._phase in (RunPhase.RUNNING, RunPhase.PAUSED):
            self._phase = RunPhase.PAUSED if self._holds else RunPhase.RUNNING

    def _tell(self, id: str, level: TellLevel, sentence: str, mend: str) -> None:
        self._tells[id] = Tell(id=id, level=level, sentence=sentence, since=time.time(), mend=mend)

    def _say(self, text: str) -> None:
        self._events.append(Event(time.time(), text))

    def _nothing_left(self) -> bool:
        job = self._job
        return job.rows_done + job.rows_failed + job.rows_skipped >= job.rows_total

    async def _close(self) -> None:
        """End the servers first (rows that finish meanwhile are lost to no one), then write what is left."""
        await self._changes.close()
        await self._dispatcher.abandon()
        await self._feed.close()
        await self._host.close()
        await asyncio.to_thread(self._job.close)
        await self._notifier.close()

    def _show(self) -> None:
        self.state = self._compose()

    def _compose(self) -> State:
        now = time.time()
        reason = next(iter(self._holds.values()), self._reason) if self._phase not in _ENDED else self._reason
        return State(
            run=self._config.name,
            phase=self._phase,
            taken_at=now,
            started_at=self._tally.started_at,
            reason=reason,
            job=self._tally.job_state(self._report.servers, now, running=self._phase is RunPhase.RUNNING),
            servers=tuple(map(self._compose_server, self._changes.shown(self._report.servers))),
            gpus=self._report.gpus,
            tells=(*self._tells.values(), *self._watch.tells),
            not_checked=self._watch.not_checked,
            rings=self._notifier.rings,
            changes=self._changes.public(),
            events=tuple(self._events),
            concurrency=self._dispatcher.concurrency,
            simulated=self._config.simulation is not None or bool(self._info and self._info.simulated),
            genmon_version=__version__,
        )

    def _compose_server(self, server: ServerState) -> ServerState:
        lane = self._dispatcher.lanes.get(server.name)
        aim, usual_power = lane.limit if lane else None, self._watch.usual_power(server.name)
        return replace(server, aim=aim, usual_power=usual_power)
