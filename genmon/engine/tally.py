"""How far the job is: rows, rates, the time left, answer classes and energy, from all that counts them."""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import time
from collections import Counter

from genmon.engine.dispatch import Dispatcher
from genmon.engine.hosts import HostReport
from genmon.engine.meter import Meter
from genmon.engine.pace import Pace
from genmon.job.job import Job
from genmon.state import AnswerClass, JobState, ServerState

_DISK_EVERY_S = 10.0


class Tally:
    """Counts for one run; `job_state` is what views see of it."""

    def __init__(self, job: Job, dispatcher: Dispatcher) -> None:
        """The run begins now."""
        self._job, self._dispatcher = job, dispatcher
        self.started_at = time.time()
        self._tokens_at_start = job.tokens
        self._meter = Meter()
        self._pace: Pace | None = None
        self._answers: Counter[AnswerClass] = Counter()
        self._disk_free_b: int | None = None

    def hear(self, report: HostReport, now: float, *, ready: bool) -> None:
        """Take in a poll; the pace counts from the first server that is ready."""
        self._meter.add(report.gpus, report.servers, now)
        if ready and self._pace is None:
            self._pace = Pace(now)

    def settled(self, rows: int) -> None:
        """Rows have just become durable."""
        if self._pace is not None:
            self._pace.add(rows, time.time())

    def answered(self, answer_class: AnswerClass) -> None:
        """An answer has come, also one that is tried again."""
        self._answers[answer_class] += 1

    async def measure_disk(self) -> None:
        """Look at the job's disk for ever, in a thread: a network disk may let it wait."""
        while True:
            with contextlib.suppress(OSError):
                self._disk_free_b = (await asyncio.to_thread(shutil.disk_usage, self._job.directory)).free
            await asyncio.sleep(_DISK_EVERY_S)

    def job_state(self, servers: tuple[ServerState, ...], now: float, *, running: bool) -> JobState:
        """The job now; the time left is known only of a run that is `running`."""
        job, pace, elapsed_s = self._job, self._pace, now - self.started_at
        remaining = job.rows_total - job.rows_done - job.rows_failed - job.rows_skipped
        eta = pace.eta_s(remaining, now) if pace and running else None
        rates = [server.tokens_per_s for server in servers if server.tokens_per_s is not None]
        tokens = job.tokens - self._tokens_at_start
        return JobState(
            rows_total=job.rows_total,
            rows_done=job.rows_done,
            rows_failed=job.rows_failed,
            rows_skipped=job.rows_skipped,
            rows_in_flight=self._dispatcher.in_flight,
            retries=self._dispatcher.retries,
            tokens=tokens,
            rows_per_s=pace.rows_per_s(now) if pace else None,
            tokens_per_s=sum(rates) if rates else None,
            tokens_per_s_mean=tokens / elapsed_s if elapsed_s > 0 and tokens else None,
            eta_s=eta[0] if eta else None,
            eta_low_s=eta[1] if eta else None,
            eta_high_s=eta[2] if eta else None,
            classes=dict(job.classes),
            answers=dict(self._answers),
            disk_free_b=self._disk_free_b,
            shards=job.shards(),
            energy_j=self._meter.energy_j,
            joules_per_token=self._meter.joules_per_token,
        )
