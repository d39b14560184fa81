"""The lowest panel: the run's events, or one server's log."""

from __future__ import annotations

import time

from rich.text import Text

from genmon.ui.picture import ALARM, DIM, PLAIN, WARN, Picture, fit, rule


def lines(picture: Picture, width: int, height: int) -> list[Text]:
    """A rule and the newest lines that fit, the newest last."""
    room = max(0, height - 1)
    if picture.eyes.log_server is not None:
        shown = list(picture.eyes.log[-room:]) if room else []
        title = f"log of {picture.eyes.log_server}"
        body = [_log_line(text, width, picture) for text in shown] or [Text(" no line yet", DIM)]
        return [rule(title, width, picture.glyphs, "l: next, esc: events"), *body[:room]]
    events = picture.state.events[-room:] if room else ()
    body = []
    for event in events:
        line = Text(no_wrap=True)
        line.append(f" {time.strftime('%H:%M:%S', time.localtime(event.at))} ", DIM)
        body.append(line.append(fit(event.text, width - 10, picture.glyphs)))
    return [rule("events", width, picture.glyphs), *(body or [Text(" none yet", DIM)])][: room + 1]


def _log_line(text: str, width: int, picture: Picture) -> Text:
    lowered = text.lower()
    style = ALARM if "error" in lowered or "traceback" in lowered else WARN if "warn" in lowered else PLAIN
    return Text(fit(f" {text}", width, picture.glyphs), style, no_wrap=True)
