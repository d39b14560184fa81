"""One launch of one server: the child process behind its watcher, with its environment and its log."""

from __future__ import annotations

import asyncio
import os
import re
import shlex
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

from genmon.fleet.groups import LEASE_TTL_S, MARK, Groups
from genmon.fleet.logtail import tail
from genmon.fleet.spec import ServerSpec

_WATCHER = Path(__file__).with_name("watcher.py")
_LOOK_S = 0.1
_SECRET = re.compile(r"(--[\w-]*(?:api-key|password))(=.*)?")
_SETTLED_ENV = {
    # A /health that times out leaves requests behind that crash the scheduler (reported on RTX PRO 6000).
    "SGLANG_ENABLE_HEALTH_ENDPOINT_GENERATION": "0",
    # Otherwise a leak check kills the server in the moment it becomes idle, which is when a job ends.
    "SGLANG_ENABLE_STRICT_MEM_CHECK_DURING_IDLE": "0",
}


class ServerProcess:
    """A launch, from its first moment; `Groups.end` ends it."""

    def __init__(self, spec: ServerSpec, groups: Groups, *, port: int, nccl_port: int) -> None:
        """Start it, in a session of its own. Nothing is awaited, so that nothing can come between start and ledger.

        Raises:
            OSError: the log cannot be opened, or no process be made.
        """
        key = ("--api-key", spec.api_key) if spec.api_key else ()
        address = ("--host", "127.0.0.1", "--port", str(port), "--nccl-port", str(nccl_port))
        command = (*spec.command, *spec.flags, *address, *key)
        self.argv = masked(command)
        """The server's command without its secrets."""
        self.url = f"http://127.0.0.1:{port}"
        self.port = port
        self._log_path = spec.log_path
        spec.log_path.parent.mkdir(parents=True, exist_ok=True)
        # SGLang writes its API key into its log: nobody else's business.
        log = os.open(spec.log_path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        try:
            stamp = time.strftime("%Y-%m-%d %H:%M:%S")
            with suppress(OSError):  # on a full disk the header is missing, not the server
                os.write(log, f"=== genmon {stamp}: {shlex.join(self.argv)}\n".encode())
            self._log_offset = os.fstat(log).st_size
            self.launch = groups.begin(spec.name, self.argv)
            """The id in the ledger."""
            leader = (sys.executable, "-I", "-S", str(_WATCHER), str(groups.lease), f"{LEASE_TTL_S:.0f}", "--")
            try:
                self._child = subprocess.Popen(
                    [*leader, *command],
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    env=_environment(spec) | {MARK: self.launch},
                    start_new_session=True,
                )
            except OSError:
                groups.end(self.launch)
                raise
        finally:
            os.close(log)
        groups.enter(self.launch, self._child.pid)

    @property
    def pid(self) -> int:
        """The watcher's number, which is the session's and the group's too."""
        return self._child.pid

    @property
    def returncode(self) -> int | None:
        """The server's, 128 + n for signal n; None while it runs. Negative: the watcher itself was killed."""
        return self._child.poll()

    async def ended(self, within_s: float) -> bool:
        """Wait up to `within_s` seconds for the end; whether it came."""
        deadline = time.monotonic() + within_s
        while self._child.poll() is None:
            left_s = deadline - time.monotonic()
            if left_s <= 0:
                return False
            await asyncio.sleep(min(_LOOK_S, left_s))
        return True

    def terminate(self) -> None:
        """SIGTERM to the server."""
        self._child.terminate()

    def reap(self) -> None:
        """Take note of its end, which has come. One that hangs in a driver is left to the system."""
        with suppress(subprocess.TimeoutExpired):
            self._child.wait(timeout=1.0)

    def log(self) -> str:
        """The end of what this launch has logged."""
        return tail(self._log_path, self._log_offset)


def masked(command: tuple[str, ...]) -> tuple[str, ...]:
    """A command line without the values of its secret flags."""
    shown, hide = [], False
    for word in command:
        secret = _SECRET.fullmatch(word)
        shown.append("***" if hide else f"{secret[1]}=***" if secret and secret[2] else word)
        hide = bool(secret and not secret[2]) and not hide
    return tuple(shown)


def _environment(spec: ServerSpec) -> dict[str, str]:
    """The engine's, what genmon settles, and the run file's, which wins."""
    env = {**os.environ, **_SETTLED_ENV}
    if spec.gpu_uuid and not spec.simulated:
        env["CUDA_VISIBLE_DEVICES"] = spec.gpu_uuid
    env |= spec.env
    env.pop("PROMETHEUS_MULTIPROC_DIR", None)  # servers that share one show each other's metrics as their own
    return env
