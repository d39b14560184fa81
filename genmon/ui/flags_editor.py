"""The flags editor: type what to set and what to take away, see the exact diff at once, and what would not work."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import ClassVar

from rich.text import Text
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.screen import ModalScreen
from textual.suggester import SuggestFromList
from textual.widgets import Input, Static

from genmon.commands import Plan, Restart
from genmon.errors import Refused
from genmon.ui.dialogs import grouped
from genmon.ui.picture import ALARM, BOLD, DIM


def parse(text: str) -> tuple[dict[str, str | bool], tuple[str, ...]]:
    """`a=1 b -c` sets a to 1 and the bare flag b, and takes c away."""
    sets: dict[str, str | bool] = {}
    unsets = []
    for word in text.split():
        name, equals, value = word.lstrip("+").partition("=")
        if word.startswith("-") and not word.startswith("--"):
            unsets.append(word.lstrip("-"))
        elif name.strip("-"):
            sets[name.lstrip("-")] = value if equals else True
    return sets, tuple(unsets)


class FlagsEditor(ModalScreen[Restart | None]):
    """Enter applies to the servers one after the other; Ctrl+T to the first of them only, as a canary."""

    CSS = """
    FlagsEditor { align: center middle; }
    FlagsEditor > Vertical {
        width: 96; max-width: 96%; height: auto; max-height: 90%;
        border: round $accent; padding: 0 1; background: $background;
    }
    FlagsEditor Input { border: none; height: 1; padding: 0; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "leave", "leave it"),
        Binding("ctrl+t", "canary", "the first only", priority=True),
    ]

    def __init__(
        self,
        servers: tuple[str, ...],
        flags: tuple[str, ...],
        fleet: int,
        plan: Callable[[Restart], Awaitable[Plan]],
    ) -> None:
        """`flags` are the launch flags now, one element a flag; `fleet` is how many servers there are in all."""
        super().__init__()
        self._servers, self._flags, self._fleet, self._plan = servers, flags, fleet, plan

    def compose(self) -> ComposeResult:
        """The flags as they are, one line to type in, and the diff."""
        now = Text()
        now.append(f"flags of {', '.join(self._servers)}\n", BOLD)
        now.append("  ".join(self._flags) + "\n", DIM)
        keys = Text()
        for key, what in (("name=value", "sets   "), ("name", "sets a bare flag   "), ("-name", "takes away")):
            keys.append(f" {key} ", BOLD)
            keys.append(what, DIM)
        keys.append("\n enter ", BOLD)
        keys.append("apply, one server after the other   ", DIM)
        keys.append("ctrl+t ", BOLD)
        keys.append("the first only (canary)   ", DIM)
        keys.append("esc ", BOLD)
        keys.append("leave it", DIM)
        names = sorted(word.lstrip("-").split("=")[0].split(" ")[0] for word in self._flags)
        yield Vertical(
            Static(now),
            Input(placeholder="max-running-requests=64 -disable-radix-cache", suggester=SuggestFromList(names)),
            Static("", id="diff"),
            Static(keys),
        )

    async def on_input_changed(self, event: Input.Changed) -> None:
        """Ask the engine what this would do."""
        self.query_one("#diff", Static).update(await self._would_do(self._command(canary=False)))

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """Apply to all."""
        self._give(canary=len(self._servers) < self._fleet)

    def action_canary(self) -> None:
        """Apply to the first only."""
        self._servers = self._servers[:1]
        self._give(canary=True)

    def action_leave(self) -> None:
        """Close; nothing happens."""
        self.dismiss(None)

    def _give(self, *, canary: bool) -> None:
        command = self._command(canary=canary)
        if command.set or command.unset:
            self.dismiss(command)

    def _command(self, *, canary: bool) -> Restart:
        sets, unsets = parse(self.query_one(Input).value)
        return Restart(servers=self._servers, set=sets, unset=unsets, canary=canary)

    async def _would_do(self, command: Restart) -> Text:
        if not command.set and not command.unset:
            return Text("")
        try:
            plan = await self._plan(command)
        except Refused as refused:
            return Text(f"\n{refused}\n", ALARM)
        text = Text("\n")
        for diff, servers in grouped(plan.servers):
            text.append(f"{', '.join(servers)}\n", BOLD)
            for sign, word, style in diff:
                text.append(f"  {sign} {word}\n", style)
            if not diff:
                text.append("  no change\n", DIM)
        return text
