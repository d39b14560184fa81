"""One SGLang server, supervised: launched, proved, watched, ended, and launched again when it failed.

waiting → starting → smoke → ready → (stopping → stopped | backoff → starting … | given_up)
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable

from msgspec.structs import replace

from genmon.errors import ServerError, StartError
from genmon.fleet.groups import Groups
from genmon.fleet.http import ServerInfo, SglangHttp
from genmon.fleet.logtail import Diagnosis, End, diagnose
from genmon.fleet.ports import reserved
from genmon.fleet.process import ServerProcess
from genmon.fleet.pulse import Pulse
from genmon.fleet.readiness import prove
from genmon.fleet.spec import ServerSpec
from genmon.state import ServerPhase, ServerState

__all__ = ["Server", "ServerSpec"]

_POLL_S = 1.0
_INFO_EVERY_S = 30.0
_MEMORY_POLL_S, _MEMORY_WAIT_S = 0.25, 30.0
_BACKOFF_FIRST_S, _BACKOFF_MAX_S = 2.0, 60.0
_MEMORY_TRIES = 2
"""Starts that may end for want of memory: the first may have met another's leavings, the second would not."""
_NCCL_OFFSET = 1000


class Server:
    """Supervises one server from `start` to `stop`."""

    def __init__(
        self, spec: ServerSpec, groups: Groups, *, memory_free: Callable[[], Awaitable[bool]] | None = None
    ) -> None:
        """`memory_free` says whether the GPU's memory is free for a launch; None when there is no GPU to ask."""
        self._spec, self._groups, self._memory_free = spec, groups, memory_free
        self._supervising: asyncio.Task[None] | None = None
        self._process: ServerProcess | None = None
        self._pulse: Pulse | None = None
        self._proved = self._stopping = False
        self._restart_reason: str | None = None
        self._hurry = asyncio.Event()
        self._failures = self._short_of_memory = 0
        self._left: list[int] = []
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
        self._failures = self._short_of_memory = 0
        if self._pulse is not None:
            self._pulse.progressed()

    @property
    def spec(self) -> ServerSpec:
        """How its next launch goes."""
        return self._spec

    def respec(self, spec: ServerSpec) -> None:
        """Take other flags from the next launch on; the running one goes on as it is."""
        self._spec = spec

    async def start(self) -> None:
        """Begin to launch and supervise; returns at once. A server that was given up begins anew."""
        if self._supervising is None or self._supervising.done():
            self._stopping, self._restart_reason = False, None
            self._failures = self._short_of_memory = 0
            self._supervising = asyncio.create_task(self._supervise())
            self._supervising.add_done_callback(self._supervised)

    async def restart(self, reason: str) -> None:
        """End what runs now and launch anew at once, also out of a back-off; returns when the old one is gone."""
        if self._supervising is None or self._supervising.done():
            await self.start()
            return
        self._restart_reason = reason
        self._failures = self._short_of_memory = 0
        self._hurry.set()
        if self._process is not None:
            self._change(ServerPhase.STOPPING, reason)
            await asyncio.to_thread(self._groups.end, self._process.launch)

    async def stop(self, deadline_s: float) -> None:
        """SIGTERM, up to `deadline_s` seconds, then SIGKILL of the group; returns when nothing of it is left."""
        self._stopping = True
        task, process = self._supervising, self._process
        if task is not None and not task.done():
            self._change(ServerPhase.STOPPING)
            try:
                if process is not None and deadline_s > 0:
                    process.terminate()
                    await process.ended(deadline_s)
            finally:
                task.cancel()  # it ends what is left on its way out
            await asyncio.wait([task])
        if self._state.phase is not ServerPhase.GIVEN_UP:
            self._change(ServerPhase.STOPPED, self._leavings())

    async def _supervise(self) -> None:
        while True:
            end = await self._live()
            if self._stopping:
                return
            self._hurry.clear()
            reason, self._restart_reason = self._restart_reason, None
            if reason is not None:
                self._change(ServerPhase.BACKOFF, reason)
                continue
            self._failures += 1
            sentence = "; ".join(filter(None, [self._without_key(end.sentence), self._leavings()]))
            if self._must_give_up(end):
                tries = f" (given up after {self._failures} failures in a row)" if self._failures > 1 else ""
                self._change(ServerPhase.GIVEN_UP, sentence + tries)
                return
            pause_s = min(_BACKOFF_MAX_S, _BACKOFF_FIRST_S * 2.0 ** (self._failures - 1))
            self._change(ServerPhase.BACKOFF, f"{sentence}; next try in {pause_s:.0f} s")
            try:
                await asyncio.wait_for(self._hurry.wait(), pause_s)
            except TimeoutError:
                continue

    def _must_give_up(self, end: Diagnosis) -> bool:
        if end.kind is End.OUT_OF_MEMORY and not self._proved:
            self._short_of_memory += 1
        return not end.retryable or self._failures > self._spec.max_restarts or self._short_of_memory >= _MEMORY_TRIES

    async def _live(self) -> Diagnosis:
        """One launch from its beginning to its end; says why it ended."""
        note = await self._await_memory()
        spec, self._proved = self._spec, False
        try:
            with reserved(spec.port) as port, reserved(spec.port + _NCCL_OFFSET) as nccl_port:
                try:
                    process = ServerProcess(spec, self._groups, port=port, nccl_port=nccl_port)
                except OSError as error:
                    return Diagnosis(End.UNKNOWN, f"it could not be launched: {error}", True)
                return await self._follow(process, spec, note)
        except StartError as error:
            return Diagnosis(End.PORT_TAKEN, str(error), True)

    async def _await_memory(self) -> str | None:
        """Wait until the GPU is free of the last launch; a sentence when it is not after half a minute."""
        if self._memory_free is None:
            return None
        try:
            async with asyncio.timeout(_MEMORY_WAIT_S):
                while not await self._memory_free():
                    await asyncio.sleep(_MEMORY_POLL_S)
        except TimeoutError:
            return "launched although the GPU's memory is partly in use by others"
        return None

    async def _follow(self, process: ServerProcess, spec: ServerSpec, note: str | None) -> Diagnosis:
        """Watch a launch until its end, and leave nothing of it."""
        self._process, self._restart_reason = process, None
        end: Diagnosis | None = None
        try:
            self._begin(process, spec, note)
            http = SglangHttp(process.url, spec.api_key)
            try:
                proof = await prove(process, spec, http, self._groups, lambda: self._change(ServerPhase.SMOKE))
                if isinstance(proof, ServerInfo):
                    self._learn(proof)
                    await asyncio.to_thread(self._groups.remember, process.launch)
                    self._proved = True
                    self._change(ServerPhase.READY)
                    end = await self._serve(process, spec, http)
                else:
                    end = proof
            finally:
                await http.close()
        finally:
            await self._clear(process)
        return end or diagnose(process.log(), process.returncode, was_ready=self._proved)

    def _begin(self, process: ServerProcess, spec: ServerSpec, note: str | None) -> None:
        self._state = replace(
            self._state,
            url=process.url,
            pid=process.pid,
            launches=self._state.launches + 1,
            launched_at=time.time(),
            argv=process.argv,
            log_path=str(spec.log_path),
            cap_requested=spec.cap_requested,
            cap=None,
            mtp=None,
            version=None,
            overlap=None,
            cuda_graph_max_batch=None,
            decode_tokens=None,
            prefill_tokens=None,
            retracted_tokens=None,
            passes_graphed=None,
            passes_eager=None,
            taken_at=None,
        )
        self._change(ServerPhase.STARTING, note)

    async def _serve(self, process: ServerProcess, spec: ServerSpec, http: SglangHttp) -> Diagnosis | None:
        """Watch a ready server until its process ends (None) or it hangs."""
        pulse = self._pulse = Pulse(http)
        asked_at = time.monotonic()
        while not await process.ended(_POLL_S):
            try:
                self._take(await pulse.take(self._state, self.in_flight))
                if time.monotonic() - asked_at > _INFO_EVERY_S:
                    asked_at = time.monotonic()
                    self._learn(await http.info())
            except ServerError:
                pass  # the last good values stay, with their age; a server that is gone ends its process
            stalled_s = pulse.stalled_s()
            if self.in_flight and stalled_s > spec.hang_after_s:
                words = f"hung: no token decoded for {stalled_s:.0f} s with {self.in_flight} rows in flight"
                return Diagnosis(End.HUNG, words, True)
        return None

    def _take(self, polled: ServerState) -> None:
        """Take over a poll; one that was begun before a change of phase must not undo it."""
        now = self._state
        same = now.phase is ServerPhase.READY
        self._state = polled if same else replace(polled, phase=now.phase, reason=now.reason, since=now.since)

    def _learn(self, info: ServerInfo) -> None:
        """What the server says of itself; what it does not say stays as it was."""
        before = self._state
        self._state = replace(
            before,
            version=info.version or before.version,
            mtp=before.mtp if info.mtp is None else info.mtp,
            cap=info.cap or before.cap,
            cap_requested=before.cap_requested or info.cap_requested,
            overlap=before.overlap if info.overlap is None else info.overlap,
            cuda_graph_max_batch=info.cuda_graph_max_batch or before.cuda_graph_max_batch,
        )

    async def _clear(self, process: ServerProcess) -> None:
        """End every process of the launch, and forget what was true only of it."""

        def end() -> None:
            self._left = self._groups.end(process.launch)
            process.reap()

        try:
            # A future and no task: the end of the event loop cancels every task.
            await _to_the_end(asyncio.get_running_loop().run_in_executor(None, end))
        finally:
            self._process = self._pulse = None
            self._state = replace(
                self._state,
                pid=None,
                running=None,
                queued=None,
                tokens_per_s=None,
                acceptance_length=None,
                kv_usage=None,
                mamba_usage=None,
            )

    def _leavings(self) -> str | None:
        return f"process {self._left[0]} cannot be ended: it hangs in a driver" if self._left else None

    def _without_key(self, sentence: str) -> str:
        return sentence.replace(self._spec.api_key, "***") if self._spec.api_key else sentence

    def _supervised(self, task: asyncio.Task[None]) -> None:
        """A bug of genmon's own is told, and does not look like a server that starts for ever."""
        if not task.cancelled() and (error := task.exception()) is not None:
            self._change(ServerPhase.GIVEN_UP, f"genmon itself failed: {error!r}")

    def _change(self, phase: ServerPhase, reason: str | None = None) -> None:
        going = self._stopping or self._restart_reason is not None
        if going and phase in (ServerPhase.SMOKE, ServerPhase.READY):
            return  # a server on its way out takes no rows
        self._state = replace(self._state, phase=phase, reason=reason, since=time.time())
        if self.on_change is not None:
            self.on_change(self._state)


async def _to_the_end(future: asyncio.Future[None]) -> None:
    """Await to the end, whoever cancels meanwhile; the cancellation goes on afterwards."""
    cancelled = False
    while not future.done():
        try:
            await asyncio.shield(future)
        except asyncio.CancelledError:
            cancelled = True
    if cancelled:
        raise asyncio.CancelledError
    future.result()
