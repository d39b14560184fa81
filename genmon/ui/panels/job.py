"""How far the job is: rows, rates, energy, answer classes, and a cell for each shard."""

from __future__ import annotations

from itertools import groupby

from rich.style import Style
from rich.text import Text

from genmon.figures import UNKNOWN, count, decimal, energy
from genmon.state import AnswerClass, ShardPhase, ShardState
from genmon.ui.draw import bar
from genmon.ui.picture import ALARM, BOLD, DIM, OK, PLAIN, WARN, Picture, rule

_CLASSES = {AnswerClass.COMPLETE: OK, AnswerClass.TRUNCATED: WARN}
"""Other classes are no training data."""
_GAP = "   "


def lines(picture: Picture, width: int) -> list[Text]:
    """Five lines: a rule, rows with their bar, rates and energy, answer classes, the shards."""
    return [
        rule("job", width, picture.glyphs, _left_over(picture)),
        _rows(picture, width),
        _row_of(_figures(picture), width),
        _row_of(_classes(picture), width),
        _shards(picture, width),
    ]


def _left_over(picture: Picture) -> str:
    job = picture.state.job
    parts = [f"{job.rows_failed:,} failed"] if job.rows_failed else []
    parts += [f"{job.rows_skipped:,} skipped"] if job.rows_skipped else []
    parts += [f"{job.retries:,} retries"] if job.retries else []
    return ", ".join(parts)


def _rows(picture: Picture, width: int) -> Text:
    job = picture.state.job
    total = UNKNOWN if job.rows_total is None else f"{job.rows_total:,}"
    part = job.rows_done / job.rows_total if job.rows_total else None
    words = f"{job.rows_done:,}/{total} rows"
    percent = UNKNOWN if part is None else f"{part:.1%}"
    room = max(4, width - len(words) - len(percent) - 4)
    line = Text(" ", no_wrap=True)
    line.append(bar(part, 1.0, room, picture.glyphs), OK)
    line.append(f" {percent} ", BOLD)
    line.append(words)
    return line


def _figures(picture: Picture) -> list[tuple[str, str, Style]]:
    """(name, value, style), most important first."""
    job = picture.state.job
    return [
        ("tok/s", count(job.tokens_per_s), BOLD),
        ("J/token", decimal(job.joules_per_token), BOLD),
        ("rows/s", decimal(job.rows_per_s), PLAIN),
        ("in flight", f"{job.rows_in_flight:,}", PLAIN),
        ("energy", energy(job.energy_j), PLAIN),
        ("tokens", count(job.tokens), PLAIN),
        ("mean tok/s", count(job.tokens_per_s_mean), PLAIN),
    ]


def _classes(picture: Picture) -> list[tuple[str, str, Style]]:
    classes = picture.state.job.classes
    total = sum(classes.values())
    if not total:
        return [("answers", "none yet", DIM)]
    return [
        (each.value.replace("_", " "), f"{number / total:.1%}", _CLASSES.get(each, ALARM))
        for each, number in sorted(classes.items(), key=lambda item: -item[1])
        if number
    ]


def _row_of(figures: list[tuple[str, str, Style]], width: int) -> Text:
    """As many figures as fit, whole."""
    line = Text(" ", no_wrap=True)
    for name, value, style in figures:
        gap = "" if len(line.plain) == 1 else _GAP
        if len(line.plain) + len(gap) + len(name) + len(value) + 1 > width:
            break
        line.append(f"{gap}{name} ", DIM)
        line.append(value, style)
    return line


def _shards(picture: Picture, width: int) -> Text:
    """A cell a shard; more shards than cells share them, and a cell shows the least far of its own."""
    shards = picture.state.job.shards
    line = Text(" ", no_wrap=True)
    if not shards:
        return line.append("shards –", DIM)
    done = sum(shard.phase is ShardPhase.DONE for shard in shards)
    words = f" {done:,}/{len(shards):,} shards"
    room = max(1, min(len(shards), width - len(words) - 2))
    cells = (_cell(picture, _share(shards, cell, room)) for cell in range(room))
    for style, alike in groupby(cells, key=lambda cell: cell[1]):
        line.append("".join(sign for sign, _ in alike), style)
    return line.append(words, DIM)


def _share(shards: tuple[ShardState, ...], cell: int, cells: int) -> tuple[ShardState, ...]:
    """The shards that one cell of many stands for; never none."""
    begin = cell * len(shards) // cells
    return shards[begin : max((cell + 1) * len(shards) // cells, begin + 1)]


def _cell(picture: Picture, shards: tuple[ShardState, ...]) -> tuple[str, Style]:
    glyphs = picture.glyphs
    if any(shard.failed for shard in shards):
        return glyphs.shard_failed, WARN
    phases = {shard.phase for shard in shards}
    if len(phases) > 1 or ShardPhase.RUNNING in phases:
        return glyphs.shards[ShardPhase.RUNNING], PLAIN
    (phase,) = phases
    return glyphs.shards[phase], OK if phase is ShardPhase.DONE else DIM
