"""What is wrong and which key mends it; flag changes under way, and what the last one brought."""

from __future__ import annotations

from rich.text import Text

from genmon.figures import duration
from genmon.state import FlagChange, Tell, TellLevel
from genmon.ui.picture import ALARM, BOLD, DIM, LOOK, OK, WARN, Picture, fit, rule

_STYLES = {TellLevel.LOOK: LOOK, TellLevel.WARN: WARN, TellLevel.ALARM: ALARM}
_ORDER = {TellLevel.ALARM: 0, TellLevel.WARN: 1, TellLevel.LOOK: 2}
_SHOWN_S = 600.0
"""An ended change is shown for this long."""


def ordered(picture: Picture) -> list[Tell]:
    """Tells, the most urgent first, then the oldest."""
    return sorted(picture.state.tells, key=lambda tell: (_ORDER[tell.level], tell.since))


def changes(picture: Picture) -> list[FlagChange]:
    """Flag changes worth a line: under way, lately ended, or waiting for someone to decide."""
    return [
        change
        for change in picture.state.changes
        if change.ended_at is None or picture.now - change.ended_at < _SHOWN_S
    ]


def wanted(picture: Picture) -> int:
    """Lines that would show everything."""
    return 1 + max(1, len(picture.state.tells) + len(changes(picture)))


def lines(picture: Picture, width: int, height: int) -> list[Text]:
    """A rule, then changes and tells, one line each; what does not fit is counted in the rule."""
    body = [_change(picture, change, width) for change in changes(picture)]
    body += [_tell(picture, tell, width) for tell in ordered(picture)]
    room = max(0, height - 1)
    more = f"{len(body) - room} more" if len(body) > room else ""
    if not body:
        body = [Text(" nothing is wrong", DIM)]
    return [rule("tells", width, picture.glyphs, more), *body[:room]]


def _tell(picture: Picture, tell: Tell, width: int) -> Text:
    style = _STYLES[tell.level]
    line = Text(f" {picture.glyphs.levels[tell.level]} {tell.level.value:<5} ", style, no_wrap=True)
    mend = f"  {tell.mend}" if tell.mend else ""
    age = f"  {duration(picture.now - tell.since)}"
    room = width - len(line.plain) - len(age)
    sentence = fit(tell.sentence, max(12, room - len(mend)), picture.glyphs)
    line.append(sentence)
    line.append(fit(mend, max(0, room - len(sentence)), picture.glyphs), BOLD)
    line.append(age, DIM)
    line.truncate(width)
    return line


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
