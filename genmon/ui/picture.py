"""What the panels draw from: the state, its past, and how this view looks at it."""

from __future__ import annotations

from msgspec import Struct
from rich.style import Style
from rich.text import Text

from genmon.history import History
from genmon.state import GpuSample, ServerState, State
from genmon.ui.glyphs import Glyphs

PLOT_EVERY_S = 5.0
STALE_S = 5.0
"""A sample older than this is shown as stale, with its age."""

OK = Style(color="green")
LOOK = Style(color="cyan")
WARN = Style(color="yellow")
ALARM = Style(color="red", bold=True)
DIM = Style(dim=True)
BOLD = Style(bold=True)
ACCENT = Style(color="cyan")
PLAIN = Style()
SIMULATED = Style(color="black", bgcolor="yellow", bold=True)


class Eyes(Struct, frozen=True, kw_only=True):
    """How this view looks at the run; never the engine's concern."""

    cursor: int = 0
    selected: frozenset[str] = frozenset()
    log_server: str | None = None
    """The server whose log the lower panel shows; None shows the run's events."""
    log: tuple[str, ...] = ()
    span_s: float = 300.0
    """What the detail plots show."""


class Picture(Struct, frozen=True, kw_only=True):
    """One moment, ready to be drawn."""

    state: State
    history: History
    now: float
    glyphs: Glyphs
    eyes: Eyes = Eyes()
    trouble: str | None = None
    """Why the engine is not connected; the state is then its last one."""

    def gpu(self, server: ServerState) -> GpuSample | None:
        """The sample of a server's GPU."""
        return next((gpu for gpu in self.state.gpus if gpu.uuid == server.gpu_uuid), None)

    @property
    def plots_until(self) -> float:
        """Plots move every five seconds: what moves each second costs a slow link twice as much, and shows no more."""
        return self.now // PLOT_EVERY_S * PLOT_EVERY_S

    @property
    def cursor_server(self) -> ServerState | None:
        """The server under the cursor."""
        servers = self.state.servers
        return servers[min(self.eyes.cursor, len(servers) - 1)] if servers else None

    def age_s(self, taken_at: float | None) -> float | None:
        """How old a sample is, or None while it is fresh (or was never taken)."""
        if taken_at is None:
            return None
        age = self.now - taken_at
        return age if age > STALE_S else None


def rule(title: str, width: int, glyphs: Glyphs, more: str = "") -> Text:
    """A panel's first line: its name, and on the right what there is to say of it."""
    line = Text(no_wrap=True)
    line.append(glyphs.rule * 2, DIM)
    line.append(f" {title} ", Style(color="cyan", bold=True))
    more = f" {more} " if more else ""
    room = width - len(line.plain) - len(more) - 1
    line.append(glyphs.rule * max(0, room), DIM)
    line.append(more[: max(0, width - len(line.plain))], DIM)
    line.append(glyphs.rule * max(0, width - len(line.plain)), DIM)
    return line


def fit(text: str, width: int, glyphs: Glyphs) -> str:
    """Words cut to a width, with a sign that they were. For sentences only: numbers are never cut."""
    return text if len(text) <= width else text[: max(0, width - 1)] + glyphs.ellipsis
