"""Where a run comes from: its key, the log it goes to, its code's revision, and what of it must stay secret."""

from __future__ import annotations

import os
import re
import secrets
import subprocess
import time
from pathlib import Path

import msgspec
from msgspec.structs import replace

from genmon.config.schema import RunConfig

_SECRET_NAME = re.compile(r"key|token|secret|passw|credential", re.IGNORECASE)
_SECRET_MIN = 8
"""A shorter value is struck out by its name only: it might be any word."""
_HIDDEN = "***"
_GIT_S = 5.0


def log_path(config: RunConfig | None = None) -> Path:
    """The log of a run; without one, the log of this user."""
    if config is not None and config.log.path is not None:
        return Path(config.log.path)
    data = os.environ.get("XDG_DATA_HOME") or str(Path.home() / ".local" / "share")
    return Path(data) / "genmon" / "genmon.duckdb"


def new_key(name: str) -> str:
    """A run's key: its name, when it began, and four random digits."""
    clean = re.sub(r"[^A-Za-z0-9._-]+", "-", name).strip(".-") or "run"
    return f"{clean}-{time.strftime('%Y%m%d-%H%M%S', time.gmtime())}-{secrets.token_hex(2)}"


def git_revision(directory: Path) -> str | None:
    """The commit that a directory is at, with -dirty when it has changes; None outside git, or without it."""
    command = ["git", "-C", str(directory), "describe", "--always", "--dirty", "--abbrev=40", "--exclude=*"]
    try:
        said = subprocess.run(command, capture_output=True, text=True, timeout=_GIT_S, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    return said.stdout.strip() or None


def secrets_of(config: RunConfig) -> frozenset[str]:
    """Values that must not reach a disk: what the environment and the run file call a key, a token, a password."""
    named = [*os.environ.items(), *config.servers.env.items()]
    hidden = [value for name, value in named if _SECRET_NAME.search(name)]
    hidden += [str(value) for name, value in config.servers.flags.items() if _is_secret(name)]
    found = {value for value in hidden if len(value) >= _SECRET_MIN}
    if config.servers.api_key_env:
        found.add(os.environ.get(config.servers.api_key_env, ""))
    return frozenset(found - {""})


def public_config(config: RunConfig) -> str:
    """The run file as JSON; of environment variables the names only, and no value of a flag that is a secret."""
    servers = replace(
        config.servers,
        env=dict.fromkeys(config.servers.env, _HIDDEN),
        flags={name: _HIDDEN if _is_secret(name) else value for name, value in config.servers.flags.items()},
        urls=[re.sub(r"//[^/@]*@", f"//{_HIDDEN}@", url) for url in config.servers.urls],
    )
    tells = replace(config.tells, webhook=_HIDDEN if config.tells.webhook else None)
    return msgspec.json.encode(replace(config, servers=servers, tells=tells)).decode()


def _is_secret(flag: str) -> bool:
    """Whether a flag's value is a secret, by the flag's name."""
    return flag.lstrip("-").replace("_", "-").endswith(("api-key", "password", "secret"))
