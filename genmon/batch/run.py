"""The engine in the foreground, and a view of it in a thread of its own.

The engine never writes to the terminal: a terminal that stops reading (Ctrl-S, a stalled SSH) would stop it.
The view reads the engine's latest state; when the terminal is gone the view falls silent and the run goes on.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Protocol

from genmon.config.schema import RunConfig
from genmon.engine.engine import Engine, Outcome
from genmon.engine.process import run as run_engine
from genmon.state import State

_LAST_LOOK_S = 2.0


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
    """Run a job to its end in this process, and show it. Signals are those of `genmon.engine.process.run`.

    Raises:
        GenmonError: the job could not be opened.
    """
    watching = _Watching(view)
    outcome = run_engine(config, retry_failed=retry_failed, started=watching.start)
    watching.end(outcome)
    return outcome


class _Watching:
    """The view's thread."""

    def __init__(self, view: View) -> None:
        self._view = view
        self._ended = threading.Event()
        self._engine: Engine | None = None
        self._thread = threading.Thread(target=self._watch, name="view", daemon=True)

    def start(self, engine: Engine) -> None:
        """Show this engine from now on."""
        self._engine = engine
        self._thread.start()

    def end(self, outcome: Outcome) -> None:
        """Show the end; a terminal that does not read holds the thread, and is not waited for."""
        self._ended.set()
        self._thread.join(_LAST_LOOK_S)
        engine = self._engine
        if engine is not None and not self._thread.is_alive():
            _quietly(lambda: self._view.close(engine.state, outcome))

    def _watch(self) -> None:
        engine = self._engine
        while engine is not None and not self._ended.wait(self._view.period_s):
            if not _quietly(lambda: self._view.show(engine.state)):
                return


def _quietly(show: Callable[[], None]) -> bool:
    """Call; False when the terminal is gone."""
    try:
        show()
    except OSError:
        return False
    return True
