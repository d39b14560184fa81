"""The first line: which run, how it stands, when it ends."""

from __future__ import annotations

from rich.style import Style
from rich.text import Text

from genmon.figures import duration
from genmon.state import RunPhase, ServerPhase
from genmon.ui.picture import ALARM, BOLD, DIM, OK, PLAIN, SIMULATED, WARN, Picture, fit

_PHASES = {
    RunPhase.STARTING: ("◔", "~", WARN),
    RunPhase.RUNNING: ("▶", ">", OK),
    RunPhase.PAUSED: ("‖", "=", ALARM),
    RunPhase.DRAINING: ("◕", "v", WARN),
    RunPhase.FINISHED: ("✔", "+", OK),
    RunPhase.STOPPED: ("■", "#", WARN),
    RunPhase.FAILED: ("✖", "X", ALARM),
}


def lines(picture: Picture, width: int) -> list[Text]:
    """One line, and a second one for what needs a sentence: why it is paused, that the engine is gone."""
    state = picture.state
    ready = sum(server.phase is ServerPhase.READY for server in state.servers)
    mtp = sum(bool(server.mtp) for server in state.servers)
    unicode_sign, ascii_sign, style = _PHASES[state.phase]
    line = Text(no_wrap=True)
    line.append(f" {state.run} ", Style(bold=True, reverse=True))
    if state.simulated:
        line.append(" SIMULATED ", SIMULATED)
    line.append(f" {unicode_sign if picture.glyphs.braille else ascii_sign} {state.phase.value} ", style)
    parts: list[tuple[str, Style]] = [
        (f"{ready}/{len(state.servers)} ready", PLAIN if ready == len(state.servers) else WARN),
        (_eta(picture, width), BOLD),
        (f"MTP on {mtp}", PLAIN),
        (f"up {duration(state.taken_at - state.started_at)}", DIM),
    ]
    for text, each in parts:
        if text and len(line.plain) + len(text) + 3 <= width:
            line.append(f" {picture.glyphs.dot} ", DIM)
            line.append(text, each)
    found = [line]
    sentence = _sentence(picture)
    if sentence:
        found.append(Text(fit(f" {sentence}", width, picture.glyphs).ljust(width), ALARM + Style(reverse=True)))
    return found


def _eta(picture: Picture, width: int) -> str:
    job = picture.state.job
    if picture.state.phase not in (RunPhase.RUNNING, RunPhase.STARTING, RunPhase.PAUSED):
        return ""
    if job.eta_s is None:
        return "ETA –"
    spread = f" ({duration(job.eta_low_s)} to {duration(job.eta_high_s)})"
    return f"ETA {duration(job.eta_s)}{spread if width >= 100 else _rough(job.eta_s, job.eta_low_s, job.eta_high_s)}"


def _rough(eta_s: float, low_s: float | None, high_s: float | None) -> str:
    """The spread in the little room there is: ±8 %."""
    if low_s is None or high_s is None or eta_s <= 0:
        return ""
    return f" ±{max(high_s - eta_s, eta_s - low_s) / eta_s:.0%}"


def _sentence(picture: Picture) -> str | None:
    if picture.trouble:
        return f"{picture.trouble} Last picture {duration(picture.now - picture.state.taken_at)} old."
    if picture.state.phase in (RunPhase.PAUSED, RunPhase.FAILED) and picture.state.reason:
        return picture.state.reason
    return None
