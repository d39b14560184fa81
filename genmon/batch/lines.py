"""The run as plain lines (one a minute and one an event) or as one JSON object a line."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, TextIO

import msgspec

from genmon.figures import count, decimal, duration, energy, share
from genmon.state import Event, RunPhase, ServerPhase, State, Tell

if TYPE_CHECKING:
    from genmon.engine.engine import Outcome

_LINE_EVERY_S = 60.0


class LineView:
    """One line a minute, one for each event, for logs and pipes."""

    period_s = 1.0

    def __init__(self, out: TextIO) -> None:
        """`out` is where the lines go."""
        self._out = out
        self._told_until = 0.0
        self._told: set[Event] = set()
        self._next_line_at = 0.0
        self._tells: dict[str, str] = {}

    def show(self, state: State) -> None:
        """Write what is new; a progress line when one is due."""
        for event in state.events:
            if event.at >= self._told_until and event not in self._told:
                self._write(event.at, event.text)
                self._told.add(event)
        if state.events:
            self._told_until = state.events[-1].at
            self._told = {event for event in self._told if event.at >= self._told_until}
        self._tell(state)
        if state.phase is not RunPhase.STARTING and state.taken_at >= self._next_line_at:
            self._next_line_at = state.taken_at + _LINE_EVERY_S
            self._write(state.taken_at, progress_line(state))

    def close(self, state: State, outcome: Outcome) -> None:
        """Write the last events and how the run ended."""
        self.show(state)
        self._write(state.taken_at, progress_line(state))
        self._write(state.taken_at, f"{outcome.phase.value}: {outcome.sentence}")

    def _tell(self, state: State) -> None:
        """One line when a tell comes up, and one when it is over."""
        now = {tell.id: tell for tell in state.tells}
        for id, tell in now.items():
            if id not in self._tells:
                self._write(state.taken_at, tell_line(tell))
        for id in self._tells.keys() - now.keys():
            self._write(state.taken_at, f"over: {self._tells[id]}")
        self._tells = {id: tell.sentence for id, tell in now.items()}

    def _write(self, at: float, text: str) -> None:
        self._out.write(f"{time.strftime('%Y-%m-%d %H:%M:%S', time.localtime(at))}  {text}\n")
        self._out.flush()


class JsonView:
    """One JSON object a line: the state each second with what happened since, and the outcome last."""

    period_s = 1.0

    def __init__(self, out: TextIO) -> None:
        """`out` is where the lines go."""
        self._out = out
        self._encoder = msgspec.json.Encoder()

    def show(self, state: State) -> None:
        """Write the state."""
        self._write({"type": "state", **msgspec.to_builtins(state)})

    def close(self, state: State, outcome: Outcome) -> None:
        """Write the last state and the outcome."""
        self.show(state)
        self._write({"type": "outcome", **msgspec.to_builtins(outcome)})

    def _write(self, line: dict[str, object]) -> None:
        self._out.write(self._encoder.encode(line).decode() + "\n")
        self._out.flush()


def progress_line(state: State) -> str:
    """The run in one line."""
    job = state.job
    ready = sum(server.phase is ServerPhase.READY for server in state.servers)
    power = [gpu.power_w for gpu in state.gpus if gpu.power_w is not None]
    parts = [
        *(["SIMULATED"] if state.simulated else []),
        state.phase.value,
        f"{job.rows_done:,}/{count_exact(job.rows_total)} rows"
        + (f" ({share(job.rows_done / job.rows_total)})" if job.rows_total else ""),
        *([f"{job.rows_failed:,} failed"] if job.rows_failed else []),
        f"{decimal(job.rows_per_s, 1)} rows/s",
        f"{count(job.tokens_per_s)} tok/s",
        f"{ready}/{len(state.servers)} servers",
        *([f"{sum(power):.0f} W"] if power else []),
        f"{decimal(job.joules_per_token)} J/tok",
        *([energy(job.energy_j)] if job.energy_j is not None else []),
        answer_classes(state),
        *gpu_troubles(state),
    ]
    if state.phase in (RunPhase.RUNNING, RunPhase.STARTING):
        spread = "" if job.eta_s is None else f" ({duration(job.eta_low_s)} to {duration(job.eta_high_s)})"
        parts.append(f"ETA {duration(job.eta_s)}{spread}")
    return " · ".join(part for part in parts if part)


def tell_line(tell: Tell) -> str:
    """A tell in one line: warn: what is wrong (what mends it)."""
    return f"{tell.level.value}: {tell.sentence}" + (f" ({tell.mend})" if tell.mend else "")


def count_exact(value: int | None) -> str:
    """A whole number, never shortened."""
    return "–" if value is None else f"{value:,}"


def gpu_troubles(state: State) -> list[str]:
    """What keeps figures of a GPU from being known, a sentence each."""
    return [f"GPU {gpu.index}: {gpu.trouble}" for gpu in state.gpus if gpu.trouble]


def answer_classes(state: State) -> str:
    """Each answer class that occurred, with its share of the rows done."""
    total = sum(state.job.classes.values())
    return ", ".join(
        f"{number / total:.1%} {answer_class.value.replace('_', ' ')}"
        for answer_class, number in state.job.classes.items()
        if number
    )
