"""Loopback ports for servers: free, never given twice on this machine, and proved to be the server's own.

SGLang finds out that its port is taken only after the model is loaded, and picks its NCCL port with a race.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from genmon.errors import StartError

_RANGE = 2000
_LISTEN = "0A"
"""State of a listening socket in /proc/net/tcp."""


@contextmanager
def reserved(first: int) -> Iterator[int]:
    """The first free port from `first` on that no genmon on this machine holds; held until the block ends.

    Raises:
        StartError: none of 2,000 ports is free.
    """
    for port in range(first, min(first + _RANGE, 65536)):
        hold = _hold(port)
        if hold is None:
            continue
        with hold:
            if is_free(port):
                yield port
                return
    raise StartError(f"No free port between {first} and {first + _RANGE}: set servers.base_port to another range.")


def is_free(port: int) -> bool:
    """Whether a server could listen there now."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
        return True


def is_listened_on_by(port: int, pids: Iterable[int]) -> bool | None:
    """Whether one of these processes has the listening socket of a port; None when nobody's is to be seen."""
    try:
        lines = Path("/proc/net/tcp").read_text().splitlines()[1:]
    except OSError:
        return None
    rows = [line.split() for line in lines]
    sockets = {f"socket:[{row[9]}]" for row in rows if row[3] == _LISTEN and int(row[1].rpartition(":")[2], 16) == port}
    return any(link in sockets for pid in pids for link in _open_files(pid)) if sockets else None


def _open_files(pid: int) -> Iterator[str]:
    with suppress(OSError), os.scandir(f"/proc/{pid}/fd") as files:
        for file in files:
            with suppress(OSError):  # closed meanwhile
                yield str(Path(file).readlink())


def _hold(port: int) -> socket.socket | None:
    """Claim a port among all genmons: a name in the abstract Unix namespace, which goes when its owner does."""
    claim = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        claim.bind(f"\0genmon-port-{port}")
    except OSError:
        claim.close()
        return None
    return claim
