"""The last line: the keys that matter most, as many as fit."""

from __future__ import annotations

from rich.text import Text

from genmon.ui.keys import KEYS
from genmon.ui.picture import BOLD, DIM, Picture


def places(width: int) -> list[tuple[int, int, str]]:
    """(first cell, cell after the last, action) of each hint that fits."""
    found, at = [], 1
    for key in KEYS:
        if key.hint is None:
            continue
        end = at + len(key.shown) + 1 + len(key.hint)
        if end + 2 > width:
            break
        found.append((at, end, key.action))
        at = end + 2
    return found


def line(picture: Picture, width: int) -> Text:
    """One line."""
    text = Text(" ", no_wrap=True)
    by_action = {key.action: key for key in KEYS}
    for _, _, action in places(width):
        key = by_action[action]
        text.append(key.shown, BOLD)
        text.append(f" {key.hint}  ", DIM)
    return text
