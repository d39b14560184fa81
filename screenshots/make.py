"""The pictures in this folder, from states that are always the same.

    python -m screenshots.make

Writes SVG; and PNG too where cairosvg is installed (pip install cairosvg). The states are made up, not measured:
they are those of the tests (tests/ui_link.py), and the figures in them mean nothing.
"""

from __future__ import annotations

import asyncio
import importlib
import os
import re
import time
from collections.abc import Sequence
from html import unescape
from pathlib import Path

from msgspec.structs import replace

from genmon.state import FlagChange, ServerPhase, State
from genmon.ui.app import GenmonApp
from tests.ui_link import FLAGS, MTP, NOW, ScriptedLink, healthy, past_of, server, the_tell

HERE = Path(__file__).parent
_CELL_W, _CELL_H = 12.2, 24.4
"""Cells of the SVG that Textual exports."""
_TEXT = re.compile(r'<text class="([^"]+)" x="([\d.]+)" y="([\d.]+)"([^>]*)>([^<]*)</text>')


def restarting() -> State:
    """MTP goes on, one server after the other; the second is being launched."""
    state = healthy(4)
    launched = server(1, phase=ServerPhase.STARTING, since=NOW - 31, mtp=None, cap=None, in_flight=0, launches=2)
    launched = replace(
        launched, tokens_per_s=None, acceptance_length=None, kv_usage=None, mamba_usage=None, queued=None
    )
    without = [
        server(n, mtp=False, acceptance_length=None, tokens_per_s=845.0 + n, argv=("python", *FLAGS)) for n in (2, 3)
    ]
    change = FlagChange(
        id=1,
        what="MTP on",
        servers=("s0", "s1", "s2", "s3"),
        done=("s0",),
        started_at=NOW - 140,
        stage="s1: starting, ready in about 50 s",
    )
    job = replace(state.job, rows_in_flight=48, tokens_per_s=2897.0, joules_per_token=0.55)
    return replace(state, servers=(state.servers[0], launched, *without), changes=(change,), job=job)


def marked() -> tuple[State, ScriptedLink]:
    """One server with MTP switched on two minutes ago."""
    state = healthy(4)
    link = ScriptedLink(state, past_of(state, 10))
    before = server(0, mtp=False, tokens_per_s=845.0, acceptance_length=None, argv=("python", *FLAGS), launches=1)
    after = server(0, argv=("python", *FLAGS, *MTP), launches=2)
    link.history = past_of(replace(state, servers=(before, *state.servers[1:]), taken_at=NOW - 120), 180)
    later = past_of(replace(state, servers=(after, *state.servers[1:])), 90)
    for point in later.track("s0").seconds:
        link.history.add(
            replace(
                state,
                taken_at=point.at,
                servers=(
                    replace(
                        after,
                        tokens_per_s=point.tokens_per_s,
                        acceptance_length=point.acceptance_length,
                    ),
                ),
                gpus=(replace(state.gpus[0], power_w=point.power_w),),
            )
        )
    return replace(state, servers=(after, *state.servers[1:])), link


async def draw(name: str, link: ScriptedLink, size: tuple[int, int], keys: Sequence[str] = ()) -> None:
    """One picture."""
    app = GenmonApp(link, clock=lambda: NOW)
    async with app.run_test(size=size) as pilot:
        await pilot.pause()
        for key in keys:
            await pilot.press(key)
            await pilot.pause()
        if link.state is not None:
            link.log("s0", *LOG)
        await pilot.pause(0.3)
        svg = app.export_screenshot(title=f"genmon {name.replace('-', ' ')}")
    svg = re.sub(r"terminal-\d+", f"terminal-{name}", svg)
    (HERE / f"{name}.svg").write_text(svg)
    try:
        cairosvg = importlib.import_module("cairosvg")
    except (ImportError, OSError):
        print(f"{name}.svg (no cairosvg: no PNG)")
        return
    cairosvg.svg2png(bytestring=_for_cairo(svg).encode(), write_to=str(HERE / f"{name}.png"))
    print(f"{name}.svg, {name}.png")


LOG = (
    "[2026-06-01 20:26:37] Decode batch, #running-req: 16, #token: 41288, token usage: 0.23, accept len: 2.81, "
    "gen throughput (token/s): 1204.80, #queue-req: 0",
    "[2026-06-01 20:26:39] Prefill batch, #new-seq: 1, #new-token: 212, #cached-token: 0, token usage: 0.23",
)


def _for_cairo(svg: str) -> str:
    """No web fonts, and braille as dots: few fixed-width fonts have it."""
    svg = re.sub(r"@font-face \{.*?\}", "", svg, flags=re.S).replace("Fira Code", "DejaVu Sans Mono")

    def dots(found: re.Match[str]) -> str:
        style, x, y, more, escaped = found.groups()
        text = unescape(escaped)
        if not any("⠀" <= cell <= "⣿" for cell in text):
            return found.group(0)
        made = []
        for number, cell in enumerate(text):
            bits = ord(cell) - 0x2800
            if 0 < bits <= 0xFF:
                left, top = float(x) + number * _CELL_W, float(y) - 18.5
                for row, pair in enumerate(((0x01, 0x08), (0x02, 0x10), (0x04, 0x20), (0x40, 0x80))):
                    for side, bit in enumerate(pair):
                        if bits & bit:
                            cx, cy = left + (side + 0.5) * _CELL_W / 2, top + (row + 0.5) * _CELL_H / 4
                            made.append(f'<circle class="{style}" cx="{cx:.1f}" cy="{cy:.1f}" r="2.1"/>')
        rest = "".join(" " if "⠀" <= cell <= "⣿" else cell for cell in text)
        if rest.strip():
            made.append(f'<text class="{style}" x="{x}" y="{y}"{more}>{rest}</text>')
        return "".join(made)

    return _TEXT.sub(dots, svg)


async def main() -> None:
    """All of them."""
    os.environ["TZ"] = "UTC"
    time.tzset()
    await draw("healthy", ScriptedLink(healthy(4), past_of(healthy(4))), (120, 36))
    await draw("the-tell", ScriptedLink(the_tell(), past_of(the_tell())), (120, 36))
    await draw("restarting", ScriptedLink(restarting(), past_of(restarting())), (120, 36))
    await draw("narrow", ScriptedLink(healthy(8), past_of(healthy(8))), (80, 24))
    state, link = marked()
    link.state = state
    await draw("detail", link, (120, 36), ["enter"])
    await draw("mtp-question", ScriptedLink(the_tell(), past_of(the_tell())), (120, 36), ["m"])


if __name__ == "__main__":
    asyncio.run(main())
