"""The queue: every row to the server with the least to do, and back again when a server fails it.

A row leaves the queue for good in one of two ways: as a `Completion` or as a `Failure`, both handed to the
job's writer. Whatever else happens to it (a dead server, a 500, an abort, a drain that ran out of patience),
it is given back and generated again.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

from genmon.config.schema import RunConfig
from genmon.engine.attempts import Attempt, Fate
from genmon.engine.feed import RowFeed
from genmon.engine.generate import Generation, generate
from genmon.engine.hosts import Host
from genmon.engine.lanes import Flight, Lane
from genmon.errors import RowRefused, ServerError, ServerGone
from genmon.job.answers import RUBBISH
from genmon.job.row import Completion, Failure, Row
from genmon.state import AnswerClass, ServerState

_UNKNOWN_LENGTH_TOKENS = 2000
"""Expected completion length before any row has finished."""


_FULL = 0.9
"""A server with this share of the rows it may have is full: an answer that has just come is not a lack of work."""


class Dispatcher:
    """Keeps every ready server as full as it may be, until the feed is empty and nothing is in flight."""

    def __init__(
        self,
        config: RunConfig,
        host: Host,
        feed: RowFeed,
        submit: Callable[[Completion | Failure], None],
        judge: Callable[[AnswerClass], None],
        attempted: Callable[[Attempt], None],
    ) -> None:
        """`submit` takes a settled row; `judge` hears the class of every answer, also of those tried again;
        `attempted` hears of every attempt at a row when it has ended.
        """
        self._config, self._host, self._feed = config, host, feed
        self._submit, self._judge, self._attempted = submit, judge, attempted
        self._wake = feed.on_rows
        self._attempts: dict[int, int] = {}
        self._server_failures: dict[int, set[str]] = {}
        self._mean_tokens = float(_UNKNOWN_LENGTH_TOKENS)
        self.lanes: dict[str, Lane] = {}
        self.holding = False
        """While True nothing new is sent; what is in flight goes on."""
        self.retries = 0
        self.latency_s = 0.0
        """Of a typical row, seconds; 0 before the first."""
        setting = config.workers.concurrency
        self.concurrency: int | None = None if setting == "auto" else setting
        """Rows in flight a server; None finds each server's own knee."""

    @property
    def in_flight(self) -> int:
        """Rows in flight on all servers."""
        return sum(len(lane.flights) for lane in self.lanes.values())

    def hear(self, servers: tuple[ServerState, ...]) -> list[str]:
        """Take in the servers' states; wakes the queue. Sentences tell what concurrency was chosen."""
        chosen = []
        for state in servers:
            lane = self.lanes.get(state.name)
            if lane is None:
                lane = self.lanes[state.name] = Lane(state.name, state)
            lane.concurrency = self.concurrency
            if sentence := lane.hear(state):
                chosen.append(sentence)
            for flight in lane.overdue():
                flight.overdue = True
                flight.task.cancel()
        self._wake.set()
        return chosen

    def hold(self, holding: bool) -> None:
        """Stop or start sending."""
        self.holding = holding
        self._wake.set()

    async def run(self) -> None:
        """Send rows until there are none left and none in flight; raises what stopped the reader, if anything did."""
        while True:
            self._wake.clear()
            self._fill()
            if self._feed.trouble is not None:
                raise self._feed.trouble
            if self._feed.empty and not self.in_flight:
                return
            await self._wake.wait()

    def full(self, server: str) -> bool:
        """Whether a server has all the rows in flight that it may have: only then its speed says what it can."""
        lane = self.lanes.get(server)
        return lane is not None and not lane.held and len(lane.flights) >= _FULL * lane.limit

    def hold_server(self, server: str, holding: bool) -> None:
        """Stop or start sending to one server; the others take its share."""
        if server in self.lanes:
            self.lanes[server].held = holding
        self._wake.set()

    def flights(self, server: str | None = None) -> list[asyncio.Task[None]]:
        """What is in flight now, on one server or on all."""
        lanes = self.lanes.values() if server is None else filter(None, [self.lanes.get(server)])
        return [task for lane in lanes for task in lane.flights]

    async def drain(self, patience_s: float) -> None:
        """Wait up to `patience_s` seconds for what is in flight, then give the rest back. Call after `hold`."""
        tasks = self.flights()
        if tasks:
            await asyncio.wait(tasks, timeout=patience_s)
        await self.abandon()

    async def abandon(self, server: str | None = None) -> None:
        """Cancel what is in flight, on one server or on all; the rows go back to the queue."""
        tasks = self.flights(server)
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    def _fill(self) -> None:
        while not self.holding:
            open_lanes = [lane for lane in self.lanes.values() if lane.room]
            if not open_lanes:
                return
            row = self._feed.take()
            if row is None:
                return
            self._send(row, min(open_lanes, key=lambda lane: (lane.outstanding_tokens, len(lane.flights))))

    def _send(self, row: Row, lane: Lane) -> None:
        expected = self._expected_tokens(row)
        task = asyncio.create_task(self._fly(row, lane))
        lane.flights[task] = Flight(
            row=row,
            task=task,
            expected_tokens=(self._ceiling_tokens(row) or expected * 10),
            progress_at_start=lane.progress,
            since=time.monotonic(),
        )
        lane.outstanding_tokens += expected
        task.add_done_callback(lambda task: self._landed(task, row, lane, expected))

    def _landed(self, task: asyncio.Task[None], row: Row, lane: Lane, expected: int) -> None:
        lane.outstanding_tokens -= expected
        flight = lane.flights.pop(task)
        if task.cancelled():
            if flight.overdue:
                occasion = f"{lane.launch} overdue"
                self._blame(row, lane.name, "no answer came while its server gave others theirs", occasion)
            else:
                self._feed.give_back(row)
        elif (error := task.exception()) is not None:
            self._feed.trouble = error
        self._wake.set()

    async def _fly(self, row: Row, lane: Lane) -> None:
        number = self._attempts.get(row.position, 0) + 1
        launch = lane.launch
        started_at, started = time.time(), time.monotonic()
        made, trouble, fate = None, None, Fate.RETURNED
        try:
            made = await generate(self._host, lane.name, row, self._config.sampling, number)
        except RowRefused as error:
            lane.answered()
            self._attempts[row.position] = number
            trouble, fate = f"refused by the server: {error}", Fate.FAILED
            self._settle(self._failure(row, trouble, number))
        except ServerError as error:
            gone = isinstance(error, ServerGone)
            lane.failed(gone=gone)
            # A dead launch counts once against a row, however often the row was sent to its corpse.
            trouble = str(error)
            fate = self._blame(row, lane.name, trouble, launch if gone else f"{launch} attempt {number}")
            if not gone:
                self._attempts[row.position] = number
        else:
            lane.answered()
            self._attempts[row.position] = number
            fate = self._weigh(row, lane, launch, made, number)
        finally:
            self._attempted(
                Attempt(
                    row=row,
                    number=number,
                    launch=launch,
                    started_at=started_at,
                    latency_s=made.latency_s if made else time.monotonic() - started,
                    fate=fate,
                    made=made,
                    trouble=trouble,
                )
            )

    def _weigh(self, row: Row, lane: Lane, launch: str, made: Generation, attempt: int) -> Fate:
        """Decide what an answer is worth: kept, tried again, or the row given up."""
        limits = self._config.limits
        self._judge(made.answer_class)
        if made.answer_class is AnswerClass.ABORTED:
            return self._blame(row, lane.name, "the server aborted the answer", f"{launch} attempt {attempt}")
        again = made.answer_class in RUBBISH or (made.answer_class is AnswerClass.TRUNCATED and limits.retry_truncated)
        if again and attempt <= limits.retries:
            self.retries += 1
            self._feed.give_back(row)
            return Fate.RETRY
        if made.answer_class in RUBBISH:
            words = made.answer_class.value.replace("_", " ")
            failure = self._failure(row, f"the answer was {words} in each of {attempt} tries", attempt, made)
            self._settle(failure)
            return Fate.FAILED
        self.latency_s += (made.latency_s - self.latency_s) * (0.02 if self.latency_s else 1.0)
        if made.completion_tokens is not None:
            self._mean_tokens += (made.completion_tokens - self._mean_tokens) * 0.02
        self._settle(
            Completion(
                row=row,
                conversation=made.conversation,
                answer_class=made.answer_class,
                finish_reason=made.answers[-1].finish_reason,
                prompt_tokens=made.prompt_tokens,
                completion_tokens=made.completion_tokens,
                reasoning_tokens=made.reasoning_tokens,
                acceptance_length=made.acceptance_length,
                attempts=attempt,
                server=lane.name,
                launch=launch,
                started_at=made.started_at,
                latency_s=made.latency_s,
            )
        )
        return Fate.DONE

    def _blame(self, row: Row, server: str, reason: str, occasion: str) -> Fate:
        """A server failed this row: back to the queue, unless the row has now outlived too many servers."""
        occasions = self._server_failures.setdefault(row.position, set())
        occasions.add(occasion)
        if len(occasions) < self._config.limits.server_failures:
            self.retries += 1
            self._feed.give_back(row)
            return Fate.SERVER
        sentence = f"in flight {len(occasions)} times on servers that failed, the last on {server}: {reason}"
        self._settle(self._failure(row, sentence, self._attempts.get(row.position, 0)))
        return Fate.FAILED

    def _settle(self, settled: Completion | Failure) -> None:
        self._attempts.pop(settled.row.position, None)
        self._server_failures.pop(settled.row.position, None)
        self._submit(settled)

    @staticmethod
    def _failure(row: Row, reason: str, attempts: int, made: Generation | None = None) -> Failure:
        return Failure(
            row=row,
            reason=reason,
            attempts=attempts,
            conversation=made.conversation if made else (),
            answer_class=made.answer_class if made else None,
        )

    def _ceiling_tokens(self, row: Row) -> int | None:
        ceiling = row.params.get("max_tokens", row.params.get("max_completion_tokens"))
        if not isinstance(ceiling, int):
            ceiling = self._config.sampling.max_tokens
        return ceiling * len(row.turns) if ceiling else None

    def _expected_tokens(self, row: Row) -> int:
        expected = int(self._mean_tokens) * len(row.turns)
        ceiling = self._ceiling_tokens(row)
        return min(expected, ceiling) if ceiling else expected
