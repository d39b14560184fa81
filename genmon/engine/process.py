"""The engine as a process: it owns a job, listens for views, obeys signals."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable

from genmon.commands import Drain, Resume, Stop
from genmon.config.schema import RunConfig
from genmon.engine.engine import Engine, Outcome
from genmon.engine.learned import learned
from genmon.engine.local import LocalHost
from genmon.job.job import Job
from genmon.runlog.log import open_log
from genmon.runlog.origin import log_path, new_key, secrets_of
from genmon.wire.server import WireServer


def run(
    config: RunConfig,
    *,
    retry_failed: bool = False,
    started: Callable[[Engine], None],
) -> Outcome:
    """Run a job to its end in this process; `started` is called once views can connect.

    The first SIGINT (Ctrl-C) or SIGTERM drains, the second stops at once; SIGHUP (a lost connection) is
    ignored; SIGUSR1 goes on after a pause.

    Raises:
        GenmonError: the job could not be opened, or no socket be made.
    """
    job = Job.open(config, retry_failed=retry_failed)
    return asyncio.run(_run(config, job, started))


async def _run(config: RunConfig, job: Job, started: Callable[[Engine], None]) -> Outcome:
    run = new_key(config.name)
    log = open_log(log_path(config), run, secrets_of(config), config.log.thin_after_days * 86400.0)
    normal = await asyncio.to_thread(
        learned, log_path(config), config.model.name, simulated=config.simulation is not None
    )
    engine = Engine(config, job, LocalHost(config, job.directory), normal=normal, log=log, run=run)
    loop = asyncio.get_running_loop()
    interrupts = 0

    def interrupt() -> None:
        nonlocal interrupts
        interrupts += 1
        engine.command(Drain() if interrupts == 1 else Stop(), by="signal")

    loop.add_signal_handler(signal.SIGINT, interrupt)
    loop.add_signal_handler(signal.SIGTERM, interrupt)
    loop.add_signal_handler(signal.SIGHUP, lambda: None)
    loop.add_signal_handler(signal.SIGUSR1, lambda: engine.command(Resume(), by="signal"))
    wire = WireServer(engine, job.directory)
    try:
        await wire.open()
        started(engine)
        return await engine.run()
    finally:
        await wire.close()
        await asyncio.to_thread(log.close)
