"""Free loopback ports, never the same twice in one engine.

SGLang finds out that its port is taken only after the model is loaded, and picks its NCCL port with a race.
"""

from __future__ import annotations

import socket

from genmon.errors import StartError

_handed_out: set[int] = set()


def free_port(first: int) -> int:
    """The first free port from `first` on that was not handed out before; give it back with `return_port`.

    Raises:
        StartError: none of 2,000 ports is free.
    """
    for port in range(first, min(first + 2000, 65536)):
        if port not in _handed_out and is_free(port):
            _handed_out.add(port)
            return port
    raise StartError(f"No free port between {first} and {first + 2000}: set servers.base_port to another range.")


def return_port(port: int) -> None:
    """Let a port be handed out again."""
    _handed_out.discard(port)


def is_free(port: int) -> bool:
    """Whether a server could listen there now."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
        return True
