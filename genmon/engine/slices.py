"""Each server's course in slices of ten seconds, as far as it was at full load and warm: what verdicts are made of."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from statistics import fmean

from genmon.engine.verdict import SLICE_S, Slice
from genmon.state import GpuSample, ServerPhase, ServerState

_KEPT = 720
"""Two hours."""
_WARM_UP_S = 20.0
_COVERED = 0.7
"""Share of a slice that its first and last sample must be apart."""


class _Course:
    """One server."""

    def __init__(self) -> None:
        self.slices: deque[Slice] = deque(maxlen=_KEPT)
        self.number: int | None = None
        self.spoiled = False
        self.samples: list[tuple[ServerState, GpuSample | None]] = []


class Slices:
    """Cuts states into slices."""

    def __init__(self, full: Callable[[str], bool], latency_s: Callable[[], float]) -> None:
        """`full` says whether a server has all rows it may have.

        `latency_s` is that of a typical row: until that time after a launch the rows in flight are still all young,
        which no server at work is.
        """
        self._full, self._latency_s = full, latency_s
        self._courses: dict[str, _Course] = {}

    @property
    def warm_up_s(self) -> float:
        """So long after a launch nothing is measured."""
        return max(_WARM_UP_S, self._latency_s())

    def hear(self, servers: tuple[ServerState, ...], gpus: tuple[GpuSample, ...], now: float) -> None:
        """Take in one poll, at `now` Unix seconds."""
        of_uuid = {gpu.uuid: gpu for gpu in gpus}
        number = int(now // SLICE_S)
        for state in servers:
            course = self._courses.setdefault(state.name, _Course())
            if number != course.number:
                if course.number is not None and not course.spoiled and (made := _cut(course.number, course.samples)):
                    course.slices.append(made)
                course.number, course.spoiled, course.samples = number, False, []
            warm = now - state.since >= self.warm_up_s
            if state.phase is ServerPhase.READY and warm and self._full(state.name):
                course.samples.append((state, of_uuid.get(state.gpu_uuid or "")))
            else:
                course.spoiled = True

    def of(self, server: str) -> tuple[Slice, ...]:
        """A server's slices, oldest first."""
        course = self._courses.get(server)
        return tuple(course.slices) if course else ()


def _cut(number: int, samples: list[tuple[ServerState, GpuSample | None]]) -> Slice | None:
    states = [state for state, _ in samples if state.taken_at is not None and state.decode_tokens is not None]
    if not states:
        return None
    first, last = states[0], states[-1]
    span_s = (last.taken_at or 0.0) - (first.taken_at or 0.0)
    gained = (last.decode_tokens or 0) - (first.decode_tokens or 0)
    if span_s < _COVERED * SLICE_S or last.launches != first.launches or gained < 0:
        return None
    acceptance = [state.acceptance_length for state in states if state.acceptance_length is not None]
    return Slice(
        number=number,
        tokens_per_s=gained / span_s,
        power_w=_power_w([gpu for _, gpu in samples if gpu is not None]),
        acceptance_length=fmean(acceptance) if acceptance else None,
    )


def _power_w(samples: list[GpuSample]) -> float | None:
    """From the energy counter where there is one, else the mean of the driver's averages."""
    counted = [(sample.taken_at, sample.energy_j) for sample in samples if sample.energy_j is not None]
    if len(counted) > 1:
        (first_at, first_j), (last_at, last_j) = counted[0], counted[-1]
        if last_at > first_at and last_j >= first_j:
            return (last_j - first_j) / (last_at - first_at)
    powers = [sample.power_w for sample in samples if sample.power_w is not None]
    return fmean(powers) if powers else None
