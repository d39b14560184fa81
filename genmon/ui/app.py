"""The dashboard: one canvas, the keys, and the link to the engine."""

from __future__ import annotations

import asyncio
import sys
import time
from collections import deque
from collections.abc import Callable, Iterable
from typing import ClassVar

from msgspec.structs import replace
from rich.text import Text
from textual.app import App, ComposeResult, SystemCommand
from textual.binding import Binding, BindingType
from textual.screen import Screen

from genmon.commands import (
    CancelChange,
    Command,
    Dismiss,
    Drain,
    Pause,
    Promote,
    Restart,
    Resume,
    Revert,
    SetConcurrency,
    Stop,
)
from genmon.errors import Refused
from genmon.state import RunPhase, ServerState, State
from genmon.ui import screen
from genmon.ui.canvas import Canvas
from genmon.ui.dialogs import Confirm, Help, Leave, Leaving
from genmon.ui.flags_editor import FlagsEditor
from genmon.ui.glyphs import glyphs_for
from genmon.ui.keys import KEYS
from genmon.ui.panels import hints, tells
from genmon.ui.picture import Eyes, Picture
from genmon.wire.link import Link

_TICK_S = 1.0
_REDRAW_S = 0.1
"""Not oftener than this, however fast states come."""
_LOG_KEPT = 500
_LEVELS = (1, 2, 4, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512)
_SPANS_S = (60.0, 300.0, 3600.0, 6 * 3600.0, 12 * 3600.0)
_THEMES = ("ansi-dark", "ansi-light", "textual-dark", "textual-light", "nord", "gruvbox", "tokyo-night")
_ENDED = frozenset({RunPhase.FINISHED, RunPhase.STOPPED, RunPhase.FAILED})


class GenmonApp(App[Leaving]):
    """One dashboard on one link. Its return value says how it was left."""

    ENABLE_COMMAND_PALETTE = True
    TITLE = "genmon"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding(key.keys, key.action, key.help, id=key.id, show=False) for key in KEYS
    ]

    def __init__(self, link: Link, *, clock: Callable[[], float] = time.time, encoding: str | None = "utf-8") -> None:
        """`clock` gives Unix seconds; `encoding` is what the terminal takes."""
        super().__init__()
        self._link, self._clock = link, clock
        self._glyphs = glyphs_for(encoding)
        self._eyes = Eyes()
        self._lines_of_log: deque[str] = deque(maxlen=_LOG_KEPT)
        self._large = False
        self._drawn_at = 0.0
        self._canvas = Canvas(self._lines)
        self._following: str | None = None
        self._rings: int | None = None

    def get_default_screen(self) -> Screen[None]:
        """The screen that holds the canvas."""
        return Screen(id="_default")

    def compose(self) -> ComposeResult:
        """One canvas."""
        yield self._canvas

    def on_mount(self) -> None:
        """Begin to draw: at each arrival, and once a second for the ages."""
        self.theme = _THEMES[0]
        self.set_interval(_TICK_S, self._age)
        self.run_worker(self._draw_what_arrives(), exclusive=True)

    def get_system_commands(self, screen: Screen[object]) -> Iterable[SystemCommand]:
        """The palette: the same table as the keys."""
        for key in KEYS:
            yield SystemCommand(
                f"{key.help[0].upper()}{key.help[1:]}", f"key {key.shown}", lambda key=key: self._run(key.action)
            )

    async def _draw_what_arrives(self) -> None:
        while True:
            await self._link.arrived.wait()
            self._link.arrived.clear()
            self._redraw()
            await asyncio.sleep(_REDRAW_S)

    def _age(self) -> None:
        """Ages grow also while nothing arrives."""
        if time.monotonic() - self._drawn_at > _TICK_S * 0.9:
            self._redraw()

    def _redraw(self) -> None:
        self._drawn_at = time.monotonic()
        for batch in self._link.take_log():
            if batch.server == self._following:
                if batch.skipped:
                    self._lines_of_log.append(f"({batch.skipped} lines left out)")
                self._lines_of_log.extend(batch.lines)
        if (state := self._link.state) is not None:
            if self._rings is not None and state.rings > self._rings:
                self.bell()
            self._rings = state.rings
        self._canvas.redraw()

    def _picture(self, state: State) -> Picture:
        return Picture(
            state=state,
            history=self._link.history,
            now=self._clock(),
            glyphs=self._glyphs,
            eyes=replace(self._eyes, log=tuple(self._lines_of_log), log_server=self._following),
            trouble=None if self._link.connected or state.phase in _ENDED else self._link.trouble,
        )

    def _lines(self, width: int, height: int) -> list[Text]:
        state = self._link.state
        if state is None:
            return [Text(" waiting for the engine …"), *(Text("") for _ in range(height - 1))]
        picture = self._picture(state)
        return screen.server_detail(picture, width, height) if self._large else screen.dashboard(picture, width, height)

    # What the keys do

    def action_move(self, by: int) -> None:
        """The cursor up or down."""
        servers = self._servers()
        if servers:
            self._eyes = replace(self._eyes, cursor=min(max(0, self._eyes.cursor + by), len(servers) - 1))
            if self._large:
                self._follow(servers[self._eyes.cursor].name)
        self._redraw()

    def action_select(self) -> None:
        """Select the server under the cursor, or take it out."""
        server = self._under_cursor()
        if server is not None:
            self._eyes = replace(self._eyes, selected=self._eyes.selected ^ {server.name})
        self._redraw()

    def action_select_all(self) -> None:
        """All, or none when all were."""
        names = frozenset(server.name for server in self._servers())
        self._eyes = replace(self._eyes, selected=frozenset() if self._eyes.selected >= names else names)
        self._redraw()

    def action_detail(self) -> None:
        """The GPU under the cursor, large."""
        server = self._under_cursor()
        if server is not None and not self._large:
            self._large = True
            self._follow(server.name)
        self._redraw()

    def action_go_back(self) -> None:
        """Back to the dashboard, from a log to the events, from a selection to none."""
        if self._large:
            self._large = False
            self._follow(None)
        elif self._following is not None:
            self._follow(None)
        else:
            self._eyes = replace(self._eyes, selected=frozenset())
        self._redraw()

    def action_logs(self) -> None:
        """The log of the server under the cursor; again: the next server's, and then the events."""
        names = [server.name for server in self._servers()]
        if not names:
            return
        if self._following is None:
            self._follow(names[min(self._eyes.cursor, len(names) - 1)])
        else:
            after = names.index(self._following) + 1 if self._following in names else len(names)
            self._follow(names[after] if after < len(names) else None)
        self._redraw()

    def action_span(self, by: int) -> None:
        """Plots over a longer or shorter time."""
        at = _SPANS_S.index(self._eyes.span_s) + by
        self._eyes = replace(self._eyes, span_s=_SPANS_S[min(max(0, at), len(_SPANS_S) - 1)])
        self._redraw()

    def action_next_theme(self) -> None:
        """The next theme."""
        self.theme = _THEMES[(_THEMES.index(self.theme) + 1) % len(_THEMES)] if self.theme in _THEMES else _THEMES[0]
        self._canvas.redraw()

    def action_help(self) -> None:
        """All keys."""
        self.push_screen(Help())

    def action_toggle_mtp(self) -> None:
        """MTP on for the selected servers, or off when all of them have it."""
        servers = self._chosen()
        if servers:
            on = not all(server.mtp for server in servers)
            names = tuple(server.name for server in servers)
            canary = len(names) < len(self._servers())
            self._ask_and_do(Restart(servers=names, mtp=on, canary=canary))

    def action_restart(self) -> None:
        """Restart the selected servers with the flags they have."""
        servers = self._chosen()
        if servers:
            self._ask_and_do(Restart(servers=tuple(server.name for server in servers)))

    def action_flags(self) -> None:
        """Edit the flags of the selected servers."""
        self.run_worker(self._edit_flags())

    def action_pause(self) -> None:
        """Pause, or go on."""
        state = self._link.state
        if state is not None and state.phase is RunPhase.PAUSED:
            self.run_worker(self._do(Resume()))
        else:
            self._ask_and_do(Pause())

    def action_concurrency(self, by: int) -> None:
        """More or fewer rows in flight; beyond the largest cap the engine finds the best by itself."""
        state = self._link.state
        if state is None:
            return
        caps = [server.cap for server in state.servers if server.cap is not None]
        most = max(caps, default=_LEVELS[-1])
        now = state.concurrency if state.concurrency is not None else most + (by > 0)
        steps = [level for level in _LEVELS if (level > now if by > 0 else level < now)]
        wanted = (steps[0] if by > 0 else steps[-1]) if steps else None
        if by < 0 and wanted is None:
            return
        self.run_worker(self._do(SetConcurrency(None if wanted is None or wanted > most else wanted)))

    def action_dismiss(self) -> None:
        """Dismiss the first tell."""
        state = self._link.state
        shown = tells.ordered(self._picture(state)) if state is not None else []
        if shown:
            self.run_worker(self._do(Dismiss(shown[0].id)))

    def action_mend(self) -> None:
        """Give the first prescription there is."""
        state = self._link.state
        shown = tells.ordered(self._picture(state)) if state is not None else []
        prescribed = [tell.prescription for tell in shown if tell.prescription is not None]
        if prescribed and isinstance(prescribed[0], SetConcurrency | Resume):
            self.run_worker(self._do(prescribed[0]))  # interrupts nothing: nothing to ask
        elif prescribed:
            self._ask_and_do(prescribed[0])

    def action_promote(self) -> None:
        """Give a canary's flags to the others."""
        self._decide(lambda change: Promote(change), canary=True)

    def action_undo(self) -> None:
        """Take the last change back."""
        self._decide(lambda change: Revert(change), canary=False)

    def action_cancel_change(self) -> None:
        """Give up the change under way."""
        state = self._link.state
        under_way = [change for change in state.changes if change.ended_at is None] if state is not None else []
        if under_way:
            self._ask_and_do(CancelChange(under_way[-1].id))

    def action_detach(self) -> None:
        """Leave; the run goes on."""
        self.exit(Leaving.DETACH)

    def action_leave(self) -> None:
        """Leave or stop: ask which, unless there is nothing left to stop."""
        state = self._link.state
        if state is None or not self._link.connected or state.phase in _ENDED:
            self.exit(Leaving.DETACH)
        else:
            self.push_screen(Leave(state.job.rows_in_flight), self._left)

    def on_canvas_clicked(self, event: Canvas.Clicked) -> None:
        """A GPU row takes the cursor, twice opens it; a hint is its key."""
        state, size = self._link.state, self._canvas.size
        if state is None:
            return
        if event.y == size.height - 1:
            for begin, end, action in hints.places(size.width):
                if begin <= event.x < end:
                    self._run(action)
            return
        plan = screen.layout(self._picture(state), size.width, size.height)
        row = (event.y - plan.gpus_at) // plan.gpu_lines
        if not self._large and event.y >= plan.gpus_at and row < len(state.servers):
            self._eyes = replace(self._eyes, cursor=row)
            self._redraw()
            if event.twice:
                self.action_detail()

    # How commands are given

    def _run(self, action: str) -> None:
        self.run_worker(self.run_action(action))

    def _left(self, leaving: Leaving | None) -> None:
        if leaving is Leaving.DETACH:
            self.exit(leaving)
        elif leaving is not None:
            self.run_worker(self._do(Drain() if leaving is Leaving.DRAIN else Stop()))

    def _decide(self, command: Callable[[int], Promote | Revert], *, canary: bool) -> None:
        state = self._link.state
        ended = [change for change in state.changes if change.ended_at is not None] if state is not None else []
        ended = [change for change in ended if change.canary and not change.rolled_back] if canary else ended
        if ended:
            self._ask_and_do(command(ended[-1].id))

    def _ask_and_do(self, command: Command) -> None:
        self.run_worker(self._plan_ask_do(command))

    async def _plan_ask_do(self, command: Command) -> None:
        try:
            plan = await self._link.plan(command)
        except Refused as refused:
            self.notify(str(refused), severity="error", markup=False)
            return
        if await self.push_screen_wait(Confirm(plan)):
            await self._do(command)

    async def _do(self, command: Command) -> None:
        try:
            sentence = await self._link.do(command)
        except Refused as refused:
            self.notify(str(refused), severity="error", markup=False)
        else:
            self.notify(sentence, timeout=3, markup=False)

    async def _edit_flags(self) -> None:
        servers = self._chosen()
        if not servers:
            return
        names = tuple(server.name for server in servers)
        try:
            now = (await self._link.plan(Restart(servers=names))).servers[0].before
        except Refused as refused:
            self.notify(str(refused), severity="error", markup=False)
            return
        command = await self.push_screen_wait(FlagsEditor(names, now, len(self._servers()), self._link.plan))
        if command is not None:
            await self._plan_ask_do(command)

    def _follow(self, server: str | None) -> None:
        self._following = server
        self._lines_of_log.clear()
        self.run_worker(self._link.follow(server))

    def _servers(self) -> tuple[ServerState, ...]:
        return self._link.state.servers if self._link.state is not None else ()

    def _under_cursor(self) -> ServerState | None:
        servers = self._servers()
        return servers[min(self._eyes.cursor, len(servers) - 1)] if servers else None

    def _chosen(self) -> list[ServerState]:
        """The selected servers, or the one under the cursor."""
        servers = [server for server in self._servers() if server.name in self._eyes.selected]
        under = self._under_cursor()
        return servers or ([under] if under is not None else [])


def terminal_encoding() -> str | None:
    """What Textual's output can carry: it writes to standard error."""
    return sys.__stderr__.encoding if sys.__stderr__ is not None else None
