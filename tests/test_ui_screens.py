"""What the dashboard shows, as text, at every size, number of GPUs and state.

The screens are kept in tests/screens; GENMON_WRITE_SCREENS=1 writes them anew, and the diff is what to look at.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from msgspec.structs import replace

from genmon.history import History
from genmon.state import State
from genmon.ui.glyphs import ASCII, UNICODE, Glyphs, glyphs_for
from genmon.ui.picture import Eyes, Picture
from genmon.ui.screen import dashboard, server_detail
from tests.ui_link import NOW, finished, gpu, healthy, one_down, past_of, server, starting, the_tell

SIZES = ((80, 24), (120, 36), (200, 50))
GPUS = (1, 2, 4, 8, 16)
GONE = "The engine is gone; looking for it."
STATES: dict[str, Callable[[int], State]] = {
    "starting": starting,
    "healthy": healthy,
    "one-down": one_down,
    "stale": healthy,
    "finished": finished,
}
KEPT = Path(__file__).parent / "screens"


@pytest.fixture(autouse=True)
def _utc(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


def picture(name: str, gpus: int, glyphs: Glyphs = UNICODE) -> Picture:
    state = STATES[name](gpus)
    stale = name == "stale"
    past = History() if name == "starting" else past_of(state, 90)
    return Picture(
        state=state, history=past, now=NOW + 72 if stale else NOW, glyphs=glyphs, trouble=GONE if stale else None
    )


def drawn(shown: Picture, size: tuple[int, int]) -> list[str]:
    return [line.plain.rstrip() for line in dashboard(shown, *size)]


def compare(path: Path, text: str) -> None:
    if os.environ.get("GENMON_WRITE_SCREENS"):
        path.write_text(text)
    assert text == path.read_text(), f"{path.name} has changed: look, then GENMON_WRITE_SCREENS=1"


@pytest.mark.parametrize("size", SIZES, ids=lambda size: f"{size[0]}x{size[1]}")
@pytest.mark.parametrize("name", STATES)
def test_the_screen_is_the_one_that_was_looked_at(name: str, size: tuple[int, int]) -> None:
    screens = []
    for gpus in GPUS:
        lines = drawn(picture(name, gpus), size)
        assert len(lines) == size[1]
        assert max(map(len, lines)) <= size[0]
        screens.append("\n".join([f"══ {gpus} GPUs", *lines]))
    compare(KEPT / f"{name}-{size[0]}x{size[1]}.txt", "\n".join(screens) + "\n")


@pytest.mark.parametrize("size", SIZES, ids=lambda size: f"{size[0]}x{size[1]}")
def test_every_gpu_has_its_watts_on_the_screen(size: tuple[int, int]) -> None:
    for gpus in GPUS:
        text = "\n".join(drawn(picture("healthy", gpus), size))
        for number in range(gpus):
            assert f"{529 + 3 * number:>4}/600" in text


@pytest.mark.parametrize("width", range(60, 221, 7))
def test_no_width_wraps_or_cuts_a_number(width: int) -> None:
    for gpus in (1, 8):
        lines = drawn(picture("healthy", gpus), (width, 30))
        assert len(lines) == 30
        assert max(map(len, lines)) <= width
        assert not any(re.search(r"\d…", line) for line in lines)
        assert sum("529/600" in line for line in lines) == 1


def test_a_cell_never_moves_what_stands_behind_it() -> None:
    quiet, loud = healthy(2), healthy(2)
    loud = replace(
        loud,
        gpus=(gpu(0, power_w=1207.0, power_limit_w=1200.0), gpu(1, power_w=None)),
        servers=(
            server(0, tokens_per_s=123_456.0, in_flight=999, cap=999),
            server(1, tokens_per_s=None, taken_at=NOW - 4000),
        ),
    )
    columns = []
    for state in (quiet, loud):
        shown = Picture(state=state, history=History(), now=NOW, glyphs=UNICODE)
        rows = [line for line in drawn(shown, (120, 36)) if re.search(r"/(600|1200)|–/", line)]
        columns.append([line.index("/") for line in rows])
    assert columns[0] == columns[1]


def test_an_over_limit_draw_is_shown_unclamped() -> None:
    state = replace(healthy(1), gpus=(gpu(0, power_w=640.0),))
    text = "\n".join(drawn(Picture(state=state, history=History(), now=NOW, glyphs=UNICODE), (120, 36)))
    assert "640/600" in text
    assert "█▶" in text


def test_a_lowered_limit_has_a_tick_below_the_default_one() -> None:
    state = replace(healthy(1), gpus=(gpu(0, power_w=200.0, power_limit_w=400.0),))
    text = "\n".join(drawn(Picture(state=state, history=History(), now=NOW, glyphs=UNICODE), (120, 36)))
    assert "████····╎···" in text


def test_simulated_data_says_so_at_every_size() -> None:
    state = replace(healthy(4), simulated=True)
    for size in (*SIZES, (60, 12), (40, 10)):
        shown = Picture(state=state, history=History(), now=NOW, glyphs=UNICODE)
        assert any("SIMULATED" in line for line in drawn(shown, size))
        assert any("SIMULATED" in line.plain for line in server_detail(shown, *size))


def test_a_gone_engine_and_a_stale_sample_show_their_age() -> None:
    assert "Last picture 1 min 12 s old" in "\n".join(drawn(picture("stale", 4), (120, 36)))
    old = replace(healthy(1), servers=(server(0, taken_at=NOW - 42.0),))
    text = "\n".join(drawn(Picture(state=old, history=History(), now=NOW, glyphs=UNICODE), (120, 36)))
    assert "(42s)" in text
    assert "1,205" not in text


def test_the_tell_and_its_key_are_whole_at_80_columns() -> None:
    shown = Picture(state=the_tell(), history=past_of(the_tell(), 30), now=NOW, glyphs=UNICODE)
    text = "\n".join(drawn(shown, (80, 24)))
    assert "m: turn MTP on" in text
    assert "GPU 0 draws 400 of 600 W" in text


def test_an_ascii_terminal_gets_ascii_only() -> None:
    for name in STATES:
        for line in drawn(picture(name, 4, ASCII), (120, 36)):
            line.encode("ascii")
    assert glyphs_for("ascii") is ASCII
    assert glyphs_for("utf-8") is UNICODE
    assert glyphs_for(None) is ASCII


def test_the_detail_view_is_the_one_that_was_looked_at() -> None:
    eyes = Eyes(cursor=1, log_server="s1", log=("The server is fired up and ready to roll!", "Decode batch, …"))
    shown = Picture(state=healthy(4), history=past_of(healthy(4)), now=NOW, glyphs=UNICODE, eyes=eyes)
    screens = []
    for size in SIZES:
        lines = [line.plain.rstrip() for line in server_detail(shown, *size)]
        assert len(lines) == size[1]
        assert max(map(len, lines)) <= size[0]
        screens.append("\n".join([f"══ {size[0]}×{size[1]}", *lines]))
    compare(KEPT / "detail.txt", "\n".join(screens) + "\n")
