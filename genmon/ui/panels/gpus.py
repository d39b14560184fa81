"""The GPU panel: one row a GPU, from one line each to six, as the room allows."""

from __future__ import annotations

from rich.style import Style
from rich.text import Text

from genmon.figures import UNKNOWN, decimal
from genmon.state import ServerPhase
from genmon.ui.draw import trend
from genmon.ui.panels.columns import Column, Seat, age_words, fitting, seats
from genmon.ui.picture import ACCENT, ALARM, BOLD, DIM, LOOK, OK, WARN, Picture, fit, rule

_CURSOR = Style(reverse=True)
HEAD = 2
"""Lines above the first row."""


def height(servers: int, each: int) -> int:
    """Lines of the panel with `each` lines a GPU."""
    return HEAD + max(1, servers) * each


def lines(picture: Picture, width: int, each: int) -> list[Text]:
    """A rule, the titles, and `each` lines a GPU: its figures, its past, and from three on a line of words."""
    columns = fitting(width - 2, trends=each == 1)
    found = [rule("GPUs", width, picture.glyphs, _total(picture)), _titles(columns)]
    if not picture.state.servers:
        return [*found, Text("  no server yet", DIM)]
    for number, seat in enumerate(seats(picture)):
        found.append(_row(seat, columns, cursor=number == picture.eyes.cursor))
        if each == 2 and seat.server.phase is not ServerPhase.READY:
            found.append(_words(seat, width))
        elif each >= 2:
            found += _trends(seat, width, max(1, each - 2))
        if each >= 3:
            found.append(_words(seat, width))
    return found


def _total(picture: Picture) -> str:
    power = [gpu.power_w for gpu in picture.state.gpus if gpu.power_w is not None]
    names = sorted({gpu.name for gpu in picture.state.gpus})
    return "  ".join([*names[:1], *([f"{sum(power):,.0f} W"] if power else [])])


def _titles(columns: tuple[Column, ...]) -> Text:
    line = Text("  ", DIM, no_wrap=True)
    for column in columns:
        line.append(column.title.ljust(column.width) if column.left else column.title.rjust(column.width))
        line.append(" ")
    return line


def _row(seat: Seat, columns: tuple[Column, ...], *, cursor: bool) -> Text:
    glyphs, eyes = seat.picture.glyphs, seat.picture.eyes
    line = Text(no_wrap=True)
    line.append(glyphs.cursor if cursor else " ", ACCENT + BOLD)
    line.append(glyphs.selected if seat.server.name in eyes.selected else " ", ACCENT)
    for column in columns:
        text, style = column.cell(seat)
        text = text[: column.width].ljust(column.width) if column.left else text[: column.width].rjust(column.width)
        line.append(text, style + _CURSOR if cursor and column.title == "GPU" else style)
        line.append(" ")
    return line


def _trends(seat: Seat, width: int, height: int) -> list[Text]:
    """Watts, tokens a second and acceptance of the last minutes, side by side."""
    glyphs, seconds = seat.picture.glyphs, seat.past
    room = max(8, (width - 32) // 3)
    limit = seat.gpu.power_limit_w if seat.gpu else None
    found = [Text("      ", no_wrap=True) for _ in range(height)]
    for title, values, top, style in (
        ("W ", [point.power_w for point in seconds], limit, ACCENT),
        ("  tok/s ", [point.tokens_per_s for point in seconds], None, OK),
        ("  acc ", [point.acceptance_length for point in seconds], 4.0, LOOK),
    ):
        for number, cells in enumerate(trend(values, room, glyphs, top, height)):
            found[number].append(title if number == 0 else " " * len(title), DIM)
            found[number].append(cells, style)
    return found


def _words(seat: Seat, width: int) -> Text:
    """What there is to say: why it is not ready, what holds its clocks, what it was granted."""
    server, gpu, glyphs = seat.server, seat.gpu, seat.picture.glyphs
    line = Text("      ", no_wrap=True)
    if server.reason and server.phase is not ServerPhase.READY:
        return line.append(fit(server.reason, width - 7, glyphs), ALARM if server.phase in _BAD else WARN)
    parts = [f"{server.name} {server.phase.value.replace('_', ' ')} for {age_words(seat)}"]
    if server.cap is not None and server.cap_requested is not None and server.cap < server.cap_requested:
        parts.append(f"granted {server.cap} of {server.cap_requested} asked for")
    if gpu is not None:
        parts.append(f"SM {UNKNOWN if gpu.sm_clock_mhz is None else gpu.sm_clock_mhz} MHz")
        if gpu.memory_used_b is not None and gpu.memory_total_b is not None:
            parts.append(
                f"memory {decimal(gpu.memory_used_b / 2**30, 0)} of {decimal(gpu.memory_total_b / 2**30, 0)} GiB"
            )
        parts += [reason.replace("_", " ") for reason in gpu.reasons]
        parts += [gpu.trouble] if gpu.trouble else []
    if server.reason:
        parts.append(server.reason)
    gap = f" {glyphs.dot} "
    while len(parts) > 1 and len(gap.join(parts)) > width - 7:
        parts.pop()
    return line.append(fit(gap.join(parts), width - 7, glyphs), DIM)


_BAD = (ServerPhase.BACKOFF, ServerPhase.GIVEN_UP)
