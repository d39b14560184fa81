"""A view's end of the wire, as the view sees it."""

from __future__ import annotations

import asyncio
from typing import Protocol

from msgspec import Struct

from genmon.commands import Command, Plan
from genmon.history import History
from genmon.state import State


class LogLines(Struct, frozen=True, kw_only=True):
    """New lines of a followed server's log, oldest first; `skipped` lines before them were not sent."""

    server: str
    lines: tuple[str, ...]
    skipped: int = 0


class Link(Protocol):
    """One engine, seen from a view. Everything is called in the view's event loop."""

    state: State | None
    """The latest picture; kept when the engine is gone. None before the first."""
    connected: bool
    trouble: str | None
    """One sentence while not connected: why, and what happens next."""
    history: History
    arrived: asyncio.Event
    """Set whenever there is something new to draw; the reader clears it."""

    def take_log(self) -> tuple[LogLines, ...]:
        """The log lines that came since the last call."""
        ...

    async def plan(self, command: Command) -> Plan:
        """Ask what a command would do. Raises `Refused` with the engine's reason, also when it is gone."""
        ...

    async def do(self, command: Command) -> str:
        """Give a command; one sentence says what happens now. Raises `Refused`."""
        ...

    async def follow(self, server: str | None) -> None:
        """Receive a server's log from its last lines on; None ends that."""
        ...
