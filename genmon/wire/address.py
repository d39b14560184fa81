"""Where engines listen: `engine.json` in the job directory, and a list of this user's engines on this machine.

The socket lies in the job directory, where it lasts as long as the engine: `$XDG_RUNTIME_DIR` is emptied when the
user's last login ends, which is just when an engine must stay within reach. A path too long for a socket (107
bytes on Linux), or a file system that has none, gets one under /tmp instead.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import socket
import stat
from pathlib import Path

import msgspec
from msgspec import Struct

from genmon.errors import StartError

_PATH_MAX_B = 107
_FILE = "engine.json"


class Address(Struct, frozen=True, kw_only=True):
    """One engine: whom to talk to."""

    run: str
    directory: str
    socket: str
    pid: int
    host: str
    started_at: float
    genmon: str


def publish(address: Address) -> None:
    """Write an engine's address where views look for it. Raises `OSError` if the job directory cannot be written."""
    body = msgspec.json.format(msgspec.json.encode(address))
    _write(Path(address.directory) / _FILE, body)
    with contextlib.suppress(OSError):  # a home that is full or read-only costs only `genmon attach` without a name
        _engines().mkdir(parents=True, exist_ok=True)
        _write(_engines() / f"{_key(Path(address.directory))}.json", body)


def withdraw(address: Address) -> None:
    """Take an engine's address back."""
    for path in (
        Path(address.directory) / _FILE,
        _engines() / f"{_key(Path(address.directory))}.json",
        Path(address.socket),
    ):
        with contextlib.suppress(OSError):
            path.unlink(missing_ok=True)


def find(directory: Path) -> Address | None:
    """The engine that runs a job directory, or None."""
    address = _read(directory / _FILE)
    return address if address is not None and _answers(address) else None


def running() -> tuple[Address, ...]:
    """This user's engines on this machine, the one that started last first."""
    found = []
    for path in _engines().glob("*.json"):
        address = _read(path)
        if address is None or address.host != socket.gethostname():
            continue
        if _answers(address):
            found.append(address)
        elif not Path(f"/proc/{address.pid}").exists():
            with contextlib.suppress(OSError):
                path.unlink(missing_ok=True)
    return tuple(sorted(found, key=lambda address: -address.started_at))


def the_one(directory: Path | None, command: str) -> Path:
    """The job directory that is meant: the one named, or that of the only run on this machine.

    Raises:
        StartError: none is named, and not exactly one goes on; `command` is what to type.
    """
    if directory is not None:
        return directory
    found = running()
    if len(found) == 1:
        return Path(found[0].directory)
    if not found:
        raise StartError("No run of yours goes on here: start one with genmon RUN.toml.")
    there = "\n".join(f"  {command} {address.directory}" for address in found)
    raise StartError(f"{len(found)} runs go on here; name one:\n{there}")


def listen(directory: Path) -> tuple[socket.socket, Path]:
    """A bound socket that only this user can connect to. The caller holds the job's lock, so an old one is dead.

    Raises:
        StartError: no socket can be made, in the job directory or under /tmp.
    """
    trouble = "its path is too long"
    path = directory / "engine.sock"
    if len(os.fsencode(path)) <= _PATH_MAX_B:
        try:
            return _bind(path), path
        except OSError as error:
            trouble = str(error)
    fallback = Path(f"/tmp/genmon-{os.getuid()}")
    try:
        fallback.mkdir(mode=0o700, exist_ok=True)
        found = fallback.lstat()
        if found.st_uid != os.getuid() or not stat.S_ISDIR(found.st_mode) or found.st_mode & 0o077:
            raise StartError(f"{fallback} is not a private directory of yours: remove it, or ask whose it is.")
        path = fallback / f"{_key(directory)}.sock"
        return _bind(path), path
    except OSError as error:
        raise StartError(
            f"No socket for dashboards can be made in {directory} ({trouble}) or {path}: {error}"
        ) from None


def _bind(path: Path) -> socket.socket:
    path.unlink(missing_ok=True)
    bound = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    before = os.umask(0o177)
    try:
        bound.bind(str(path))
    except OSError:
        bound.close()
        raise
    finally:
        os.umask(before)
    return bound


def _answers(address: Address) -> bool:
    if address.host != socket.gethostname():
        return False
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(2.0)
        try:
            probe.connect(address.socket)
        except OSError:
            return False
    return True


def _read(path: Path) -> Address | None:
    try:
        return msgspec.json.decode(path.read_bytes(), type=Address)
    except (OSError, msgspec.DecodeError):
        return None


def _write(path: Path, body: bytes) -> None:
    beside = path.with_suffix(".new")
    beside.write_bytes(body)
    beside.replace(path)


def _engines() -> Path:
    state = os.environ.get("XDG_STATE_HOME") or "~/.local/state"
    return Path(state).expanduser() / "genmon" / "engines"


def _key(directory: Path) -> str:
    return hashlib.sha256(os.fsencode(directory.resolve())).hexdigest()[:16]
