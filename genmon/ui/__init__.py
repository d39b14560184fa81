"""The dashboard: a view of one engine, drawn with Textual."""

from __future__ import annotations

import asyncio
import select
import signal
import sys
from pathlib import Path

from genmon.errors import StartError
from genmon.ui.app import GenmonApp, terminal_encoding
from genmon.ui.dialogs import Leaving
from genmon.wire.client import SocketLink

_LOOK_S = 1.0


def run(directory: Path) -> None:
    """Show the run of a job directory until the user leaves; SIGHUP and SIGTERM leave too, the run goes on.

    Raises:
        StartError: no engine runs this job, or the dashboard failed.
    """
    asyncio.run(_run(directory))


async def _leave_with_the_terminal(app: GenmonApp) -> None:
    """A terminal can go without a SIGHUP (its session is not ours): reading from it would then never wait again."""
    terminal = select.poll()
    terminal.register(sys.__stdin__.fileno() if sys.__stdin__ is not None else 0, 0)
    while not terminal.poll(0):
        await asyncio.sleep(_LOOK_S)
    app.exit(Leaving.DETACH)


async def _run(directory: Path) -> None:
    async with SocketLink(directory) as link:
        await link.first()
        app = GenmonApp(link, encoding=terminal_encoding())
        loop = asyncio.get_running_loop()
        for each in (signal.SIGHUP, signal.SIGTERM):
            loop.add_signal_handler(each, app.exit, Leaving.DETACH)
        watching = asyncio.create_task(_leave_with_the_terminal(app))
        await app.run_async()
        watching.cancel()
        if app.return_code:
            raise StartError("The dashboard failed; the run goes on, and genmon attach opens another.")
