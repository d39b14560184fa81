"""The characters that bars, trends and states are drawn with: Unicode, or ASCII where a terminal has no more."""

from __future__ import annotations

from msgspec import Struct

from genmon.state import ServerPhase, ShardPhase, TellLevel


class Glyphs(Struct, frozen=True, kw_only=True):
    """One set; every state has a sign of its own, so that colour is never needed to tell them apart."""

    bar: str
    """Fills of one cell, from the least to the whole."""
    gap: str
    """An empty cell of a bar."""
    tick: str
    over: str
    """The last cell of a bar that is beyond its scale."""
    trend: str
    """Levels of a trend, lowest first."""
    rule: str
    cursor: str
    selected: str
    dot: str
    ellipsis: str
    mark: str
    braille: bool
    phases: dict[ServerPhase, str]
    shards: dict[ShardPhase, str]
    shard_failed: str
    levels: dict[TellLevel, str]


UNICODE = Glyphs(
    bar="▏▎▍▌▋▊▉█",
    gap="·",
    tick="╎",
    over="▶",
    trend="▁▂▃▄▅▆▇█",
    rule="─",
    cursor="▸",
    selected="◆",
    dot="·",
    ellipsis="…",
    mark="┊",
    braille=True,
    phases={
        ServerPhase.WAITING: "◌",
        ServerPhase.STARTING: "◔",
        ServerPhase.SMOKE: "◑",
        ServerPhase.READY: "●",
        ServerPhase.DRAINING: "◕",
        ServerPhase.STOPPING: "◔",
        ServerPhase.STOPPED: "○",
        ServerPhase.BACKOFF: "↻",
        ServerPhase.GIVEN_UP: "✗",
    },
    shards={ShardPhase.DONE: "█", ShardPhase.RUNNING: "▒", ShardPhase.WAITING: "░"},
    shard_failed="▞",
    levels={TellLevel.LOOK: "◇", TellLevel.WARN: "▲", TellLevel.ALARM: "✖"},
)

ASCII = Glyphs(
    bar="#",
    gap=".",
    tick="|",
    over=">",
    trend="_.-=+*#",
    rule="-",
    cursor=">",
    selected="*",
    dot="-",
    ellipsis="~",
    mark="|",
    braille=False,
    phases={
        ServerPhase.WAITING: ".",
        ServerPhase.STARTING: "~",
        ServerPhase.SMOKE: "?",
        ServerPhase.READY: "o",
        ServerPhase.DRAINING: "v",
        ServerPhase.STOPPING: "v",
        ServerPhase.STOPPED: "-",
        ServerPhase.BACKOFF: "r",
        ServerPhase.GIVEN_UP: "x",
    },
    shards={ShardPhase.DONE: "#", ShardPhase.RUNNING: "+", ShardPhase.WAITING: "."},
    shard_failed="!",
    levels={TellLevel.LOOK: "?", TellLevel.WARN: "!", TellLevel.ALARM: "X"},
)


def glyphs_for(encoding: str | None) -> Glyphs:
    """The set that an output encoding can carry."""
    try:
        "".join([UNICODE.bar, UNICODE.trend, UNICODE.tick]).encode(encoding or "ascii")
    except (UnicodeEncodeError, LookupError):
        return ASCII
    return UNICODE
