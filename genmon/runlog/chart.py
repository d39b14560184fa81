"""One plot as SVG: a line over time, launches marked; colours come from the page (light or dark)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape

from msgspec import Struct

WIDTH, _HEIGHT = 720, 168
_LEFT, _RIGHT, _TOP, _BOTTOM = 62, 22, 28, 24


class Line(Struct, frozen=True):
    """One line: (seconds, value) points; an unknown value is a gap. `css` names its colour."""

    css: str
    points: Sequence[tuple[float, float | None]]


def chart(title: str, lines: Sequence[Line], marks: Sequence[tuple[float, str]], span_s: float) -> str:
    """A plot from 0 to `span_s` seconds; `marks` are (seconds, words) shown as upright lines."""
    known = [value for line in lines for _, value in line.points if value is not None]
    if not known:
        return f"<p>{escape(title)}: –</p>"
    top = _nice(max(known))
    span_s = max(span_s, 1.0)

    def across(seconds: float) -> float:
        return _LEFT + (WIDTH - _LEFT - _RIGHT) * seconds / span_s

    def down(value: float) -> float:
        return _TOP + (_HEIGHT - _TOP - _BOTTOM) * (1 - value / top)

    parts = [f'<text class="title" x="0" y="14">{escape(title)}</text>']
    for part in (0.0, 0.5, 1.0):
        y = down(top * part)
        parts.append(f'<line class="grid" x1="{_LEFT}" x2="{WIDTH - _RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>')
        parts.append(f'<text class="y" x="{_LEFT - 6}" y="{y + 4:.1f}">{_short(top * part)}</text>')
    for seconds, words in _ticks(span_s):
        parts.append(f'<text class="x" x="{across(seconds):.1f}" y="{_HEIGHT - 5}">{words}</text>')
    for seconds, words in marks:
        x = across(min(max(seconds, 0.0), span_s))
        parts.append(
            f'<line class="mark" x1="{x:.1f}" x2="{x:.1f}" y1="{_TOP}" y2="{_HEIGHT - _BOTTOM}">'
            f"<title>{escape(words)}</title></line>"
        )
    for line in lines:
        for piece in _pieces(line.points):
            path = " ".join(f"{across(seconds):.1f},{down(value):.1f}" for seconds, value in piece)
            parts.append(f'<polyline class="{line.css}" points="{path}"/>')
    return f'<figure><svg viewBox="0 0 {WIDTH} {_HEIGHT}" role="img">{"".join(parts)}</svg></figure>'


def _pieces(points: Sequence[tuple[float, float | None]]) -> list[list[tuple[float, float]]]:
    pieces: list[list[tuple[float, float]]] = [[]]
    for seconds, value in points:
        if value is not None:
            pieces[-1].append((seconds, value))
        elif pieces[-1]:
            pieces.append([])
    return [piece for piece in pieces if piece]


def _nice(most: float) -> float:
    """A round number at or above."""
    if most <= 0:
        return 1.0
    size = 10.0 ** math.floor(math.log10(most))
    return next(size * step for step in (1, 1.5, 2, 3, 4, 5, 6, 8, 10) if size * step >= most)


def _short(value: float) -> str:
    return f"{value:,.0f}" if value >= 10 or value == int(value) else f"{value:.1f}"


def _ticks(span_s: float) -> list[tuple[float, str]]:
    """At most eight moments, in the unit that suits the span."""
    units = {"s": (1.0, (5, 10, 20, 30)), "min": (60.0, (1, 2, 5, 10, 20, 30)), "h": (3600.0, (1, 2, 4, 6, 12))}
    for unit, (unit_s, steps) in units.items():
        for step in steps:
            if span_s <= 7 * step * unit_s:
                return [(at * step * unit_s, f"{at * step} {unit}") for at in range(int(span_s / step / unit_s) + 1)]
    days = max(1, math.ceil(span_s / 86400 / 7))
    return [(at * days * 86400.0, f"{at * days} d") for at in range(int(span_s / days / 86400) + 1)]
