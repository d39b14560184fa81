"""One point: warm up, then a window of slices until the mean is known well enough or time is up."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from statistics import fmean, stdev

from msgspec import Struct

from genmon.config.schema import SamplingConfig
from genmon.engine.hosts import Host, HostReport
from genmon.job.row import Row
from genmon.state import GpuSample, ServerPhase, ServerState
from genmon.sweep.grid import Variant
from genmon.sweep.load import Load
from genmon.sweep.result import Point, Skipped

_LOOK_S = 0.5
_WARM_UP_S = 5.0
"""Seconds with all requests running before the window begins."""
_FILL_S = 120.0
"""Patience until all requests run: long prompts are computed first."""
_SLICE_S = 3.0
_SLICES_MIN = 4
_T95 = (12.71, 4.30, 3.18, 2.78, 2.57, 2.45, 2.36, 2.31, 2.26, 2.23, 2.20, 2.18, 2.16, 2.14, 2.13, 2.12)
"""Two-sided 95 % quantiles of Student's t for 1, 2, … degrees of freedom."""


class Patience(Struct, frozen=True, kw_only=True):
    """How long one point may take, and when it is known well enough."""

    seconds: float = 60.0
    """Longest window."""
    precision: float = 0.01
    """Half the 95 % interval, relative to the mean, that ends a window early."""


class Looks:
    """The latest report of a host, asked twice a second for all points side by side."""

    def __init__(self, host: Host) -> None:
        self._host = host
        self._next = asyncio.Condition()
        self.report = HostReport(gpus=(), servers=())
        self.trouble: str | None = None

    @asynccontextmanager
    async def open(self) -> AsyncIterator[Looks]:
        """Look for as long as the block lasts."""
        task = asyncio.create_task(self._look_for_ever())
        try:
            yield self
        finally:
            task.cancel()
            await asyncio.wait([task])

    async def until(self, condition: Callable[[HostReport], bool]) -> None:
        """Wait until a report meets the condition."""
        async with self._next:
            await self._next.wait_for(lambda: condition(self.report))

    async def another(self) -> HostReport:
        """The next report."""
        seen = self.report
        await self.until(lambda report: report is not seen)
        return self.report

    def server(self, name: str) -> ServerState:
        """A server's latest state."""
        return next(server for server in self.report.servers if server.name == name)

    def gpu(self, server: ServerState) -> GpuSample | None:
        """The latest sample of a server's GPU."""
        return next((gpu for gpu in self.report.gpus if gpu.uuid == server.gpu_uuid), None)

    async def _look_for_ever(self) -> None:
        while True:
            report = await self._host.poll()
            async with self._next:
                self.report = report
                self._next.notify_all()
            await asyncio.sleep(_LOOK_S)


class _Window:
    """Slices of the decoder's token counter, and the GPU's energy beside them."""

    def __init__(self) -> None:
        self.slices: list[float] = []
        self.acceptance: list[float] = []
        self._tokens: tuple[float, int] | None = None
        self._energy: list[tuple[float, float]] = []
        self._power: list[float] = []
        self._looked_at = 0.0

    def add(self, server: ServerState, gpu: GpuSample | None) -> None:
        if gpu is not None:
            if gpu.energy_j is not None and (not self._energy or gpu.taken_at > self._energy[-1][0]):
                self._energy.append((gpu.taken_at, gpu.energy_j))
            if gpu.power_w is not None:
                self._power.append(gpu.power_w)
        if server.taken_at is None or server.decode_tokens is None or server.taken_at <= self._looked_at:
            return
        self._looked_at = server.taken_at
        if server.acceptance_length is not None:
            self.acceptance.append(server.acceptance_length)
        if self._tokens is None:
            self._tokens = (server.taken_at, server.decode_tokens)
        elif server.taken_at - self._tokens[0] >= _SLICE_S and server.decode_tokens > self._tokens[1]:
            began_at, began = self._tokens
            self.slices.append((server.decode_tokens - began) / (server.taken_at - began_at))
            self._tokens = (server.taken_at, server.decode_tokens)

    @property
    def half_interval(self) -> float:
        """Half the 95 % interval of the mean, tokens/s; infinite with fewer than two slices."""
        n = len(self.slices)
        if n < 2:
            return math.inf
        return (_T95[n - 2] if n - 2 < len(_T95) else 2.0) * stdev(self.slices) / math.sqrt(n)

    @property
    def power_w(self) -> float | None:
        """From the energy counter; without one the mean of the samples."""
        if len(self._energy) > 1:
            (first_at, first_j), (last_at, last_j) = self._energy[0], self._energy[-1]
            if last_at > first_at and last_j >= first_j:
                return (last_j - first_j) / (last_at - first_at)
        return fmean(self._power) if self._power else None


async def measure(
    host: Host,
    looks: Looks,
    server: str,
    variant: Variant,
    concurrency: int,
    rows: Iterator[Row],
    sampling: SamplingConfig,
    patience: Patience,
) -> Point | Skipped:
    """Measure one point on a server that is ready."""

    def skipped(reason: str) -> Skipped:
        return Skipped(variant=variant.label, concurrency=concurrency, reason=reason)

    state = looks.server(server)
    if state.cap is not None and concurrency > state.cap:
        return skipped(f"above the server's effective cap of {state.cap}")
    began_at = time.monotonic()
    async with Load(host, server, concurrency, rows, sampling) as load:
        try:
            async with asyncio.timeout(_FILL_S):
                await looks.until(lambda _: _full(looks.server(server), concurrency))
        except TimeoutError:
            running = looks.server(server).running
            why = f": {load.trouble}" if load.trouble else ""
            return skipped(f"only {'–' if running is None else running} of {concurrency} requests ran{why}")
        await asyncio.sleep(_WARM_UP_S)
        load.begin_window()
        window, until = _Window(), time.monotonic() + patience.seconds
        while time.monotonic() < until:
            await looks.another()
            state = looks.server(server)
            if state.phase is not ServerPhase.READY:
                return skipped(f"the server failed: {state.reason or state.phase.value}")
            window.add(state, looks.gpu(state))
            enough = len(window.slices) >= _SLICES_MIN
            if enough and window.half_interval <= patience.precision * fmean(window.slices):
                break
    gpu = looks.gpu(state)
    if len(window.slices) < 2:
        return skipped(
            f"no tokens were counted in {patience.seconds:.0f} s" + (f": {load.trouble}" if load.trouble else "")
        )
    mean, half, power_w = fmean(window.slices), window.half_interval, window.power_w
    return Point(
        variant=variant.label,
        mtp=bool(state.mtp),
        changed=variant.changed,
        concurrency=concurrency,
        server=server,
        gpu_uuid=state.gpu_uuid,
        gpu_name=gpu.name if gpu else None,
        cap=state.cap,
        tokens_per_s=mean,
        tokens_per_s_low=mean - half,
        tokens_per_s_high=mean + half,
        slices=len(window.slices),
        seconds=time.monotonic() - began_at,
        power_w=power_w,
        power_limit_w=gpu.power_limit_w if gpu else None,
        joules_per_token=power_w / mean if power_w is not None and mean > 0 else None,
        acceptance_length=fmean(window.acceptance) if window.acceptance else None,
        ttft_s=load.ttft_s,
        itl_s=load.itl_s,
        streams=len(load.times),
        tokens_per_row=fmean(load.finished_tokens) if load.finished_tokens else None,
    )


def _full(server: ServerState, concurrency: int) -> bool:
    """Whether all requests run. A server that does not tell is believed once they are in flight."""
    return (server.in_flight if server.running is None else server.running) >= concurrency
