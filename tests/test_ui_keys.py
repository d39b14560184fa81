"""Every key, pressed on a dashboard whose engine is scripted."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest
from msgspec.structs import replace
from textual.pilot import Pilot

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
from genmon.state import FlagChange, RunPhase, State
from genmon.ui.app import GenmonApp
from genmon.ui.canvas import Canvas
from genmon.ui.dialogs import Leaving
from genmon.ui.keys import KEYS
from tests.ui_link import NOW, ScriptedLink, finished, healthy, past_of, server, the_tell

Scene = Callable[[GenmonApp, Pilot[Leaving], ScriptedLink], Awaitable[None]]


def on_stage(state: State, scene: Scene, size: tuple[int, int] = (120, 36)) -> tuple[GenmonApp, ScriptedLink]:
    """Run a scene on a dashboard that shows `state`; the clock stands still."""

    async def play() -> tuple[GenmonApp, ScriptedLink]:
        link = ScriptedLink(state, past_of(state, 20))
        app = GenmonApp(link, clock=lambda: NOW)
        async with app.run_test(size=size) as pilot:
            await pilot.pause()
            await scene(app, pilot, link)
            await pilot.pause()
        return app, link

    return asyncio.run(play())


def shown(app: GenmonApp) -> str:
    """The canvas as text."""
    canvas = app.screen_stack[0].query_one(Canvas)
    return "\n".join(canvas.render_line(y).text.rstrip() for y in range(canvas.size.height))


def after(state: State, *keys: str) -> list[Command]:
    """What the engine was told once these keys were pressed."""

    async def press(app: GenmonApp, pilot: Pilot[Leaving], link: ScriptedLink) -> None:
        for key in keys:
            await pilot.press(key)
            await pilot.pause()

    return on_stage(state, press)[1].done


def change(**fields: object) -> FlagChange:
    base = FlagChange(id=7, what="MTP on", servers=("s0",), started_at=NOW - 90, canary=True)
    return replace(base, **fields)


ENDED = replace(healthy(4), changes=(change(ended_at=NOW - 30, outcome="done", done=("s0",)),))
UNDER_WAY = replace(healthy(4), changes=(change(stage="s0: waiting for 3 rows in flight"),))
PAUSED = replace(healthy(4), phase=RunPhase.PAUSED, reason="paused by command")


@pytest.mark.parametrize(
    ("state", "keys", "told"),
    [
        (the_tell(), ("m", "y"), [Restart(servers=("s0",), mtp=True, canary=True)]),
        (healthy(4), ("m", "enter"), [Restart(servers=("s0",), mtp=False, canary=True)]),
        (healthy(4), ("m", "n"), []),
        (healthy(4), ("m", "escape"), []),
        (healthy(4), ("asterisk", "m", "y"), [Restart(servers=("s0", "s1", "s2", "s3"), mtp=False)]),
        (healthy(4), ("down", "space", "down", "space", "r", "y"), [Restart(servers=("s1", "s2"))]),
        (healthy(4), ("j", "j", "k", "r", "y"), [Restart(servers=("s1",))]),
        (healthy(1), ("m", "y"), [Restart(servers=("s0",), mtp=False)]),
        (healthy(4), ("p", "y"), [Pause()]),
        (PAUSED, ("p",), [Resume()]),
        (replace(healthy(4), concurrency=8), ("plus",), [SetConcurrency(12)]),
        (replace(healthy(4), concurrency=8), ("minus",), [SetConcurrency(4)]),
        (replace(healthy(4), concurrency=16), ("plus",), [SetConcurrency(None)]),
        (healthy(4), ("minus",), [SetConcurrency(12)]),
        (replace(healthy(4), concurrency=1), ("minus",), []),
        (the_tell(), ("x",), [Dismiss("mtp-off")]),
        (healthy(4), ("x",), []),
        (ENDED, ("a", "y"), [Promote(7)]),
        (ENDED, ("u", "y"), [Revert(7)]),
        (UNDER_WAY, ("c", "y"), [CancelChange(7)]),
        (UNDER_WAY, ("a",), []),
        (healthy(4), ("q", "s"), [Drain()]),
        (healthy(4), ("q", "k"), [Stop()]),
        (healthy(4), ("ctrl+c", "escape"), []),
    ],
    ids=lambda value: "-".join(value) if isinstance(value, tuple) else "",
)
def test_a_key_tells_the_engine(state: State, keys: tuple[str, ...], told: list[Command]) -> None:
    assert after(state, *keys) == told


@pytest.mark.parametrize(
    ("keys", "left"), [(("d",), Leaving.DETACH), (("q", "d"), Leaving.DETACH), (("q", "enter"), Leaving.DETACH)]
)
def test_leaving_tells_the_engine_nothing(keys: tuple[str, ...], left: Leaving) -> None:
    async def press(app: GenmonApp, pilot: Pilot[Leaving], link: ScriptedLink) -> None:
        for key in keys:
            await pilot.press(key)
            await pilot.pause()

    app, link = on_stage(healthy(4), press)
    assert app.return_value == left
    assert link.done == []


def test_quitting_a_run_that_has_ended_asks_nothing() -> None:
    async def press(app: GenmonApp, pilot: Pilot[Leaving], link: ScriptedLink) -> None:
        await pilot.press("q")

    assert on_stage(finished(4), press)[0].return_value is Leaving.DETACH


def test_what_stops_requests_shows_the_servers_the_diff_and_the_rows_before_it_is_done() -> None:
    async def press(app: GenmonApp, pilot: Pilot[Leaving], link: ScriptedLink) -> None:
        await pilot.press("m")
        await pilot.pause()
        text = app.screen.query_one("Static").render()
        for words in ("Restart s0.", "s0 (7 in flight)", "- speculative-algorithm NEXTN", "- speculative-num-steps 3"):
            assert words in str(text)
        assert link.done == []

    on_stage(healthy(4), press)


def test_a_refusal_is_shown_and_nothing_is_asked() -> None:
    async def press(app: GenmonApp, pilot: Pilot[Leaving], link: ScriptedLink) -> None:
        link.refusal = "s0 was not launched by genmon."
        await pilot.press("r")
        await pilot.pause()
        assert [toast.message for toast in app._notifications] == ["s0 was not launched by genmon."]
        assert len(app.screen_stack) == 1

    on_stage(healthy(4), press)


def test_enter_opens_a_gpu_follows_its_log_and_escape_leads_back() -> None:
    async def press(app: GenmonApp, pilot: Pilot[Leaving], link: ScriptedLink) -> None:
        await pilot.press("down", "enter")
        await pilot.pause()
        link.log("s1", "The server is fired up and ready to roll!")
        await asyncio.sleep(0)
        await pilot.pause()
        app._redraw()
        text = shown(app)
        assert "acceptance length" in text
        assert "--model-path Qwen/Qwen3.6-27B" in text
        assert "fired up" in text
        await pilot.press("right_square_bracket")
        await pilot.press("escape")
        await pilot.pause()
        assert "acceptance length" not in shown(app)
        assert link.followed == ["s1", None]

    on_stage(healthy(4), press)


def test_l_goes_through_the_servers_logs_and_back_to_the_events() -> None:
    async def press(app: GenmonApp, pilot: Pilot[Leaving], link: ScriptedLink) -> None:
        for expected in ("log of s0", "log of s1", "events"):
            await pilot.press("l")
            await pilot.pause()
            assert expected in shown(app)
        assert link.followed == ["s0", "s1", None]

    on_stage(healthy(2), press)


def test_the_help_and_the_palette_know_every_key() -> None:
    async def press(app: GenmonApp, pilot: Pilot[Leaving], link: ScriptedLink) -> None:
        await pilot.press("question_mark")
        await pilot.pause()
        text = str(app.screen.query_one("Static").render())
        assert all(key.help in text for key in KEYS)
        await pilot.press("escape")
        commands = list(app.get_system_commands(app.screen))
        assert len(commands) == len(KEYS)

    on_stage(healthy(4), press)
    assert len({key.id for key in KEYS}) == len(KEYS)


def test_the_theme_changes_and_the_picture_stays() -> None:
    async def press(app: GenmonApp, pilot: Pilot[Leaving], link: ScriptedLink) -> None:
        before, text = app.theme, shown(app)
        await pilot.press("t")
        await pilot.pause()
        assert app.theme != before
        assert shown(app) == text

    on_stage(healthy(4), press)


def test_the_mouse_moves_the_cursor_opens_a_gpu_and_presses_hints() -> None:
    async def press(app: GenmonApp, pilot: Pilot[Leaving], link: ScriptedLink) -> None:
        row = next(y for y, line in enumerate(shown(app).splitlines()) if "535/600" in line)
        await pilot.click(Canvas, offset=(20, row))
        await pilot.press("r", "y")
        await pilot.pause()
        assert link.done == [Restart(servers=("s2",))]
        await pilot.click(Canvas, offset=(20, row), times=2)
        await pilot.pause()
        assert "acceptance length" in shown(app)
        await pilot.press("escape")
        last = shown(app).splitlines()[-1]
        await pilot.click(Canvas, offset=(last.index("detach"), 35))
        await pilot.pause()

    assert on_stage(healthy(4), press)[0].return_value is Leaving.DETACH


def test_the_flags_editor_shows_the_diff_as_it_is_typed_and_gives_one_command() -> None:
    async def press(app: GenmonApp, pilot: Pilot[Leaving], link: ScriptedLink) -> None:
        await pilot.press("f")
        await pilot.pause()
        await pilot.press(*"max-running-requests=64", "space", *"-old")
        await pilot.pause()
        assert "+ speculative-algorithm NEXTN" in str(app.screen.query_one("#diff").render())
        link.refusal = "SGLang 0.5.11 has no such flag."
        await pilot.press("x")
        await pilot.pause()
        assert "no such flag" in str(app.screen.query_one("#diff").render())
        link.refusal = None
        await pilot.press("backspace", "enter")
        await pilot.pause()
        await pilot.press("y")
        await pilot.pause()

    _, link = on_stage(healthy(4), press)
    assert link.done == [Restart(servers=("s0",), set={"max-running-requests": "64"}, unset=("old",), canary=True)]


def test_a_lost_engine_is_said_and_the_next_state_takes_it_back() -> None:
    async def press(app: GenmonApp, pilot: Pilot[Leaving], link: ScriptedLink) -> None:
        link.lose()
        app._redraw()
        assert "The engine is gone" in shown(app)
        assert "529/600" in shown(app)
        link.connected, link.trouble = True, None
        link.show(replace(healthy(4), servers=(server(0, in_flight=3),)))
        app._redraw()
        assert "The engine is gone" not in shown(app)
        assert "3/16" in shown(app)

    on_stage(healthy(4), press)


@pytest.mark.parametrize("size", [(20, 5), (40, 10), (60, 12), (80, 24)])
def test_a_small_terminal_is_drawn_and_survives_a_resize(size: tuple[int, int]) -> None:
    async def press(app: GenmonApp, pilot: Pilot[Leaving], link: ScriptedLink) -> None:
        await pilot.resize_terminal(120, 36)
        await pilot.pause()
        assert "529/600" in shown(app)
        await pilot.resize_terminal(*size)
        await pilot.pause()
        assert len(shown(app).splitlines()) <= size[1]

    on_stage(healthy(4), press, size)
