"""An engine reduced to its fleet: launches stub servers, says when they are ready, and waits to be killed.

python -m tests.fleet_engine FOLDER FLAGS...
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from genmon.fleet.groups import Groups
from genmon.fleet.server import Server
from genmon.state import ServerPhase
from tests.fleet import stub


async def main() -> None:
    folder = Path(sys.argv[1])
    groups = Groups(folder)
    keeping = asyncio.create_task(groups.keep_alive())
    server = Server(stub(folder, *sys.argv[2:]), groups)
    await server.start()
    while server.state().phase is not ServerPhase.READY:
        await asyncio.sleep(0.01)
    print(server.state().pid, flush=True)
    await keeping


asyncio.run(main())
