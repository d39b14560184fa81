"""The run on a terminal: a Rich view that redraws in place, twice a second."""

from __future__ import annotations

import time

from rich.console import Console, Group
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from genmon.batch.lines import answer_classes, count_exact, gpu_troubles
from genmon.engine.engine import Outcome
from genmon.figures import UNKNOWN, count, decimal, duration, energy, share, watts
from genmon.state import RunPhase, ServerPhase, ServerState, State

_PHASE_STYLE = {
    RunPhase.STARTING: "yellow",
    RunPhase.RUNNING: "green",
    RunPhase.PAUSED: "bold red",
    RunPhase.DRAINING: "yellow",
    RunPhase.FINISHED: "green",
    RunPhase.STOPPED: "yellow",
    RunPhase.FAILED: "bold red",
}
_EVENTS_SHOWN = 5


class TerminalView:
    """Draws the state in place; leaves the last picture behind."""

    period_s = 0.5

    def __init__(self, console: Console) -> None:
        """`console` is the terminal."""
        self._console = console
        self._live = Live(console=console, auto_refresh=False, transient=False, redirect_stdout=False)
        self._live.start()
        self._rings = 0

    def show(self, state: State) -> None:
        """Redraw; ring when the engine says so."""
        if state.rings > self._rings:
            self._rings = state.rings
            self._console.bell()
        self._live.update(picture(state, self._console.width, self._console.height), refresh=True)

    def close(self, state: State, outcome: Outcome) -> None:
        """Draw the last picture and say how the run ended."""
        self.show(state)
        self._live.stop()


def picture(state: State, width: int, height: int) -> Group:
    """The whole view, at most `width` columns and `height` rows."""
    room = height - 8 - min(_EVENTS_SHOWN, len(state.events)) - len(state.tells) - len(gpu_troubles(state))
    return Group(_header(state), _rows(state, width), _figures(state), _servers(state, width, room), *_story(state))


def _header(state: State) -> Text:
    ready = sum(server.phase is ServerPhase.READY for server in state.servers)
    mtp = sum(bool(server.mtp) for server in state.servers)
    line = Text(no_wrap=True, overflow="ellipsis")
    line.append(f" {state.run} ", style="bold reverse")
    if state.simulated:
        line.append(" SIMULATED ", style="bold black on yellow")
    line.append(f" {state.phase.value} ", style=_PHASE_STYLE[state.phase])
    line.append(f"· {ready}/{len(state.servers)} servers ready · MTP on {mtp} ")
    line.append(f"· {duration(state.taken_at - state.started_at)}", style="dim")
    if state.reason:
        line.append(f" · {state.reason}", style=_PHASE_STYLE[state.phase])
    return line


def _rows(state: State, width: int) -> Table:
    job = state.job
    grid = Table.grid(padding=(0, 1))
    left = Text(f"{job.rows_done:,}/{count_exact(job.rows_total)} rows")
    if job.rows_failed:
        left.append(f"  {job.rows_failed:,} failed", style="red")
    if job.rows_skipped:
        left.append(f"  {job.rows_skipped:,} skipped", style="yellow")
    right = Text(f"ETA {duration(job.eta_s)}")
    if job.eta_s is not None:
        right.append(f" ({duration(job.eta_low_s)} to {duration(job.eta_high_s)})", style="dim")
    total = job.rows_total or 1
    bar = ProgressBar(
        total=total,
        completed=job.rows_done + job.rows_failed + job.rows_skipped,
        width=max(10, min(60, width - left.cell_len - right.cell_len - 12)),
    )
    grid.add_row(left, bar, share(job.rows_done / total), right)
    return grid


def _figures(state: State) -> Text:
    job = state.job
    line = Text(no_wrap=True, overflow="ellipsis")
    line.append(
        f"{decimal(job.rows_per_s, 1)} rows/s · {count(job.tokens_per_s)} tok/s (mean {count(job.tokens_per_s_mean)})"
        f" · {count(job.tokens)} tokens · {decimal(job.joules_per_token)} J/tok · {energy(job.energy_j)}"
        f" · {job.rows_in_flight} in flight"
    )
    if job.retries:
        line.append(f" · {job.retries:,} retries")
    classes = answer_classes(state)
    if classes:
        line.append(f"\n{classes}", style="dim")
    return line


def _servers(state: State, width: int, room: int) -> Table:
    """One line a server. Columns are dropped from the right of importance as the terminal narrows."""
    table = Table(box=None, padding=(0, 1), pad_edge=False, header_style="dim")
    columns = ["server", "state", "power", "tok/s", "accept", "in flight"]
    columns += ["queue", "KV"] if width >= 90 else []
    columns += ["cap asked", "note"] if width >= 110 else []
    for column in columns:
        numeric = column not in ("server", "state", "note")
        table.add_column(column, justify="right" if numeric else "left", no_wrap=True, overflow="ellipsis")
    gpus = {gpu.uuid: gpu for gpu in state.gpus}
    shown = state.servers[: max(1, room)]
    for server in shown:
        gpu = gpus.get(server.gpu_uuid or "")
        cells: dict[str, str | Text] = {
            "server": server.name if server.gpu_index is None else f"{server.name} GPU {server.gpu_index}",
            "state": _phase(server),
            "power": watts(gpu.power_w, gpu.power_limit_w) if gpu else UNKNOWN,
            "tok/s": count(server.tokens_per_s),
            "accept": decimal(server.acceptance_length),
            "in flight": f"{server.in_flight}/{UNKNOWN if server.cap is None else server.cap}",
            "queue": count_exact(server.queued),
            "KV": share(server.kv_usage),
            "cap asked": count_exact(server.cap_requested),
            "note": Text(server.reason or "", style="dim"),
        }
        table.add_row(*(cells[column] for column in columns))
    if len(shown) < len(state.servers):
        table.caption = f"and {len(state.servers) - len(shown)} more servers"
    return table


def _phase(server: ServerState) -> Text:
    age = duration(time.time() - server.since)
    words = server.phase.value.replace("_", " ")
    good = server.phase is ServerPhase.READY
    bad = server.phase in (ServerPhase.BACKOFF, ServerPhase.GIVEN_UP)
    return Text(f"{words} {age}", style="green" if good else "red" if bad else "yellow")


def _story(state: State) -> list[Text]:
    lines = [
        Text(
            f"{tell.level.value.upper()}  {tell.sentence}" + (f": {tell.mend}" if tell.mend else ""),
            style="bold red",
            no_wrap=True,
            overflow="ellipsis",
        )
        for tell in state.tells
    ]
    lines += [Text(each, style="yellow", no_wrap=True, overflow="ellipsis") for each in gpu_troubles(state)]
    for event in state.events[-_EVENTS_SHOWN:]:
        at = time.strftime("%H:%M:%S", time.localtime(event.at))
        lines.append(Text(f"{at}  {event.text}", style="dim", no_wrap=True, overflow="ellipsis"))
    return lines
