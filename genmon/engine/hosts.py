"""The one seam for machines: all that the engine may ask of a box with GPUs.

The engine reaches GPUs, servers and completions only through `Host`. `LocalHost` (local.py) is plain calls
in this process; nothing else in the engine would change for another one.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Protocol

from msgspec import Struct

from genmon.config.schema import FlagValue
from genmon.fleet.flags.flagset import FlagSet
from genmon.job.row import Answer, Json, Message
from genmon.state import Event, GpuSample, ServerState


class HostInfo(Struct, frozen=True, kw_only=True):
    """What a host is: its name, the servers it can start, and whether any of it is simulated."""

    host: str
    servers: tuple[str, ...]
    simulated: bool = False
    flags: dict[str, FlagValue] = {}
    """The launch flags of each of its servers, as the run file gives them."""
    sglang: str | None = None
    """The version it launches."""
    known_flags: frozenset[str] | None = None
    """All launch flags of that version; None when they could not be read."""


class HostReport(Struct, frozen=True, kw_only=True):
    """What a host knows now: the latest sample of each GPU, each server's state, what happened since last asked."""

    gpus: tuple[GpuSample, ...]
    servers: tuple[ServerState, ...]
    events: tuple[Event, ...] = ()


class ChatRequest(Struct, frozen=True, kw_only=True):
    """One turn to generate. `params` go into the request body as they are."""

    rid: str
    """Request id, the same length for all: SGLang aborts by prefix."""
    messages: tuple[Message, ...]
    params: dict[str, Json]
    tools: list[Json] | None = None


class Host(Protocol):
    """A machine that runs servers."""

    async def hello(self) -> HostInfo:
        """Open the host; raises `StartError` when it cannot serve at all."""
        ...

    async def start(self, server: str, flags: FlagSet | None = None) -> None:
        """Begin to launch a server and supervise it; returns at once, progress is in `poll`.

        `flags` are its launch flags from now on; None leaves them as they are. A server that was not stopped goes
        on, and takes them at its next launch.
        """
        ...

    async def stop(self, server: str, deadline_s: float) -> None:
        """End a server and all its processes; at most about `deadline_s` seconds of patience."""
        ...

    async def poll(self) -> HostReport:
        """What is known now; never waits for a GPU or a server."""
        ...

    async def complete(self, server: str, request: ChatRequest) -> Answer:
        """Generate one turn. Raises `ServerGone`, `ServerBusy` (the row is not at fault) or `RowRefused`."""
        ...

    def stream(self, server: str, request: ChatRequest) -> AsyncIterator[int | None]:
        """Generate one turn and tell of each piece as it comes: completion tokens so far, where the server says.

        Raises what `complete` raises.
        """
        ...

    async def close(self) -> None:
        """End every server and let go of everything."""
        ...
