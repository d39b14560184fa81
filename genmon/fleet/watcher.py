"""The dead man's switch: leads a server's session and ends it when the engine's lease goes stale.

    python -I watcher.py LEASE TTL_S COMMAND...

Runs the command in its own process group, forwards SIGTERM to it, and exits as it does (128 + n for a signal n).
An engine that was killed touches its lease no more: after TTL_S seconds the whole group is ended, so that no GPU
stays occupied. Standard library only, so that it starts at once and costs next to nothing.
"""

import contextlib
import os
import signal
import subprocess
import sys
import time

POLL_S = 1.0
GRACE_S = 10.0


def main() -> None:
    """Run the command until it ends, or until the lease does."""
    lease, ttl_s, command = sys.argv[1], float(sys.argv[2]), sys.argv[3:]
    try:
        server = subprocess.Popen(command, stdin=subprocess.DEVNULL)
    except OSError as error:
        print(f"genmon: {command[0]} cannot be started: {error.strerror}", flush=True)
        raise SystemExit(127) from None
    signal.signal(signal.SIGTERM, lambda *_: server.terminate())
    while True:
        with contextlib.suppress(subprocess.TimeoutExpired):
            code = server.wait(timeout=POLL_S)
            break
        if _stale(lease, ttl_s):
            print(f"genmon: the engine has not been heard of for {ttl_s:.0f} s: ending the server", flush=True)
            _end(server)
    os._exit(code if code >= 0 else 128 - code)


def _stale(lease: str, ttl_s: float) -> bool:
    try:
        return time.time() - os.stat(lease).st_mtime > ttl_s
    except OSError:
        return True


def _end(server: "subprocess.Popen[bytes]") -> None:
    """SIGTERM, a moment, then SIGKILL for the whole group, this process too."""
    server.terminate()
    with contextlib.suppress(subprocess.TimeoutExpired):
        server.wait(timeout=GRACE_S)
    os.killpg(os.getpgrp(), signal.SIGKILL)


if __name__ == "__main__":
    main()
