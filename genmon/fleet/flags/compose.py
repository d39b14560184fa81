"""A run's launch flags: the run file's, MTP's, and those genmon needs."""

from __future__ import annotations

from genmon.config.schema import FlagValue, RunConfig
from genmon.fleet.flags.flagset import FlagSet, argv
from genmon.fleet.flags.speculation import mtp_flags

_QUIET = ["/metrics", "/health", "/v1/loads", "/model_info", "/server_info"]


def run_flags(config: RunConfig) -> dict[str, FlagValue]:
    """All flags of a run but host and ports."""
    flags: dict[str, FlagValue] = {"model-path": config.model.path, "served-model-name": config.model.name}
    flags |= {"enable-metrics": True, "uvicorn-access-log-exclude-prefixes": list(_QUIET)}
    flags |= config.servers.flags
    return flags | mtp_flags(config.servers.mtp)


def compose(config: RunConfig) -> tuple[str, ...]:
    """A run's flags as launch arguments, as its file says: `problems` warns, nothing is changed behind its back."""
    return argv(run_flags(config))


def cap_requested(flags: FlagSet) -> int | None:
    """The concurrency asked for; what is granted the server says."""
    asked = flags.get("max-running-requests")
    return asked if isinstance(asked, int) and not isinstance(asked, bool) else None
