"""One SGLang process: launched, proved, watched, ended, and launched again when it failed.

waiting → starting → smoke → ready → (stopping → stopped | backoff → starting … | given_up)
"""

from __future__ import annotations

import asyncio
import os
import shlex
import signal
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from uuid import uuid4

from msgspec import Struct
from msgspec.structs import replace

from genmon.errors import ServerError, StartError
from genmon.fleet import watcher
from genmon.fleet.groups import LEASE_TTL_S, MARK, Groups, end_session
from genmon.fleet.http import SglangHttp
from genmon.fleet.logtail import Diagnosis, End, diagnose, tail
from genmon.fleet.ports import free_port, return_port
from genmon.fleet.pulse import Pulse
from genmon.state import ServerPhase, ServerState

_POLL_S = 1.0
_START_POLL_S = 0.25
_INFO_EVERY_S = 30.0
_MEMORY_WAIT_S = 30.0
_BACKOFF_MAX_S = 60.0
_NCCL_OFFSET = 1000
_SETTLED_ENV = {
    # A /health that times out leaves requests behind that crash the scheduler (reported on RTX PRO 6000).
    "SGLANG_ENABLE_HEALTH_ENDPOINT_GENERATION": "0",
    # Otherwise a leak check kills the server in the moment it becomes idle, which is when a job ends.
    "SGLANG_ENABLE_STRICT_MEM_CHECK_DURING_IDLE": "0",
}


class ServerSpec(Struct, frozen=True, kw_only=True):
    """How to launch one server. `command` has no host and port flags: those are found at each launch."""

    host: str
    name: str
    gpu_index: int | None
    gpu_uuid: str | None
    command: tuple[str, ...]
    env: dict[str, str]
    port: int
    log_path: Path
    model_name: str
    api_key: str | None
    start_timeout_s: float
    hang_after_s: float
    max_restarts: int
    cap_requested: int | None
    simulated: bool = False


class Server:
    """Supervises one server from `start` to `stop`."""

    def __init__(
        self, spec: ServerSpec, groups: Groups, *, memory_free: Callable[[], Awaitable[bool]] | None = None
    ) -> None:
        """`memory_free` says whether the GPU's memory is free for a launch; None when there is no GPU to ask."""
        self._spec, self._groups, self._memory_free = spec, groups, memory_free
        self._supervising: asyncio.Task[None] | None = None
        self._process: asyncio.subprocess.Process | None = None
        self._stopping = False
        self._restart_reason: str | None = None
        self._failures = 0
        self.in_flight = 0
        """Rows sent and not got back; the host keeps it."""
        self.on_change: Callable[[ServerState], None] | None = None
        """Called at each change of phase or reason."""
        self._state = ServerState(
            host=spec.host,
            name=spec.name,
            url="",
            phase=ServerPhase.WAITING,
            since=time.time(),
            gpu_index=spec.gpu_index,
            gpu_uuid=spec.gpu_uuid,
            cap_requested=spec.cap_requested,
            log_path=str(spec.log_path),
            simulated=spec.simulated,
        )

    def state(self) -> ServerState:
        """The server as it is known now."""
        return self._state

    def row_finished(self) -> None:
        """Note that it served a row: it is well, and earlier failures are forgiven."""
        self._failures = 0

    async def start(self) -> None:
        """Begin to launch and supervise; returns at once."""
        if self._supervising is None or self._supervising.done():
            self._stopping = False
            self._supervising = asyncio.create_task(self._supervise())

    async def restart(self, reason: str) -> None:
        """End the running process; the supervisor launches the next one at once."""
        self._restart_reason = reason
        await self._end_process(0.0)

    async def stop(self, deadline_s: float) -> None:
        """SIGTERM, up to `deadline_s` seconds, then SIGKILL of the group; returns when nothing of it is left."""
        self._stopping = True
        if self._supervising is None:
            return
        if self._state.phase not in (ServerPhase.GIVEN_UP, ServerPhase.STOPPED):
            self._change(ServerPhase.STOPPING)
        running = self._process is not None
        await self._end_process(deadline_s)
        if running:  # the supervisor sees the end by itself and clears up
            await asyncio.wait([self._supervising], timeout=_MEMORY_WAIT_S)
        self._supervising.cancel()
        await asyncio.wait([self._supervising])
        await self._clear()
        if self._state.phase is not ServerPhase.GIVEN_UP:
            self._change(ServerPhase.STOPPED)

    async def _supervise(self) -> None:
        while True:
            try:
                end = await self._live()
            except (TypeError, ValueError, LookupError, AttributeError) as error:
                self._change(ServerPhase.GIVEN_UP, f"genmon itself failed: {error!r}")  # a bug, told and not silent
                raise
            if self._stopping:
                return
            if self._restart_reason is not None:
                self._change(ServerPhase.BACKOFF, self._restart_reason)
                self._restart_reason = None
                continue
            self._failures += 1
            if not end.retryable or self._failures > self._spec.max_restarts:
                tries = "" if not end.retryable else f" (given up after {self._failures} failures in a row)"
                self._change(ServerPhase.GIVEN_UP, end.sentence + tries)
                return
            pause_s = min(_BACKOFF_MAX_S, 2.0**self._failures)
            self._change(ServerPhase.BACKOFF, f"{end.sentence}; next try in {pause_s:.0f} s")
            await asyncio.sleep(pause_s)

    async def _live(self) -> Diagnosis:
        """One launch from its beginning to its end; says why it ended."""
        offset, was_ready = 0, False
        http: SglangHttp | None = None
        try:
            port = free_port(self._spec.port)
            nccl_port = free_port(port + _NCCL_OFFSET)
        except StartError as error:
            return Diagnosis(End.PORT_TAKEN, str(error), True)
        try:
            offset = await self._launch(port, nccl_port)
            http = SglangHttp(self._state.url, self._spec.api_key)
            end = await self._become_ready(http)
            was_ready = self._state.phase is ServerPhase.READY
            if end is None:
                end = await self._serve(http)
        except OSError as error:
            return Diagnosis(End.UNKNOWN, f"it could not be launched: {error}", True)
        finally:
            if http is not None:
                await http.close()
            code = self._process.returncode if self._process else None
            await self._clear()
            return_port(port)
            return_port(nccl_port)
        return end or diagnose(tail(self._spec.log_path, offset), code, was_ready=was_ready)

    async def _launch(self, port: int, nccl_port: int) -> int:
        """Start the process; returns where its part of the log begins."""
        spec = self._spec
        note = await self._await_memory()
        mark = str(uuid4())
        command = (*spec.command, "--host", "127.0.0.1", "--port", str(port), "--nccl-port", str(nccl_port))
        key = ("--api-key", spec.api_key) if spec.api_key else ()
        env = {**os.environ, **_SETTLED_ENV}
        env.pop("PROMETHEUS_MULTIPROC_DIR", None)  # a shared one merges all servers' metrics
        if spec.gpu_uuid and not spec.simulated:
            env["CUDA_VISIBLE_DEVICES"] = spec.gpu_uuid
        env |= {**spec.env, MARK: mark}
        self._groups.touch()
        with spec.log_path.open("ab") as log:
            offset = log.tell()
            stamp = time.strftime("%Y-%m-%d %H:%M:%S")
            log.write(f"=== genmon {stamp}: {shlex.join(command)}{' --api-key ***' if key else ''}\n".encode())
            log.flush()
            leader = (sys.executable, "-I", watcher.__file__, str(self._groups.lease), str(LEASE_TTL_S))
            self._process = await asyncio.create_subprocess_exec(
                *leader,
                *command,
                *key,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=env,
                start_new_session=True,
            )
        self._groups.enter(spec.name, self._process.pid, mark)
        self._state = replace(
            self._state,
            url=f"http://127.0.0.1:{port}",
            pid=self._process.pid,
            launches=self._state.launches + 1,
            argv=command,
            cap=None,
            mtp=None,
            version=None,
            running=None,
            queued=None,
            tokens_per_s=None,
            decode_tokens=None,
            acceptance_length=None,
            kv_usage=None,
            mamba_usage=None,
            taken_at=None,
        )
        self._change(ServerPhase.STARTING, note)
        return offset

    async def _await_memory(self) -> str | None:
        """Wait until the GPU is free of the last launch; a sentence when it is not after half a minute."""
        if self._memory_free is None:
            return None
        deadline = time.monotonic() + _MEMORY_WAIT_S
        while not await self._memory_free():
            if time.monotonic() > deadline:
                return "launched although the GPU's memory is partly in use by others"
            await asyncio.sleep(_START_POLL_S)
        return None

    async def _become_ready(self, http: SglangHttp) -> Diagnosis | None:
        """Wait for the port, then for the smoke request. None when ready, or when the process ended by itself."""
        deadline = time.monotonic() + self._spec.start_timeout_s
        last = "its port stayed closed"
        while await self._alive(_START_POLL_S):
            if time.monotonic() > deadline:
                words = f"not ready after {self._spec.start_timeout_s:.0f} s: {last}"
                return Diagnosis(End.UNKNOWN, words, True)
            if not await http.answers():
                continue
            if self._state.phase is ServerPhase.STARTING:
                self._change(ServerPhase.SMOKE)
            try:
                await http.smoke(self._spec.model_name)
                info = await http.info()
            except ServerError as error:
                last = str(error)
                continue
            self._state = replace(
                self._state,
                version=info.version,
                mtp=info.mtp,
                cap=info.cap,
                cap_requested=self._spec.cap_requested or info.cap_requested,
            )
            self._change(ServerPhase.READY)
            return None
        return None

    async def _serve(self, http: SglangHttp) -> Diagnosis | None:
        """Watch a ready server until its process ends (None) or it hangs."""
        pulse = Pulse(http)
        asked_at = time.monotonic()
        while self._state.phase is ServerPhase.READY and await self._alive(_POLL_S):
            try:
                self._state = await pulse.take(self._state, self.in_flight)
                if time.monotonic() - asked_at > _INFO_EVERY_S:
                    asked_at = time.monotonic()
                    info = await http.info()
                    self._state = replace(self._state, cap=info.cap, mtp=info.mtp)
            except ServerError:
                pass  # the last good values stay, with their age; a server that is gone ends its process
            stalled_s = pulse.stalled_s()
            if self.in_flight and stalled_s > self._spec.hang_after_s:
                words = f"hung: no token decoded for {stalled_s:.0f} s with {self.in_flight} rows in flight"
                return Diagnosis(End.WATCHDOG, words, True)
        return None

    async def _alive(self, for_s: float) -> bool:
        """Wait up to `for_s` seconds; whether the process still runs then."""
        if self._process is None or self._process.returncode is not None:
            return False
        try:
            await asyncio.wait_for(self._process.wait(), for_s)
        except TimeoutError:
            return True
        return False

    async def _end_process(self, deadline_s: float) -> None:
        """SIGTERM and patience, if there is a process; what is left is for `_clear`."""
        process = self._process
        if process is None or process.returncode is not None:
            return
        if deadline_s > 0:
            process.send_signal(signal.SIGTERM)
            if not await self._alive(deadline_s):
                return
        await asyncio.to_thread(end_session, process.pid)

    async def _clear(self) -> None:
        """End every process of the session, and forget it."""
        process, self._process = self._process, None
        if process is None:
            return
        await asyncio.to_thread(end_session, process.pid)
        await process.wait()
        self._groups.leave(self._spec.name)
        self._state = replace(self._state, pid=None)

    def _change(self, phase: ServerPhase, reason: str | None = None) -> None:
        self._state = replace(self._state, phase=phase, reason=reason, since=time.time())
        if self.on_change is not None:
            self.on_change(self._state)
