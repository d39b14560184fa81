"""One GPU, large: four plots on one time axis with marks where flags changed, its launch command, its log."""

from __future__ import annotations

import time
from collections.abc import Callable

from rich.style import Style
from rich.text import Text

from genmon.figures import UNKNOWN, count, decimal, share, watts
from genmon.history import Point
from genmon.state import ServerState
from genmon.ui.draw import nice_top, plot
from genmon.ui.panels import log
from genmon.ui.picture import ACCENT, BOLD, DIM, LOOK, OK, PLAIN, WARN, Picture, fit, rule

Spec = tuple[str, Callable[[Point], float | None], Style, int]
_AXIS = 7
"""Cells left of a plot for its scale."""
_PLOTS: tuple[Spec, ...] = (
    ("watts", lambda point: point.power_w, ACCENT, 0),
    ("tokens/s", lambda point: point.tokens_per_s, OK, 0),
    ("acceptance length", lambda point: point.acceptance_length, LOOK, 2),
    ("in flight", lambda point: point.in_flight, PLAIN, 0),
)
"""Title, value, style, decimals."""


def lines(picture: Picture, server: ServerState, width: int, height: int) -> list[Text]:
    """All of it in `height` lines; the plots take what the words leave."""
    found = [
        rule(f"{server.name}", width, picture.glyphs, "[ ]: shorter, longer   esc: back"),
        _figures(picture, server, width),
    ]
    command = _command(server, width)
    log_height = max(4, height // 5)
    room = height - len(found) - len(command) - log_height - 1
    two = width >= 110
    each = max(2, (room // 2 if two else room // 4) - 1)
    found += _side_by_side(picture, server, width, each) if two else _stacked(picture, server, width, each)
    found.append(_axis(picture, width, two))
    found += command
    return [*found, *log.lines(picture, width, height - len(found))][:height]


def _figures(picture: Picture, server: ServerState, width: int) -> Text:
    gpu = picture.gpu(server)
    mtp = UNKNOWN if server.mtp is None else "on" if server.mtp else "off"
    parts = [
        f"{picture.glyphs.phases[server.phase]} {server.phase.value}",
        watts(gpu.power_w if gpu else None, gpu.power_limit_w if gpu else None),
        f"{count(server.tokens_per_s)} tok/s",
        f"MTP {mtp}",
        f"acceptance {decimal(server.acceptance_length)}",
        f"{server.in_flight}/{UNKNOWN if server.cap is None else server.cap} in flight",
        f"KV {share(server.kv_usage)}",
        f"launch {server.launches}",
        f"SGLang {server.version or UNKNOWN}",
    ]
    text = ""
    for part in parts:
        if len(text) + len(part) + 4 <= width:
            text += f" {part}  "
    return Text(text, BOLD, no_wrap=True)


def _stacked(picture: Picture, server: ServerState, width: int, each: int) -> list[Text]:
    return [line for spec in _PLOTS for line in _plot(picture, server, spec, width, each)]


def _side_by_side(picture: Picture, server: ServerState, width: int, each: int) -> list[Text]:
    half = width // 2
    blocks = [_plot(picture, server, spec, half, each) for spec in _PLOTS]
    return [
        Text.assemble(left, " " * max(0, half - len(left.plain)), right)
        for pair in (blocks[:2], blocks[2:])
        for left, right in zip(*pair, strict=True)
    ]


def _plot(
    picture: Picture,
    server: ServerState,
    spec: Spec,
    width: int,
    height: int,
) -> list[Text]:
    """A title with the last and the highest value, then the plot with its scale on the left."""
    title, value, style, digits = spec
    track = picture.history.track(server.name)
    begin, end = picture.plots_until - picture.eyes.span_s, picture.plots_until
    points = track.seconds if picture.eyes.span_s <= 300 else (*track.minutes, *track.seconds)
    shown = [(point.at, value(point)) for point in points if begin <= point.at <= end]
    known = [each for _, each in shown if each is not None]
    top = _ceiling(picture, server, title, known)
    room = width - _AXIS - 2
    head = Text(" " * _AXIS, no_wrap=True)
    head.append(title, style + BOLD)
    last = shown[-1][1] if shown else None
    most = max(known, default=None)
    head.append(f"  now {decimal(last, digits)}  most {decimal(most, digits)}", DIM)
    drawn = plot(shown, room, height, (begin, end), top, picture.glyphs)
    marks = {int((mark.at - begin) / (end - begin) * room) for mark in track.marks if begin <= mark.at < end}
    found = [head]
    for number, cells in enumerate(drawn):
        scale = count(top) if number == 0 else "0" if number == height - 1 else ""
        line = Text(f"{scale:>{_AXIS - 1}} ", DIM, no_wrap=True)
        for column, cell in enumerate(cells):
            if cell == " " and column in marks:
                line.append(picture.glyphs.mark, WARN)
            else:
                line.append(cell, style)
        found.append(line)
    return found


def _ceiling(picture: Picture, server: ServerState, title: str, known: list[float]) -> float:
    """What the plot's upper edge stands for: the power limit and the cap where they are known."""
    gpu = picture.gpu(server)
    edge = {"watts": gpu.power_limit_w if gpu else None, "in flight": server.cap}.get(title)
    return max([float(edge), *known]) if edge else nice_top(known)


def _axis(picture: Picture, width: int, two: bool) -> Text:
    """Times under the plots, and the last mark's words."""
    room = (width // 2 if two else width) - _AXIS - 2
    begin = time.strftime("%H:%M:%S", time.localtime(picture.plots_until - picture.eyes.span_s))
    end = time.strftime("%H:%M:%S", time.localtime(picture.plots_until))
    axis = " " * _AXIS + begin + " " * max(1, room - len(begin) - len(end)) + end
    server = picture.cursor_server
    marks = picture.history.track(server.name).marks if server else ()
    line = Text(axis, DIM, no_wrap=True)
    if two and marks:
        words = f"{picture.glyphs.mark} {time.strftime('%H:%M', time.localtime(marks[-1].at))} {marks[-1].text}"
        line.append("   " + fit(words, width - len(axis) - 4, picture.glyphs), WARN)
    return line


def _command(server: ServerState, width: int) -> list[Text]:
    """The launch command, at most three lines, broken between flags."""
    words = " ".join(server.argv) or "launched by someone else"
    found: list[Text] = []
    text = " $"
    for word in words.split(" "):
        if len(text) + len(word) + 1 > width:
            found.append(Text(text, DIM, no_wrap=True))
            text = "  "
        text += f" {word}"
    found.append(Text(text, DIM, no_wrap=True))
    return found[:3]
