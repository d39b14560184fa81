"""Calls somebody when a tell comes up: desktop, webhook, the bell of whoever looks. Never waits, never ends a run."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine

import msgspec

from genmon.config.schema import TellsConfig
from genmon.state import Tell, TellLevel

_TIMEOUT_S = 10.0
_ORDER = {TellLevel.LOOK: 0, TellLevel.WARN: 1, TellLevel.ALARM: 2}


class Notifier:
    """Follows the tells of one run."""

    def __init__(self, config: TellsConfig, run: str, say: Callable[[str], None]) -> None:
        """`say` puts a line into the run's story: what could not be sent is told once."""
        self._config, self._run, self._say = config, run, say
        self._least = _ORDER[TellLevel(config.notify)]
        self._known: set[tuple[str, TellLevel]] = set()
        self._sending: set[asyncio.Task[None]] = set()
        self._failed: set[str] = set()
        self.rings = 0
        """How often the bell was to ring since the run began."""

    def hear(self, tells: tuple[Tell, ...]) -> None:
        """Take in the tells; those that came up, or rose, are sent. Call in the event loop."""
        now = {(tell.id, tell.level) for tell in tells}
        for tell in tells:
            if (tell.id, tell.level) in self._known or _ORDER[tell.level] < self._least:
                continue
            if self._config.bell:
                self.rings += 1
            if self._config.desktop:
                self._send("notify-send", self._desktop(tell))
            if self._config.webhook:
                self._send("tells.webhook", self._webhook(self._config.webhook, tell))
        self._known = now

    async def close(self) -> None:
        """Wait a little for what is being sent."""
        if self._sending:
            await asyncio.wait(self._sending, timeout=_TIMEOUT_S)

    def _send(self, what: str, sending: Coroutine[None, None, None]) -> None:
        async def send() -> None:
            try:
                async with asyncio.timeout(_TIMEOUT_S):
                    await sending
                self._failed.discard(what)
            except (OSError, TimeoutError) as error:
                if what not in self._failed:
                    self._failed.add(what)
                    self._say(f"{what}: a tell could not be sent: {error or type(error).__name__}")

        task = asyncio.create_task(send())
        self._sending.add(task)
        task.add_done_callback(self._sending.discard)

    async def _desktop(self, tell: Tell) -> None:
        process = await asyncio.create_subprocess_exec(
            "notify-send",
            f"--urgency={'critical' if tell.level is TellLevel.ALARM else 'normal'}",
            f"genmon {self._run}: {tell.level.value}",
            tell.sentence,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.DEVNULL,
        )
        await process.wait()

    async def _webhook(self, url: str, tell: Tell) -> None:
        # Imported here: views that never send a tell load this module too.
        import aiohttp

        body = msgspec.json.encode({"run": self._run, **msgspec.to_builtins(tell)})
        try:
            async with (
                aiohttp.ClientSession(trust_env=True) as session,
                session.post(url, data=body, headers={"Content-Type": "application/json"}) as response,
            ):
                response.raise_for_status()
        except aiohttp.ClientError as error:
            raise OSError(str(error) or type(error).__name__) from error
