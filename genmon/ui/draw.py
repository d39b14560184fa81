"""Bars, trends and plots as strings of a given width. Nothing here knows what is drawn."""

from __future__ import annotations

import math
from collections.abc import Sequence

from genmon.ui.glyphs import Glyphs

_LEFT, _RIGHT = (0x00, 0x40, 0x44, 0x46, 0x47), (0x00, 0x80, 0xA0, 0xB0, 0xB8)
"""Bits of 0 to 4 braille dots from the bottom, in a cell's left and right column (Unicode block 2800)."""
_CELLS = [[chr(0x2800 + left + right) if left + right else " " for right in _RIGHT] for left in _LEFT]


def bar(value: float | None, scale: float | None, width: int, glyphs: Glyphs, ticks: Sequence[float] = ()) -> str:
    """`value` of `scale` over `width` cells, with a tick at each of `ticks` that the fill has not reached.

    A value beyond the scale fills the bar and says so in its last cell; an unknown one is an empty bar.
    """
    if value is None or not scale or scale <= 0:
        return glyphs.gap * width
    steps = len(glyphs.bar)
    filled = max(0, round(value / scale * width * steps))
    if filled > width * steps:
        return glyphs.bar[-1] * (width - 1) + glyphs.over
    whole, part = divmod(filled, steps)
    cells = [glyphs.bar[-1]] * whole + ([glyphs.bar[part - 1]] if part else [])
    cells += [glyphs.gap] * (width - len(cells))
    for tick in ticks:
        cell = min(width - 1, int(tick / scale * width))
        if cells[cell] == glyphs.gap:
            cells[cell] = glyphs.tick
    return "".join(cells)


def trend(
    values: Sequence[float | None], width: int, glyphs: Glyphs, top: float | None = None, height: int = 1
) -> list[str]:
    """The last values as `height` lines from 0 to `top` (default: the highest), two values a cell in braille.

    What is unknown is a gap.
    """
    across = width * 2 if glyphs.braille else width
    shown: list[float | None] = [None] * max(0, across - len(values))
    shown += values[-across:]
    highest = max(top or 0.0, max((value for value in shown if value is not None), default=0.0))
    if glyphs.braille:
        return _braille([_level(value, highest, height * 4) for value in shown], height)
    steps = len(glyphs.trend)
    levels = [_level(value, highest, height * steps) for value in shown]
    floors = [(height - 1 - row) * steps for row in range(height)]
    return ["".join(_step(level - floor, glyphs) for level in levels) for floor in floors]


def _step(level: int, glyphs: Glyphs) -> str:
    return " " if level <= 0 else glyphs.trend[min(level, len(glyphs.trend)) - 1]


def plot(
    points: Sequence[tuple[float, float | None]],
    width: int,
    height: int,
    span: tuple[float, float],
    top: float,
    glyphs: Glyphs,
) -> list[str]:
    """Points (time, value) as `height` lines of `width` cells: time over `span`, filled from 0 up to the value."""
    across, down = (width * 2, height * 4) if glyphs.braille else (width, height)
    begin, end = span
    columns: list[list[float]] = [[] for _ in range(across)]
    for at, value in points:
        column = int((at - begin) / (end - begin) * across) if end > begin else -1
        if value is not None and 0 <= column < across:
            columns[column].append(value)
    filled = _without_small_gaps([sum(values) / len(values) if values else None for values in columns], len(points))
    levels = [_level(value, top, down) for value in filled]
    if glyphs.braille:
        return _braille(levels, height)
    return ["".join("#" if level > down - 1 - row else " " for level in levels) for row in range(down)]


def _without_small_gaps(values: list[float | None], points: int) -> list[float | None]:
    """A plot finer than its points: the last value stands until the next could be there."""
    patience = max(1, 2 * len(values) // max(1, points))
    made, last, age = [], None, 0
    for value in values:
        last, age = (value, 0) if value is not None else (last, age + 1)
        made.append(last if age <= patience else None)
    return made


def _level(value: float | None, top: float, down: int) -> int:
    """Dots from the bottom: none for the unknown, at least one for what is known."""
    if value is None:
        return 0
    return min(down, max(1, int(value / top * down + 0.5))) if top > 0 else 1


def _braille(levels: list[int], height: int) -> list[str]:
    """Columns of dots, two a cell, four rows of them a line."""
    lines = []
    for row in range(height):
        floor = (height - 1 - row) * 4
        dots = [0 if level <= floor else min(4, level - floor) for level in levels]
        lines.append("".join([_CELLS[left][right] for left, right in zip(dots[::2], dots[1::2], strict=True)]))
    return lines


def nice_top(values: Sequence[float | None]) -> float:
    """A round number at or above all values: a small number times a power of ten."""
    highest = max((value for value in values if value is not None), default=0.0)
    if highest <= 0:
        return 1.0
    size = 10.0 ** math.floor(math.log10(highest))
    return next(size * step for step in (1, 1.5, 2, 3, 4, 5, 6, 8, 10) if size * step >= highest)
