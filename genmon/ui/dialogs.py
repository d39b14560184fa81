"""What the dashboard asks: once, with all that will happen, and Escape as the way out."""

from __future__ import annotations

from enum import StrEnum
from typing import ClassVar

from rich.style import Style
from rich.text import Text
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical, VerticalScroll
from textual.screen import ModalScreen
from textual.widgets import Static

from genmon.commands import Plan, ServerPlan
from genmon.ui.keys import KEYS
from genmon.ui.picture import ALARM, BOLD, DIM, OK

_CSS = """
{name} {{ align: center middle; }}
{name} > * {{
    width: {width}; max-width: 96%; height: auto; max-height: 90%;
    border: round $accent; padding: 0 1; background: $background;
}}
"""


class Confirm(ModalScreen[bool]):
    """Shows a plan; y or Enter agrees."""

    CSS = _CSS.format(name="Confirm", width=84)
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("y,enter", "answer(True)", "do it"),
        Binding("n,escape,q", "answer(False)", "leave it"),
    ]

    def __init__(self, plan: Plan) -> None:
        super().__init__()
        self._plan = plan

    def compose(self) -> ComposeResult:
        """The plan in words, the flag diff of each server that has one, and the keys."""
        text = Text()
        text.append(f"{self._plan.sentence}\n", BOLD)
        for diff, servers in grouped(self._plan.servers):
            text.append(f"\n{', '.join(servers)}\n", BOLD)
            for sign, word, style in diff:
                text.append(f"  {sign} {word}\n", style)
            if not diff:
                text.append("  the same flags\n", DIM)
        text.append("\n y ", BOLD)
        text.append("do it   ", DIM)
        text.append("n ", BOLD)
        text.append("leave it", DIM)
        yield VerticalScroll(Static(text))

    def action_answer(self, agreed: bool) -> None:
        """Close with the answer."""
        self.dismiss(agreed)


def grouped(plans: tuple[ServerPlan, ...]) -> list[tuple[list[tuple[str, str, Style]], list[str]]]:
    """Servers that change alike, with what comes and goes."""
    found: list[tuple[list[tuple[str, str, Style]], list[str]]] = []
    for plan in plans:
        diff: list[tuple[str, str, Style]] = [("-", word, ALARM) for word in plan.before if word not in plan.after]
        diff += [("+", word, OK) for word in plan.after if word not in plan.before]
        rows = f"{plan.server} ({plan.in_flight} in flight)"
        for known, servers in found:
            if known == diff:
                servers.append(rows)
                break
        else:
            found.append((diff, [rows]))
    return found


class Leaving(StrEnum):
    """What quitting means this time."""

    DETACH = "detach"
    DRAIN = "drain"
    STOP = "stop"


class Leave(ModalScreen[Leaving | None]):
    """Detach (the default), drain or stop."""

    CSS = _CSS.format(name="Leave", width=76)
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("d,enter", "answer('detach')", "detach"),
        Binding("s", "answer('drain')", "drain"),
        Binding("k", "answer('stop')", "stop at once"),
        Binding("escape,n,q", "stay", "stay"),
    ]

    def __init__(self, in_flight: int) -> None:
        super().__init__()
        self._in_flight = in_flight

    def compose(self) -> ComposeResult:
        """The ways out."""
        rows = "1 row" if self._in_flight == 1 else f"{self._in_flight:,} rows"
        text = Text()
        for key, what, more in (
            ("d", "detach", "the run goes on; genmon attach brings this back (Enter)"),
            ("s", "stop", f"{rows} in flight finish first, then the run ends"),
            ("k", "stop now", f"{rows} in flight are generated again by the next run"),
            ("esc", "stay", ""),
        ):
            text.append(f" {key:<4}", BOLD)
            text.append(f"{what:<9} ")
            text.append(f"{more}\n", DIM)
        text.append("\nNo finished row is lost in any of these.", DIM)
        yield Vertical(Static(text))

    def action_answer(self, leaving: str) -> None:
        """Close with the way chosen."""
        self.dismiss(Leaving(leaving))

    def action_stay(self) -> None:
        """Close; nothing happens."""
        self.dismiss(None)


class Help(ModalScreen[None]):
    """All keys, from the table."""

    CSS = _CSS.format(name="Help", width=84)
    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape,question_mark,q,enter,f1", "close", "close")]

    def compose(self) -> ComposeResult:
        """One line a key."""
        text = Text()
        for key in KEYS:
            text.append(f" {key.shown:<7}", BOLD)
            text.append(f"{key.help}\n")
        text.append("\n ctrl+p  ", BOLD)
        text.append("the same as a palette to type in\n\n")
        text.append(
            " W/limit: the driver's 1-s average against the enforced limit.  acc: tokens a verify step.\n"
            " flight: rows in flight of the cap the server granted (cyan: less than asked for).",
            DIM,
        )
        yield VerticalScroll(Static(text))

    def action_close(self) -> None:
        """Close."""
        self.dismiss(None)
