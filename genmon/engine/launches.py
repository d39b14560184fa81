"""launches.jsonl: each launch's flags, by the name that sidecar rows call it."""

from __future__ import annotations

import time
from pathlib import Path

import msgspec
from msgspec import Struct

from genmon.history import flags_changed
from genmon.state import ServerState


class _Launch(Struct, frozen=True):
    launch: str
    at: float
    argv: tuple[str, ...]
    gpu_uuid: str | None = None
    simulated: bool = False


class Launches:
    """The record of one job directory."""

    def __init__(self, directory: Path) -> None:
        """`directory` is the job directory."""
        self._path = directory / "launches.jsonl"
        self._written: dict[str, int] = {}
        self._last = _read(self._path)

    def record(self, server: ServerState) -> None:
        """Note a launch that was not noted yet.

        Raises:
            OSError: it could not be written.
        """
        if server.external or self._written.get(server.name) == server.launches or not server.argv:
            return
        self._written[server.name] = server.launches
        launch = _Launch(
            f"{server.name}#{server.launches}", time.time(), server.argv, server.gpu_uuid, server.simulated
        )
        with self._path.open("ab") as file:
            file.write(msgspec.json.encode(launch) + b"\n")

    def changed_since(self, servers: tuple[str, ...], flags: tuple[str, ...]) -> str | None:
        """What is not as it was when the job last ran, in a sentence: flags changed by hand do not outlive an engine.

        `flags` are the run file's, as arguments.
        """
        back: dict[str, list[str]] = {}
        for server in servers:
            if (last := self._last.get(server)) is not None and (words := flags_changed(_own(last), flags)):
                back.setdefault(words, []).append(server)
        if not back:
            return None
        parts = [f"{', '.join(names)}: {words}" for words, names in back.items()]
        return f"servers start with the flags of the run file; changed since their last launch: {'; '.join(parts)}"


def _own(argv: tuple[str, ...]) -> tuple[str, ...]:
    """A launch's arguments without those that every launch finds anew: host, ports and key come last."""
    return argv[: argv.index("--host")] if "--host" in argv else argv


def _read(path: Path) -> dict[str, tuple[str, ...]]:
    """The last launch's arguments of each server; a torn line of a killed engine is left out."""
    last: dict[str, tuple[str, ...]] = {}
    try:
        lines = path.read_bytes().splitlines()
    except OSError:
        return last
    for line in lines:
        try:
            launch = msgspec.json.decode(line, type=_Launch)
        except msgspec.MsgspecError:
            continue
        last[launch.launch.partition("#")[0]] = launch.argv
    return last
