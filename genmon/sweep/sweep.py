"""The sweep itself: launch each flag set on all GPUs, measure its points side by side, end the servers."""

from __future__ import annotations

import asyncio
import contextlib
import shlex
import sys
import time
from collections.abc import Callable, Iterator
from itertools import cycle, islice
from pathlib import Path
from statistics import fmean

import msgspec
from msgspec.structs import replace

from genmon import __version__
from genmon.config.schema import FlagValue, RunConfig
from genmon.engine.local import LocalHost
from genmon.errors import ConfigError, StartError
from genmon.figures import decimal, watts
from genmon.fleet.interpreter import probe
from genmon.job.job import Job
from genmon.job.row import Row
from genmon.runlog.log import NoLog, RunLog, open_log
from genmon.runlog.origin import log_path, new_key, secrets_of
from genmon.state import ServerPhase, ServerState
from genmon.sweep.grid import Variant, variants
from genmon.sweep.measure import Looks, Patience, measure
from genmon.sweep.record import record
from genmon.sweep.result import Point, Skipped, Sweep
from genmon.wire.address import find

_PROMPTS = 512
"""Rows that the load sends round and round."""


def sweep(
    config: RunConfig,
    concurrency: tuple[int, ...],
    mtp: tuple[bool, ...],
    vary: dict[str, tuple[FlagValue, ...]],
    patience: Patience,
    say: Callable[[str], None],
) -> Sweep:
    """Measure every flag set at every concurrency; what was measured is kept at once, under the job directory and in
    the run log.

    Ctrl-C ends it with what was measured so far.

    Raises:
        StartError: a run of this job goes on and has the GPUs.
        GenmonError: the run file's prompts, GPUs or interpreter cannot be used.
    """
    if find(config.output) is not None:
        raise StartError(f"A run of {config.output} goes on and has the GPUs: stop it first (genmon attach, then q).")
    rows, left, mean_tokens = _of_the_job(config)
    if not rows:
        raise ConfigError("job.prompts: no row is left to measure with.")
    version = _version(config)
    key = new_key(config.name)
    log = open_log(log_path(config), key, secrets_of(config), config.log.thin_after_days * 86400.0)
    sweeping = _Sweeping(
        Sweep(
            run=config.name,
            model=config.model.name,
            host="",
            at=time.time(),
            command=shlex.join(["genmon", *sys.argv[1:]]),
            genmon_version=__version__,
            sglang_version=version,
            simulated=config.simulation is not None,
            gpus=0,
            rows_left=left,
            tokens_per_row=mean_tokens,
        ),
        config.output / "sweep",
        cycle(rows),
        patience,
        say,
        log,
        key,
    )
    try:
        with contextlib.suppress(KeyboardInterrupt):
            for variant in variants(config, mtp, vary, version):
                asyncio.run(sweeping.measure(variant, concurrency))
        return sweeping.close()
    finally:
        log.close()


class _Sweeping:
    """One sweep under way."""

    def __init__(
        self,
        found: Sweep,
        folder: Path,
        rows: Iterator[Row],
        patience: Patience,
        say: Callable[[str], None],
        log: RunLog | NoLog,
        key: str,
    ) -> None:
        self._servers = folder / "servers"
        self._servers.mkdir(parents=True, exist_ok=True)
        self._found, self._rows = found, rows
        self._patience, self._say = patience, say
        self._log, self._key = log, key
        self._path = folder / f"{time.strftime('%Y%m%d-%H%M%S')}.json"

    async def measure(self, variant: Variant, concurrency: tuple[int, ...]) -> None:
        """Launch a flag set on all GPUs, and measure its points."""
        self._say(f"{variant.label}: starting servers")
        host = LocalHost(variant.config, self._servers)
        try:
            info = await host.hello()
            async with Looks(host).open() as looks:
                for number, server in enumerate(info.servers):
                    if number:
                        await asyncio.sleep(variant.config.servers.stagger_s)
                    await host.start(server)
                await looks.until(lambda report: bool(report.servers) and all(map(_settled, report.servers)))
                ready = [server.name for server in looks.report.servers if server.phase is ServerPhase.READY]
                self._found = replace(self._found, host=info.host, gpus=max(self._found.gpus, len(ready)))
                for lost in looks.report.servers:
                    if lost.name not in ready:
                        reason = f"{lost.name}: {lost.reason or lost.phase.value}"
                        self._add(Skipped(variant=variant.label, concurrency=None, reason=reason))
                # A level is measured on the same GPU with every flag set: cards of one kind differ by several percent.
                shares = [(server, concurrency[number :: len(ready)]) for number, server in enumerate(ready)]
                await asyncio.gather(*(self._levels(host, looks, server, variant, each) for server, each in shares))
        finally:
            await host.close()

    def close(self) -> Sweep:
        """The whole sweep, kept once more."""
        if self._found.tokens_per_row is None:
            known = [point.tokens_per_row for point in self._found.points if point.tokens_per_row is not None]
            self._found = replace(self._found, tokens_per_row=fmean(known) if known else None)
        self._keep()
        self._say(f"kept in {self._path}")
        if self._log.trouble:
            self._say(self._log.trouble)
        return self._found

    async def _levels(
        self, host: LocalHost, looks: Looks, server: str, variant: Variant, levels: tuple[int, ...]
    ) -> None:
        sampling = variant.config.sampling
        for level in levels:
            self._add(await measure(host, looks, server, variant, level, self._rows, sampling, self._patience))

    def _add(self, made: Point | Skipped) -> None:
        self._log.put(record(self._key, self._found, made))
        if isinstance(made, Point):
            self._found = replace(self._found, points=(*self._found.points, made))
            half = (made.tokens_per_s_high - made.tokens_per_s_low) / 2
            self._say(
                f"{made.variant}, C={made.concurrency} on {made.server}: {made.tokens_per_s:,.0f} ± {half:,.0f} tok/s, "
                f"{watts(made.power_w, made.power_limit_w)}, {decimal(made.joules_per_token)} J/token"
            )
        else:
            self._found = replace(self._found, skipped=(*self._found.skipped, made))
            where = "" if made.concurrency is None else f", C={made.concurrency}"
            self._say(f"{made.variant}{where}: not measured: {made.reason}")
        self._keep()

    def _keep(self) -> None:
        self._path.write_bytes(msgspec.json.format(msgspec.json.encode(self._found)))


def _settled(server: ServerState) -> bool:
    return server.phase in (ServerPhase.READY, ServerPhase.GIVEN_UP, ServerPhase.STOPPED)


def _of_the_job(config: RunConfig) -> tuple[list[Row], int, float | None]:
    """Rows to measure with, rows left to generate, and the mean completion tokens of a finished row."""
    job = Job.open(config)
    try:
        rows = list(islice(job.pending(), _PROMPTS))
        left = job.rows_total - job.rows_done - job.rows_failed - job.rows_skipped
        return rows, left, job.tokens / job.rows_done if job.rows_done and job.tokens else None
    finally:
        job.close()


def _version(config: RunConfig) -> str | None:
    if config.simulation is not None:
        return config.simulation.version
    if config.servers.urls:
        return None
    interpreter = probe(config.servers.python, config.servers.env)
    if interpreter.sglang is None:
        raise StartError(f"{interpreter.trouble}.")
    return interpreter.sglang
