"""The engine in the foreground, and a view of it in a thread of its own.

The engine never writes to the terminal: a terminal that stops reading (Ctrl-S, a stalled SSH) would stop it.
The view reads the engine's latest state; when the terminal is gone the view falls silent and the run goes on.
"""

from __future__ import annotations

import asyncio
import signal
import threading
from collections.abc import Callable
from typing import Protocol

from genmon.commands import Drain, Resume, Stop
from genmon.config.schema import RunConfig
from genmon.engine.engine import Engine, Outcome
from genmon.engine.local import LocalHost
from genmon.job.job import Job
from genmon.state import State


class View(Protocol):
    """Something that shows a run as it goes."""

    period_s: float
    """How often it wants to be shown the state, seconds."""

    def show(self, state: State) -> None:
        """Show a state; raises `OSError` when nobody can see it any more."""
        ...

    def close(self, state: State, outcome: Outcome) -> None:
        """Show how the run ended."""
        ...


def run(config: RunConfig, view: View, *, retry_failed: bool = False) -> Outcome:
    """Run a job to its end in this process.

    The first SIGINT (Ctrl-C) or SIGTERM drains, the second stops at once; SIGHUP (a lost connection) is
    ignored; SIGUSR1 goes on after a pause.

    Raises:
        GenmonError: the job could not be opened.
    """
    job = Job.open(config, retry_failed=retry_failed)
    return asyncio.run(_run(config, job, view))


async def _run(config: RunConfig, job: Job, view: View) -> Outcome:
    engine = Engine(config, job, LocalHost(config, job.directory))
    loop = asyncio.get_running_loop()
    interrupts = 0

    def interrupt() -> None:
        nonlocal interrupts
        interrupts += 1
        engine.command(Drain() if interrupts == 1 else Stop())

    loop.add_signal_handler(signal.SIGINT, interrupt)
    loop.add_signal_handler(signal.SIGTERM, interrupt)
    loop.add_signal_handler(signal.SIGHUP, lambda: None)
    loop.add_signal_handler(signal.SIGUSR1, lambda: engine.command(Resume()))
    ended = threading.Event()
    watching = threading.Thread(target=_watch, args=(engine, view, ended), name="view", daemon=True)
    watching.start()
    outcome = await engine.run()
    ended.set()
    # A terminal that does not read holds the view's thread; the run is over and does not wait for it.
    await asyncio.to_thread(watching.join, 2.0)
    if not watching.is_alive():
        _quietly(lambda: view.close(engine.state, outcome))
    return outcome


def _watch(engine: Engine, view: View, ended: threading.Event) -> None:
    while not ended.wait(view.period_s):
        if not _quietly(lambda: view.show(engine.state)):
            return


def _quietly(show: Callable[[], None]) -> bool:
    """Call; False when the terminal is gone."""
    try:
        show()
    except OSError:
        return False
    return True
