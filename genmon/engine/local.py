"""The host that is this machine: servers as child processes, GPUs through NVML, completions over loopback."""

from __future__ import annotations

import asyncio
import os
import re
import socket
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import msgspec
from msgspec.structs import replace

from genmon.config.schema import FlagValue, RunConfig
from genmon.engine.client import CompletionClient
from genmon.engine.hosts import ChatRequest, HostInfo, HostReport
from genmon.errors import ServerGone, StartError
from genmon.fleet.external import ExternalServer
from genmon.fleet.flags.compose import cap_requested, run_flags
from genmon.fleet.flags.flagset import FlagSet, argv
from genmon.fleet.flags.known import table
from genmon.fleet.groups import Groups
from genmon.fleet.interpreter import known_flags, probe
from genmon.fleet.server import Server, ServerSpec
from genmon.gpu.nvml import open_gpus
from genmon.gpu.source import GpuInfo, GpuSource
from genmon.job.row import Answer
from genmon.sim.gpu import SimulatedGpus
from genmon.state import Event, ServerPhase, ServerState

_STOP_S = 20.0
"""Patience with a server told to end: 0.5.11 may wait for ever on requests it refused long ago."""
_MEMORY_SLACK_B = 1 << 30
"""A GPU counts as free again when no more than this is used beyond what was used before the first launch."""


class LocalHost:
    """The `Host` of this machine."""

    def __init__(self, config: RunConfig, directory: Path) -> None:
        """`directory` is the job directory: server logs, the ledger of process groups and the lease live there."""
        self._config, self._directory = config, directory
        self._name = socket.gethostname()
        self._gpus: GpuSource = (
            SimulatedGpus(config.simulation, directory / "sim") if config.simulation else open_gpus(self._name)
        )
        self._groups = Groups(directory)
        self._keeping_alive: asyncio.Task[None] | None = None
        self._servers: dict[str, Server | ExternalServer] = {}
        self._clients: dict[str, tuple[str, CompletionClient]] = {}
        self._flags: dict[str, FlagValue] = {}
        self._sglang: str | None = None
        self._known_flags: frozenset[str] | None = None
        self._events: list[Event] = []
        self._phases: dict[str, tuple[ServerPhase, str | None]] = {}

    async def hello(self) -> HostInfo:
        """End what a killed engine left behind, find GPUs and SGLang, and make ready to launch.

        Raises:
            StartError: a GPU is missing, or the interpreter has no SGLang.
        """
        urls = self._config.servers.urls
        if not urls:
            ended = await asyncio.to_thread(self._groups.end_leftovers)
            for sentence in ended:
                self._say(sentence)
            self._keeping_alive = asyncio.create_task(self._groups.keep_alive())
        self._gpus.start()
        if self._gpus.trouble:
            self._say(f"no GPU figures: {self._gpus.trouble}")
        key_name = self._config.servers.api_key_env
        self._api_key = os.environ.get(key_name) if key_name else None
        if key_name and not self._api_key:
            raise StartError(f"The environment variable {key_name} (servers.api_key_env) is not set.")
        if urls:
            for number, url in enumerate(urls):
                self._servers[f"s{number}"] = self._watch(
                    ExternalServer(
                        host=self._name,
                        name=f"s{number}",
                        url=url,
                        model_name=self._config.model.name,
                        api_key=self._api_key,
                    )
                )
        else:
            for spec, free in await self._specs():
                self._servers[spec.name] = self._watch(Server(spec, self._groups, memory_free=free))
        return HostInfo(
            host=self._name,
            servers=tuple(self._servers),
            simulated=self._config.simulation is not None,
            flags=self._flags,
            sglang=self._sglang,
            known_flags=self._known_flags,
        )

    async def start(self, server: str, flags: FlagSet | None = None) -> None:
        """Begin to launch a server."""
        handle = self._servers[server]
        if flags is not None and isinstance(handle, Server):
            handle.respec(replace(handle.spec, flags=argv(flags), cap_requested=cap_requested(flags)))
        await handle.start()

    async def stop(self, server: str, deadline_s: float) -> None:
        """Close the server's client, then end the server."""
        await self._close_client(server)
        await self._servers[server].stop(deadline_s)

    async def poll(self) -> HostReport:
        """The latest of everything; waits for nothing."""
        events, self._events = tuple(self._events), []
        return HostReport(
            gpus=self._gpus.latest(),
            servers=tuple(replace(server.state(), in_flight=server.in_flight) for server in self._servers.values()),
            events=events,
        )

    async def complete(self, server: str, request: ChatRequest) -> Answer:
        """Generate one turn on a server."""
        handle = self._servers[server]
        state = handle.state()
        if state.phase is not ServerPhase.READY:
            raise ServerGone(f"{server} is {state.phase.value}")
        client = await self._client(server, state.url)
        handle.in_flight += 1
        try:
            answer = await client.complete(request, spec_details=_spec_details(state))
        finally:
            handle.in_flight -= 1
        handle.row_finished()
        return answer

    async def stream(self, server: str, request: ChatRequest) -> AsyncIterator[int | None]:
        """Generate one turn on a server, piece by piece."""
        handle = self._servers[server]
        state = handle.state()
        if state.phase is not ServerPhase.READY:
            raise ServerGone(f"{server} is {state.phase.value}")
        client = await self._client(server, state.url)
        handle.in_flight += 1
        try:
            async for tokens in client.stream(request):
                yield tokens
        finally:
            handle.in_flight -= 1

    async def close(self) -> None:
        """Close the clients, end all servers side by side, stop the samplers."""
        await asyncio.gather(*(self.stop(name, _STOP_S) for name in self._servers))
        if self._keeping_alive is not None:
            self._keeping_alive.cancel()
            await asyncio.wait([self._keeping_alive])
        self._gpus.close()

    async def _client(self, server: str, url: str) -> CompletionClient:
        known = self._clients.get(server)
        if known is not None and known[0] == url:
            return known[1]
        client = CompletionClient(url, self._config.model.name, self._api_key)
        self._clients[server] = (url, client)
        if known is not None:
            await known[1].close()
        return client

    async def _close_client(self, server: str) -> None:
        known = self._clients.pop(server, None)
        if known is not None:
            await known[1].close()

    async def _specs(self) -> list[tuple[ServerSpec, Callable[[], Awaitable[bool]] | None]]:
        config, simulation = self._config, self._config.simulation
        if simulation is not None:
            command = (sys.executable, "-m", "genmon.sim.server")
            self._sglang, self._known_flags = simulation.version, table(simulation.version)
        else:
            interpreter = await asyncio.to_thread(probe, config.servers.python, config.servers.env)
            if interpreter.sglang is None:
                raise StartError(f"{interpreter.trouble}.")
            command = (interpreter.path, "-m", "sglang.launch_server")
            self._sglang = interpreter.sglang
            self._known_flags = await asyncio.to_thread(known_flags, interpreter) or table(interpreter.sglang)
        self._flags = run_flags(config)
        specs = []
        for number, (index, uuid) in enumerate(self._chosen_gpus()):
            env = dict(config.servers.env)
            if simulation is not None:
                env["GENMON_SIM"] = msgspec.json.encode(
                    {
                        "simulation": simulation,
                        "gpu_index": index,
                        "load_path": str(self._directory / "sim" / f"gpu-{index}.load"),
                    }
                ).decode()
            spec = ServerSpec(
                host=self._name,
                name=f"s{number}",
                gpu_index=index,
                gpu_uuid=uuid,
                command=command,
                flags=argv(self._flags),
                env=env,
                port=config.servers.base_port + number,
                log_path=self._directory / "logs" / f"s{number}.log",
                model_name=config.model.name,
                api_key=self._api_key,
                start_timeout_s=config.servers.start_timeout_s,
                hang_after_s=config.servers.hang_after_s,
                max_restarts=config.servers.max_restarts,
                cap_requested=cap_requested(self._flags),
                simulated=simulation is not None,
            )
            # Asked of the driver itself: there may be no sample yet.
            used_b = await asyncio.to_thread(self._gpus.memory_used_b, uuid) if uuid else None
            specs.append((spec, self._memory_free(uuid, used_b)))
        return specs

    def _chosen_gpus(self) -> list[tuple[int | None, str | None]]:
        """The GPUs to bind, as (index, UUID); both None for a server that binds none."""
        infos, chosen = self._gpus.infos(), self._config.servers.gpus
        if chosen == "all":
            if not infos:
                raise StartError(f"No GPU to serve on: {self._gpus.trouble or 'none was found'}.")
            return [(info.index, info.uuid) for info in infos]
        return [_find(wanted, infos, self._gpus.trouble) for wanted in chosen]

    def _memory_free(self, uuid: str | None, before_b: int | None) -> Callable[[], Awaitable[bool]] | None:
        if uuid is None:
            return None

        async def free() -> bool:
            used_b = await asyncio.to_thread(self._gpus.memory_used_b, uuid)
            return used_b is None or used_b <= (before_b or 0) + _MEMORY_SLACK_B

        return free

    def _watch(self, server: Server | ExternalServer) -> Server | ExternalServer:
        server.on_change = self._changed
        return server

    def _changed(self, state: ServerState) -> None:
        shown = (state.phase, state.reason)
        if self._phases.get(state.name) != shown:
            self._phases[state.name] = shown
            self._say(f"{state.name}: {state.phase.value}" + (f": {state.reason}" if state.reason else ""))

    def _say(self, text: str) -> None:
        self._events.append(Event(time.time(), text))


def _find(wanted: int | str, infos: tuple[GpuInfo, ...], trouble: str | None) -> tuple[int | None, str | None]:
    if wanted == "cpu":
        return (None, None)
    for info in infos:
        if wanted in (info.index, info.uuid):
            return (info.index, info.uuid)
    there = ", ".join(str(info.index) for info in infos) or f"none ({trouble or 'no GPU was found'})"
    raise StartError(f"GPU {wanted} (servers.gpus) is not on this machine; it has: {there}.")


def _spec_details(state: ServerState) -> str | None:
    """The request field by which this server tells a request's acceptance; none before 0.5.14."""
    numbers = tuple(int(part) for part in re.findall(r"\d+", state.version or "")[:3])
    if not state.mtp or numbers < (0, 5, 14):
        return None
    return "return_spec_tokens_details" if numbers >= (0, 5, 20) else "return_meta_info"
