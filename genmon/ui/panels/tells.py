"""What is wrong and which key mends it; flag changes under way, and what the last one brought."""

from __future__ import annotations

from textwrap import wrap

from rich.text import Text

from genmon.figures import duration
from genmon.state import FlagChange, Tell, TellLevel
from genmon.ui.picture import ALARM, BOLD, DIM, LOOK, OK, WARN, Picture, fit, rule

_STYLES = {TellLevel.LOOK: LOOK, TellLevel.WARN: WARN, TellLevel.ALARM: ALARM}
_ORDER = {TellLevel.ALARM: 0, TellLevel.WARN: 1, TellLevel.LOOK: 2}
_SHOWN_S = 600.0
"""An ended change is shown for this long."""


def ordered(picture: Picture) -> list[Tell]:
    """Tells, the most urgent first, then as the engine orders them: the cause before what it brings about."""
    return sorted(picture.state.tells, key=lambda tell: _ORDER[tell.level])


def changes(picture: Picture) -> list[FlagChange]:
    """Flag changes worth a line: under way, lately ended, or waiting for someone to decide."""
    return [
        change
        for change in picture.state.changes
        if change.ended_at is None or picture.now - change.ended_at < _SHOWN_S
    ]


def wanted(picture: Picture, width: int) -> int:
    """Lines that would show everything."""
    return 1 + max(1, len(_body(picture, width)))


def lines(picture: Picture, width: int, height: int) -> list[Text]:
    """A rule, then changes and tells; what does not fit is counted in the rule."""
    body = _body(picture, width)
    room = max(0, height - 1)
    left = len(body) - room
    more = f"{left} more {'line' if left == 1 else 'lines'}" if left > 0 else ""
    if not body:
        body = [Text(" nothing is wrong", DIM)]
    return [rule("tells", width, picture.glyphs, more), *body[:room]]


def _body(picture: Picture, width: int) -> list[Text]:
    found = [_change(picture, change, width) for change in changes(picture)]
    for tell in ordered(picture):
        found += _tell(picture, tell, width)
    return found


def _tell(picture: Picture, tell: Tell, width: int) -> list[Text]:
    """The sentence, what mends it and since when, on one line or on as many as the sentence needs."""
    style = _STYLES[tell.level]
    head = f" {picture.glyphs.levels[tell.level]} {tell.level.value:<5} "
    age = f"  {duration(picture.now - tell.since)}"
    tail = f"  {tell.mend}" if tell.mend else ""
    sentences = wrap(tell.sentence, max(20, width - len(head) - 1)) or [""]
    found = []
    for number, words in enumerate(sentences):
        line = Text(no_wrap=True)
        line.append(head if number == 0 else " " * len(head), style)
        found.append(line.append(words))
    if len(found[-1].plain) + len(tail) + len(age) > width:
        found.append(Text(" " * (len(head) - 2), no_wrap=True))
    found[-1].append(fit(tail, max(0, width - len(found[-1].plain) - len(age)), picture.glyphs), style + BOLD)
    found[-1].append(age, DIM)
    return found


def _change(picture: Picture, change: FlagChange, width: int) -> Text:
    verdict = change.verdict
    words = change.outcome or change.stage or "waiting"
    if verdict is not None:
        words = f"{verdict.word}: {verdict.sentence}"
    ended = change.ended_at is not None
    style = ALARM if change.rolled_back else OK if ended else WARN
    done = "" if ended else f" {len(change.done)}/{len(change.servers)}"
    line = Text(f" {picture.glyphs.mark} flags{done} ", style, no_wrap=True)
    keys = "  a: all, u: undo" if change.canary and ended and not change.rolled_back else "" if ended else "  c: cancel"
    line.append(fit(f"{change.what}: {words}", max(12, width - len(line.plain) - len(keys)), picture.glyphs))
    line.append(keys, BOLD)
    line.truncate(width)
    return line
