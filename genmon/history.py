"""The recent past of each server, for plots: a point a second for five minutes, a point a minute for twelve hours.

The engine keeps one and sends it to a dashboard that attaches; the dashboard goes on with it from the states it
receives. Both sides call `add` with the same states, so both hold the same picture.
"""

from __future__ import annotations

from collections import deque
from statistics import fmean

from msgspec import Struct

from genmon.state import GpuSample, ServerState, State

_SECONDS_KEPT = 300
_MINUTES_KEPT = 720
_MARKS_KEPT = 50
_APART_S = 0.5
"""States come oftener than once a second while a server starts: those in between are left out."""
_PORTS = frozenset({"port", "nccl-port"})


class Point(Struct, frozen=True, array_like=True):
    """One server at one moment (Unix seconds), or the mean over the minute that began then; unknown is None."""

    at: float
    power_w: float | None = None
    tokens_per_s: float | None = None
    acceptance_length: float | None = None
    in_flight: float | None = None


class Mark(Struct, frozen=True, array_like=True):
    """A moment worth a line across the plots: a launch, with the flags that changed."""

    at: float
    text: str


class Track(Struct, frozen=True, kw_only=True):
    """One server's past, oldest first."""

    server: str
    seconds: tuple[Point, ...] = ()
    minutes: tuple[Point, ...] = ()
    marks: tuple[Mark, ...] = ()


class _Server:
    def __init__(self, track: Track) -> None:
        self.seconds = deque(track.seconds, _SECONDS_KEPT)
        self.minutes = deque(track.minutes, _MINUTES_KEPT)
        self.marks = deque(track.marks, _MARKS_KEPT)
        last = track.seconds[-1].at // 60 if track.seconds else None
        self.minute = [point for point in track.seconds if point.at // 60 == last]
        self.argv: tuple[str, ...] | None = None
        self.launches: int | None = None


class History:
    """Collects states into tracks."""

    def __init__(self, tracks: tuple[Track, ...] = ()) -> None:
        """`tracks` are what another history held so far."""
        self._servers = {track.server: _Server(track) for track in tracks}

    def add(self, state: State) -> None:
        """Take in one state; one older than the last is left out."""
        gpus = {sample.uuid: sample for sample in state.gpus}
        for server in state.servers:
            self._add(server, gpus.get(server.gpu_uuid or ""), state.taken_at)

    def tracks(self) -> tuple[Track, ...]:
        """All servers' pasts, in the order in which they were first seen."""
        return tuple(
            Track(
                server=name,
                seconds=tuple(past.seconds),
                minutes=tuple(past.minutes),
                marks=tuple(past.marks),
            )
            for name, past in self._servers.items()
        )

    def track(self, server: str) -> Track:
        """One server's past; empty for a server not seen."""
        past = self._servers.get(server)
        if past is None:
            return Track(server=server)
        return Track(server=server, seconds=tuple(past.seconds), minutes=tuple(past.minutes), marks=tuple(past.marks))

    def _add(self, server: ServerState, gpu: GpuSample | None, at: float) -> None:
        past = self._servers.setdefault(server.name, _Server(Track(server=server.name)))
        if past.launches is not None and server.launches > past.launches:
            past.marks.append(Mark(at, flags_changed(past.argv or (), server.argv) or "restarted"))
        if past.launches is None or server.launches >= past.launches:
            past.argv, past.launches = server.argv or past.argv, server.launches
        if past.seconds and at < past.seconds[-1].at + _APART_S:
            return
        point = Point(
            at=round(at, 1),
            power_w=gpu.power_w if gpu else None,
            tokens_per_s=server.tokens_per_s,
            acceptance_length=server.acceptance_length,
            in_flight=server.in_flight,
        )
        past.seconds.append(point)
        if past.minute and at // 60 != past.minute[0].at // 60:
            past.minutes.append(_mean(past.minute))
            past.minute = []
        past.minute.append(point)


def _mean(points: list[Point]) -> Point:
    def over(values: list[float | None]) -> float | None:
        known = [value for value in values if value is not None]
        return round(fmean(known), 3) if known else None

    return Point(
        at=points[0].at // 60 * 60,
        power_w=over([point.power_w for point in points]),
        tokens_per_s=over([point.tokens_per_s for point in points]),
        acceptance_length=over([point.acceptance_length for point in points]),
        in_flight=over([point.in_flight for point in points]),
    )


def flags_changed(before: tuple[str, ...], after: tuple[str, ...]) -> str:
    """What changed between two launches' arguments: max-running-requests 16→64, +speculative-algorithm NEXTN."""
    was, now = _flags(before), _flags(after)
    parts = [f"−{flag}" for flag in was if flag not in now]
    for flag, value in now.items():
        if flag not in was:
            parts.append(f"+{flag} {value}".rstrip())
        elif was[flag] != value:
            parts.append(f"{flag} {was[flag]}→{value}")
    return ", ".join(parts)


def _flags(argv: tuple[str, ...]) -> dict[str, str]:
    """Flags with their values, in one string each; without the ports, which are found anew at each launch."""
    flags: dict[str, str] = {}
    flag = None
    for word in argv:
        if word.startswith("--"):
            flag, _, value = word[2:].partition("=")
            flags[flag] = value
        elif flag is not None:
            flags[flag] = f"{flags[flag]} {word}".lstrip()
    return {flag: value for flag, value in flags.items() if flag not in _PORTS}
