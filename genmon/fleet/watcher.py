"""The dead man's switch: leads a server's session and ends it when the engine's lease is no longer renewed.

    python -I -S watcher.py LEASE TTL_S -- COMMAND...

Runs the command in its own process group, forwards SIGTERM to it, ends what it leaves behind, and exits as it did
(128 + n for signal n). An engine that was killed touches its lease no more: after TTL_S seconds the whole session is
ended, so that no GPU stays occupied. Standard library only, so that it starts at once and costs next to nothing.
"""

import contextlib
import os
import select
import signal
import subprocess
import sys
import time

POLL_S = 1.0
GRACE_S = 10.0
GONE_S = 10.0
"""How long the lease file may be missing: the engine makes it again every 5 s."""


class Lease:
    """Whether the engine still renews its lease.

    Judged by changes of the file's time on this process's own monotonic clock: a system clock that is set, or a
    machine that was suspended, ends no server.
    """

    def __init__(self, path: str, ttl_s: float) -> None:
        """`ttl_s` is how long an engine may be silent."""
        self._path, self._ttl_s = path, ttl_s
        self._touched: int | None = None
        self._heard_at = time.monotonic()

    def stale(self) -> bool:
        """Whether it was not renewed for its time, or is gone."""
        now, ttl_s = time.monotonic(), self._ttl_s
        try:
            touched = os.stat(self._path).st_mtime_ns
            if touched != self._touched:
                self._touched, self._heard_at = touched, now
        except FileNotFoundError:
            ttl_s = min(ttl_s, GONE_S)
        except OSError:
            pass  # a file system in trouble says nothing about the engine: not renewed, and not gone
        return now - self._heard_at > ttl_s


def main() -> None:
    """Run the command until it ends, or until the lease does."""
    lease, command = Lease(sys.argv[1], float(sys.argv[2])), sys.argv[3:]
    if command[0] == "--":  # an engine that runs since before an update launches without it
        del command[0]
    terms: list[int] = []
    wake, waker = os.pipe()
    os.set_blocking(wake, False)
    os.set_blocking(waker, False)
    signal.set_wakeup_fd(waker)
    signal.signal(signal.SIGTERM, lambda number, _: terms.append(number))
    signal.signal(signal.SIGCHLD, lambda *_: None)
    try:
        server = subprocess.Popen(command, stdin=subprocess.DEVNULL)
    except OSError as error:
        _say(f"{command[0]} cannot be started: {error.strerror}")
        raise SystemExit(127) from None
    while (code := server.poll()) is None:
        while terms:
            server.send_signal(terms.pop())
        if lease.stale():
            _say(f"the engine has not been heard of for {sys.argv[2]} s: ending the server")
            _end(server)
        select.select([wake], [], [], POLL_S)
        with contextlib.suppress(BlockingIOError):
            os.read(wake, 512)
    _sweep()
    os._exit(code if code >= 0 else 128 - code)


def _say(words: str) -> None:
    with contextlib.suppress(OSError):  # a full disk must not keep a server alive
        print(f"genmon: {words}", flush=True)


def _end(server: "subprocess.Popen[bytes]") -> None:
    """SIGTERM, a moment, then SIGKILL for the whole session, this process too."""
    server.terminate()
    with contextlib.suppress(subprocess.TimeoutExpired):
        server.wait(timeout=GRACE_S)
    _sweep()
    os.killpg(os.getpgrp(), signal.SIGKILL)


def _sweep() -> None:
    """SIGKILL whatever else is left in the session."""
    own = os.getpid()
    for entry in os.scandir("/proc"):
        with contextlib.suppress(OSError, ValueError):
            pid = int(entry.name)
            if pid != own and os.getsid(pid) == own:
                os.kill(pid, signal.SIGKILL)


if __name__ == "__main__":
    main()
