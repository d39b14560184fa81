"""Every key: one table, from which bindings, the help screen, the hints and the command palette are made."""

from __future__ import annotations

from msgspec import Struct


class Key(Struct, frozen=True, kw_only=True):
    """One action: its keys, as Textual names them, and what it says of itself."""

    id: str
    keys: str
    shown: str
    """The key as people write it."""
    action: str
    help: str
    hint: str | None = None
    """A word for the last line of the screen; None keeps it to the help."""


KEYS = (
    Key(id="help", keys="question_mark,f1", shown="?", action="help", help="show this help", hint="help"),
    Key(id="quit", keys="q,ctrl+c", shown="q", action="leave", help="leave, or stop the run: asks which", hint="quit"),
    Key(id="detach", keys="d", shown="d", action="detach", help="leave the dashboard; the run goes on", hint="detach"),
    Key(
        id="mtp",
        keys="m",
        shown="m",
        action="toggle_mtp",
        help="MTP on or off, on the selected GPUs; shows the flag diff and asks",
        hint="MTP",
    ),
    Key(
        id="mend",
        keys="g",
        shown="g",
        action="mend",
        help="give what the first tell that has a command prescribes; shows the flag diff and asks",
    ),
    Key(
        id="detail",
        keys="enter",
        shown="enter",
        action="detail",
        help="one GPU, large: plots, flags, log",
        hint="detail",
    ),
    Key(id="pause", keys="p", shown="p", action="pause", help="pause sending, or go on", hint="pause"),
    Key(id="restart", keys="r", shown="r", action="restart", help="restart the selected GPUs' servers", hint="restart"),
    Key(
        id="flags", keys="f", shown="f", action="flags", help="edit the launch flags of the selected GPUs", hint="flags"
    ),
    Key(
        id="logs",
        keys="l",
        shown="l",
        action="logs",
        help="the log of the server under the cursor; again: the next",
        hint="logs",
    ),
    Key(
        id="more",
        keys="plus,equals_sign",
        shown="+",
        action="concurrency(1)",
        help="more rows in flight a server; beyond its cap genmon finds the best by itself",
        hint="more",
    ),
    Key(
        id="fewer",
        keys="minus",
        shown="-",
        action="concurrency(-1)",
        help="fewer rows in flight a server",
        hint="fewer",
    ),
    Key(
        id="dismiss",
        keys="x",
        shown="x",
        action="dismiss",
        help="dismiss the first tell until it comes up anew",
        hint="dismiss",
    ),
    Key(id="up", keys="up,k", shown="↑", action="move(-1)", help="the GPU above"),
    Key(id="down", keys="down,j", shown="↓", action="move(1)", help="the GPU below"),
    Key(
        id="select",
        keys="space",
        shown="space",
        action="select",
        help="select the GPU under the cursor, or take it out",
    ),
    Key(id="all", keys="asterisk", shown="*", action="select_all", help="select all GPUs, or none"),
    Key(id="promote", keys="a", shown="a", action="promote", help="give a canary's flags to all other servers"),
    Key(id="undo", keys="u", shown="u", action="undo", help="give the last change's servers their flags from before"),
    Key(id="cancel", keys="c", shown="c", action="cancel_change", help="give up the flag change under way"),
    Key(id="shorter", keys="left_square_bracket", shown="[", action="span(-1)", help="plots over a shorter time"),
    Key(id="longer", keys="right_square_bracket", shown="]", action="span(1)", help="plots over a longer time"),
    Key(id="theme", keys="t", shown="t", action="next_theme", help="the next theme"),
    Key(id="back", keys="escape", shown="esc", action="go_back", help="back; from a server's log to the events"),
)
