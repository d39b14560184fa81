"""Tells leave the machine when configured, and nothing that goes wrong there touches the run."""

from __future__ import annotations

import asyncio
from pathlib import Path

import msgspec
import pytest
from aiohttp import web

from genmon.config.schema import TellsConfig
from genmon.engine.notify import Notifier
from genmon.state import Tell, TellLevel

ALARM = Tell(id="wedged", level=TellLevel.ALARM, sentence="GPU 2 computes nothing", since=1.0, server="s2", mend="g")
WARN = Tell(id="idle", level=TellLevel.WARN, sentence="GPU 1 has nothing to do", since=1.0)


def test_an_alarm_is_posted_once_with_its_words_and_less_is_not() -> None:
    posted: list[dict[str, object]] = []

    async def take(request: web.Request) -> web.Response:
        posted.append(msgspec.json.decode(await request.read(), type=dict[str, object]))
        return web.Response()

    async def go() -> None:
        app = web.Application()
        app.router.add_post("/tells", take)
        runner = web.AppRunner(app)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        port = runner.addresses[0][1]
        notifier = Notifier(TellsConfig(webhook=f"http://127.0.0.1:{port}/tells", bell=True), "night", print)
        for tells in [(WARN,), (ALARM, WARN), (ALARM,), (), (ALARM,)]:
            notifier.hear(tells)
        await notifier.close()
        await runner.cleanup()
        assert notifier.rings == 2

    asyncio.run(go())
    assert [(each["run"], each["id"], each["level"], each["sentence"]) for each in posted] == [
        ("night", "wedged", "alarm", "GPU 2 computes nothing")
    ] * 2, "when it comes up, and when it comes up anew"


def test_what_cannot_be_sent_is_said_once(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))  # no notify-send there
    said: list[str] = []

    async def go() -> None:
        notifier = Notifier(
            TellsConfig(webhook="http://127.0.0.1:9/", desktop=True, notify="warn"), "night", said.append
        )
        notifier.hear((ALARM,))
        await notifier.close()
        notifier.hear((WARN,))
        await notifier.close()

    asyncio.run(go())
    assert len(said) == 2
    assert any(each.startswith("tells.webhook: a tell could not be sent: ") for each in said)
    assert any(each.startswith("notify-send: a tell could not be sent: ") for each in said)


def test_the_desktop_is_told_through_notify_send(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    program = tmp_path / "notify-send"
    program.write_text(f'#!/bin/sh\nprintf "%s\\n" "$@" > {tmp_path}/told\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")

    async def go() -> None:
        notifier = Notifier(TellsConfig(desktop=True), "night", print)
        notifier.hear((ALARM,))
        await notifier.close()

    asyncio.run(go())
    told = (tmp_path / "told").read_text().splitlines()
    assert told == ["--urgency=critical", "genmon night: alarm", "GPU 2 computes nothing"]
