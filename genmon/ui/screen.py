"""The whole screen as lines: which panel gets how many, at any size."""

from __future__ import annotations

from msgspec import Struct
from rich.text import Text

from genmon.ui.panels import detail, gpus, header, hints, job, log, tells
from genmon.ui.picture import DIM, Picture

_LEAST_LOG = 3
_PLAIN = {"–": "-", "…": "~", "°": "'", "×": "x", "±": "~", "−": "-", "↑": "^", "↓": "v", "·": "-"}
_LOG = 5
_SPARE = 6
"""Beyond three lines a GPU, the events want some more room first."""
_TELLS_MOST = 7
_GPU_LINES_MOST = 6


class Layout(Struct, frozen=True, kw_only=True):
    """Lines for each panel; a panel with none is not drawn."""

    header: int
    job: int
    gpu_lines: int
    """Lines a GPU."""
    gpus_at: int
    """The screen line of the first GPU row."""
    gpus: int
    tells: int
    log: int


def layout(picture: Picture, width: int, height: int) -> Layout:
    """Room for the header and the GPUs first, then tells, the job, more lines a GPU, and events with the rest."""
    servers = len(picture.state.servers)
    head = len(header.lines(picture, width))
    wanted = min(tells.wanted(picture, width), _TELLS_MOST)
    room = height - head - 1 - gpus.height(servers, 1)
    tell_lines = max(0, min(wanted, room - 2))
    room -= tell_lines
    job_lines = 5 if room >= 5 + _LEAST_LOG else min(max(0, room), 3)
    room -= job_lines
    each = 1
    while each < _GPU_LINES_MOST and room - servers >= _LOG + (_SPARE if each >= 3 else 0) and servers:
        each, room = each + 1, room - servers
    return Layout(
        header=head,
        job=job_lines,
        gpu_lines=each,
        gpus_at=head + job_lines + gpus.HEAD,
        gpus=gpus.height(servers, each),
        tells=tell_lines,
        log=room if room >= 2 else 0,
    )


def dashboard(picture: Picture, width: int, height: int) -> list[Text]:
    """Exactly `height` lines."""
    if width < 60 or height < 12:
        return _tiny(picture, width, height)
    plan = layout(picture, width, height)
    found = header.lines(picture, width)
    found += job.lines(picture, width)[: plan.job]
    found += gpus.lines(picture, width, plan.gpu_lines)
    if plan.tells:
        found += _filled(tells.lines(picture, width, plan.tells), plan.tells)
    if plan.log:
        found += _filled(log.lines(picture, width, plan.log), plan.log)
    return _whole(picture, [*_filled(found, height - 1), hints.line(picture, width)])


def server_detail(picture: Picture, width: int, height: int) -> list[Text]:
    """One GPU, in exactly `height` lines."""
    server = picture.cursor_server
    found = header.lines(picture, width)
    if server is not None:
        found += detail.lines(picture, server, width, height - len(found) - 1)
    return _whole(picture, [*_filled(found, height - 1), hints.line(picture, width)])


def _tiny(picture: Picture, width: int, height: int) -> list[Text]:
    """Too small for panels: the header and one short line a GPU."""
    found = header.lines(picture, width)[:1]
    for server in picture.state.servers:
        gpu = picture.gpu(server)
        power = "–" if gpu is None or gpu.power_w is None else f"{gpu.power_w:.0f}"
        found.append(Text(f" {server.name} {server.phase.value[:8]:<8} {power:>4} W"[:width], no_wrap=True))
    return _whole(picture, _filled([line[:width] for line in found], height))


def _whole(picture: Picture, lines: list[Text]) -> list[Text]:
    """The lines as the terminal can take them: with ASCII alone, each other character becomes one it has."""
    if not picture.glyphs.braille:
        for line in lines:
            line.plain = "".join(c if c.isascii() else _PLAIN.get(c, "?") for c in line.plain)
    return lines


def _filled(lines: list[Text], height: int) -> list[Text]:
    return [*lines[:height], *(Text("", DIM) for _ in range(height - len(lines)))]
