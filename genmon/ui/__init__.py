"""The dashboard: a view of one engine, drawn with Textual."""

from __future__ import annotations

import asyncio
import signal
from pathlib import Path

from genmon.errors import StartError
from genmon.ui.app import GenmonApp, terminal_encoding
from genmon.ui.dialogs import Leaving
from genmon.wire.client import SocketLink


def run(directory: Path) -> None:
    """Show the run of a job directory until the user leaves; SIGHUP and SIGTERM leave too, the run goes on.

    Raises:
        StartError: no engine runs this job, or the dashboard failed.
    """
    asyncio.run(_run(directory))


async def _run(directory: Path) -> None:
    async with SocketLink(directory) as link:
        await link.first()
        app = GenmonApp(link, encoding=terminal_encoding())
        loop = asyncio.get_running_loop()
        for each in (signal.SIGHUP, signal.SIGTERM):
            loop.add_signal_handler(each, app.exit, Leaving.DETACH)
        await app.run_async()
        if app.return_code:
            raise StartError("The dashboard failed; the run goes on, and genmon attach opens another.")
