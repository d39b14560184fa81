"""The columns of the GPU panel: what each cell says, how wide it is, and in which order they give way.

A cell is exactly as wide as its column: a number that grew would move all that stands behind it.
"""

from __future__ import annotations

from collections.abc import Callable

from msgspec import Struct
from rich.style import Style

from genmon.figures import UNKNOWN, count, decimal, duration, share
from genmon.history import Point, Track
from genmon.state import GpuSample, ServerPhase, ServerState
from genmon.ui.draw import bar, trend
from genmon.ui.picture import ACCENT, ALARM, BOLD, DIM, LOOK, OK, PLAIN, WARN, Picture

_PHASES = {
    ServerPhase.READY: OK,
    ServerPhase.BACKOFF: ALARM,
    ServerPhase.GIVEN_UP: ALARM,
    ServerPhase.STOPPED: DIM,
}
Cell = tuple[str, Style]


class Seat(Struct, frozen=True, kw_only=True):
    """One row of the panel: a server, its GPU where it has one, and its past."""

    picture: Picture
    server: ServerState
    gpu: GpuSample | None
    track: Track

    @property
    def past(self) -> list[Point]:
        """The last minutes, as far as they are plotted."""
        until = self.picture.plots_until
        return [point for point in self.track.seconds if point.at <= until]

    @property
    def stale(self) -> bool:
        """Whether the server's figures are old."""
        return self.picture.trouble is not None or self.picture.age_s(self.server.taken_at) is not None

    @property
    def gpu_stale(self) -> bool:
        """Whether the GPU's sample is old."""
        old = self.gpu is not None and self.picture.age_s(self.gpu.taken_at) is not None
        return self.picture.trouble is not None or old

    @property
    def joules_per_token(self) -> float | None:
        """Watts over tokens a second, now."""
        if self.gpu is None or self.gpu.power_w is None or not self.server.tokens_per_s:
            return None
        return self.gpu.power_w / self.server.tokens_per_s


class Column(Struct, frozen=True, kw_only=True):
    """One column; `title` stands above it. Lower `rank` stays longer; rank 0 never goes."""

    title: str
    width: int
    rank: int
    cell: Callable[[Seat], Cell]
    left: bool = False
    past: bool = False


def _gpu_name(seat: Seat) -> Cell:
    index = seat.server.gpu_index
    return (seat.server.name if index is None else str(index), BOLD)


def _state(seat: Seat) -> Cell:
    phase = seat.server.phase
    return f"{seat.picture.glyphs.phases[phase]} {phase.value.replace('_', ' ')}", _PHASES.get(phase, WARN)


def _age(seat: Seat) -> Cell:
    return _short(seat.picture.now - seat.server.since), DIM


def _watt_bar(seat: Seat) -> Cell:
    gpu = seat.gpu
    if gpu is None:
        return bar(None, None, _BAR, seat.picture.glyphs), DIM
    limit, default = gpu.power_limit_w, gpu.power_default_limit_w
    scale = max(limit or 0.0, default or 0.0) or None
    ticks = [limit] if limit is not None and scale is not None and limit < scale else []
    if usual := seat.server.usual_power:  # the band shows where the fill has not come to it
        ticks += [edge for edge in (usual.low_w, usual.high_w) if scale is not None and edge < scale]
    return bar(gpu.power_w, scale, _BAR, seat.picture.glyphs, ticks), DIM if seat.gpu_stale else ACCENT


def _watts(seat: Seat) -> Cell:
    gpu = seat.gpu
    if gpu is None or gpu.power_w is None:
        return f"{UNKNOWN:>4}/{UNKNOWN:<4}", DIM
    limit = UNKNOWN if gpu.power_limit_w is None else f"{gpu.power_limit_w:.0f}"
    return f"{gpu.power_w:>4.0f}/{limit:<4}", DIM if seat.gpu_stale else BOLD


def _tokens(seat: Seat) -> Cell:
    age = seat.picture.age_s(seat.server.taken_at)
    if age is not None and seat.server.phase is ServerPhase.READY:
        return f"({_short(age)})", WARN
    return count(seat.server.tokens_per_s), DIM if seat.stale else BOLD


def _joules(seat: Seat) -> Cell:
    return decimal(seat.joules_per_token), DIM if seat.stale else PLAIN


def _mtp(seat: Seat) -> Cell:
    mtp = seat.server.mtp
    return (UNKNOWN, DIM) if mtp is None else ("on", OK) if mtp else ("off", PLAIN)


def _acceptance(seat: Seat) -> Cell:
    return decimal(seat.server.acceptance_length), DIM if seat.stale else PLAIN


def _in_flight(seat: Seat) -> Cell:
    server = seat.server
    cap = UNKNOWN if server.cap is None else str(server.cap)
    less = server.cap is not None and server.cap_requested is not None and server.cap < server.cap_requested
    return f"{server.in_flight}/{cap}", LOOK if less else PLAIN


def _cap_asked(seat: Seat) -> Cell:
    asked = seat.server.cap_requested
    return (UNKNOWN if asked is None else str(asked)), DIM


def _queue(seat: Seat) -> Cell:
    queued = seat.server.queued
    return (UNKNOWN if queued is None else str(queued)), WARN if queued else PLAIN


def _kv(seat: Seat) -> Cell:
    usage = seat.server.kv_usage
    return share(usage), WARN if usage is not None and usage > 0.95 else PLAIN


def _mamba(seat: Seat) -> Cell:
    return share(seat.server.mamba_usage), PLAIN


def _temperature(seat: Seat) -> Cell:
    celsius = None if seat.gpu is None else seat.gpu.temperature_c
    return decimal(celsius, 0), WARN if celsius is not None and celsius >= 85 else PLAIN


def _clock(seat: Seat) -> Cell:
    return count(None if seat.gpu is None else seat.gpu.sm_clock_mhz), PLAIN


def _memory(seat: Seat) -> Cell:
    gpu = seat.gpu
    if gpu is None or gpu.memory_used_b is None or gpu.memory_total_b is None:
        return UNKNOWN, DIM
    return f"{gpu.memory_used_b / 2**30:.0f}/{gpu.memory_total_b / 2**30:.0f}G", PLAIN


def _watts_past(seat: Seat) -> Cell:
    top = None if seat.gpu is None else seat.gpu.power_limit_w
    return trend([point.power_w for point in seat.past], _PAST, seat.picture.glyphs, top)[0], ACCENT


def _tokens_past(seat: Seat) -> Cell:
    return trend([point.tokens_per_s for point in seat.past], _PAST, seat.picture.glyphs)[0], OK


def _acceptance_past(seat: Seat) -> Cell:
    points = [point.acceptance_length for point in seat.past]
    return trend(points, _PAST, seat.picture.glyphs, 4.0)[0], LOOK


def _short(seconds: float) -> str:
    """The larger unit of a duration alone: 45s, 12m, 3h, 2d."""
    for size, letter in ((86400, "d"), (3600, "h"), (60, "m")):
        if seconds >= size:
            return f"{seconds / size:.0f}{letter}"
    return f"{max(0.0, seconds):.0f}s"


_BAR, _PAST = 12, 12
COLUMNS = (
    Column(title="GPU", width=3, rank=0, cell=_gpu_name),
    Column(title="state", width=10, rank=1, cell=_state, left=True),
    Column(title="", width=_BAR, rank=3, cell=_watt_bar, left=True),
    Column(title="W/limit", width=9, rank=0, cell=_watts),
    Column(title="watts", width=_PAST, rank=12, cell=_watts_past, left=True, past=True),
    Column(title="tok/s", width=6, rank=0, cell=_tokens),
    Column(title="tokens/s", width=_PAST, rank=13, cell=_tokens_past, left=True, past=True),
    Column(title="J/tok", width=6, rank=2, cell=_joules),
    Column(title="MTP", width=3, rank=4, cell=_mtp),
    Column(title="acc", width=4, rank=5, cell=_acceptance),
    Column(title="acceptance", width=_PAST, rank=17, cell=_acceptance_past, left=True, past=True),
    Column(title="flight", width=7, rank=6, cell=_in_flight),
    Column(title="asked", width=5, rank=16, cell=_cap_asked),
    Column(title="queue", width=5, rank=9, cell=_queue),
    Column(title="KV", width=4, rank=7, cell=_kv),
    Column(title="mamba", width=5, rank=14, cell=_mamba),
    Column(title="°C", width=3, rank=8, cell=_temperature),
    Column(title="MHz", width=5, rank=10, cell=_clock),
    Column(title="memory", width=8, rank=11, cell=_memory),
    Column(title="age", width=4, rank=15, cell=_age),
)


def fitting(width: int, *, trends: bool) -> tuple[Column, ...]:
    """The columns that fit, highest ranks gone first; `trends` False leaves out the ones that show the past."""
    kept = [column for column in COLUMNS if trends or not column.past]
    for column in sorted(kept, key=lambda column: -column.rank):
        if sum(each.width + 1 for each in kept) <= width or not column.rank:
            break
        kept.remove(column)
    return tuple(kept)


def seats(picture: Picture) -> list[Seat]:
    """The rows, in the servers' order."""
    return [
        Seat(picture=picture, server=server, gpu=picture.gpu(server), track=picture.history.track(server.name))
        for server in picture.state.servers
    ]


def age_words(seat: Seat) -> str:
    """How long the server has been in its phase."""
    return duration(seat.picture.now - seat.server.since)
