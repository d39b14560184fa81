"""The engine's end of the wire: any number of views, each with the latest state and a way to give commands."""

from __future__ import annotations

import asyncio
import os
import socket
import time
from pathlib import Path

from genmon import __version__
from genmon.history import History
from genmon.state import State
from genmon.wire.address import Address, listen, publish, withdraw
from genmon.wire.connection import Connection, Served
from genmon.wire.messages import Past

_LOOK_S = 0.2
"""How often the engine's state is looked at; it changes once a second, and at each command."""
_GOODBYE_S = 2.0


class WireServer:
    """Serves one engine."""

    def __init__(self, engine: Served, directory: Path) -> None:
        """`directory` is the job directory, locked by this process."""
        self._engine, self._directory = engine, directory.resolve()
        self._history = History()
        self._shown: State | None = None
        self._connections: dict[Connection, asyncio.Task[None] | None] = {}
        self._server: asyncio.Server | None = None
        self._looking: asyncio.Task[None] | None = None
        self._address: Address | None = None

    async def open(self) -> None:
        """Listen, and tell views where.

        Raises:
            StartError: no socket can be made.
            OSError: the job directory cannot be written.
        """
        bound, path = listen(self._directory)
        self._server = await asyncio.start_unix_server(self._serve, sock=bound)
        self._address = Address(
            run=self._engine.state.run,
            directory=str(self._directory),
            socket=str(path),
            pid=os.getpid(),
            host=socket.gethostname(),
            started_at=time.time(),
            genmon=__version__,
        )
        publish(self._address)
        self._looking = asyncio.create_task(self._look_for_ever())

    async def close(self) -> None:
        """Show every view the last state, then hang up; a view that does not read is not waited for."""
        if self._looking is not None:
            self._looking.cancel()
            await asyncio.wait([self._looking])
        if self._address is not None:
            withdraw(self._address)
        if self._server is not None:
            self._server.close()
        self._look()
        for connection in self._connections:
            connection.goodbye()
        tasks = [task for task in self._connections.values() if task is not None]
        if tasks:
            _, late = await asyncio.wait(tasks, timeout=_GOODBYE_S)
            for task in late:
                task.cancel()

    async def _look_for_ever(self) -> None:
        while True:
            self._look()
            await asyncio.sleep(_LOOK_S)

    def _look(self) -> None:
        state = self._engine.state
        if state is self._shown:
            return
        self._shown = state
        self._history.add(state)
        for connection in self._connections:
            connection.show()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connection = Connection(self._engine, reader, writer, self._look)
        try:
            if await connection.greet(self._directory, os.getpid()):
                self._connections[connection] = asyncio.current_task()
                await connection.talk(Past(self._history.tracks()))
        except OSError:
            return  # the view hung up
        finally:
            self._connections.pop(connection, None)
            await connection.hang_up()
