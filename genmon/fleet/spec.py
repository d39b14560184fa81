"""How one server is launched."""

from __future__ import annotations

from pathlib import Path

from msgspec import Struct


class ServerSpec(Struct, frozen=True, kw_only=True):
    """How to launch one server. `command` and `flags` have no host and port: those are found at each launch."""

    host: str
    name: str
    gpu_index: int | None
    gpu_uuid: str | None
    command: tuple[str, ...]
    flags: tuple[str, ...] = ()
    """Launch flags as arguments, after `command`."""
    env: dict[str, str]
    port: int
    """The first port to try."""
    log_path: Path
    model_name: str
    api_key: str | None
    start_timeout_s: float
    hang_after_s: float
    max_restarts: int
    cap_requested: int | None
    simulated: bool = False
