"""SGLang's launch flags as data: how a run's flags are composed, and what each version makes of them."""

from __future__ import annotations

import re
from collections.abc import Mapping

from msgspec import Struct

from genmon.config.schema import FlagValue, MtpConfig, RunConfig

FlagSet = Mapping[str, FlagValue]

_STRATEGY_OLD, _STRATEGY_NEW = "mamba-scheduler-strategy", "mamba-radix-cache-strategy"
_SPEC_CAP = 48
"""What SGLang sets max_running_requests to when speculation is on and it was not given."""
_QUIET = ["/metrics", "/health", "/v1/loads", "/model_info", "/server_info"]
_RENAMED: tuple[tuple[str, str, tuple[int, ...], tuple[int, ...]], ...] = (
    (_STRATEGY_OLD, _STRATEGY_NEW, (0, 5, 14), (0, 5, 20)),
    ("cuda-graph-max-bs", "cuda-graph-max-bs-decode", (0, 5, 20), (0, 5, 20)),
)
"""(old name, new name, first version with the new one, first version without the old one)."""


class FlagProblem(Struct, frozen=True):
    """What a version would make of a flag set. A fatal one does not start."""

    fatal: bool
    sentence: str


def version_numbers(version: str) -> tuple[int, ...]:
    """0.5.15.post1 → (0, 5, 15, 1)."""
    return tuple(int(part) for part in re.findall(r"\d+", version))


def run_flags(config: RunConfig) -> dict[str, FlagValue]:
    """All flags of a run but host and ports: the run file's, MTP's, and those genmon needs."""
    flags: dict[str, FlagValue] = {"model-path": config.model.path, "served-model-name": config.model.name}
    flags |= {"enable-metrics": True, "uvicorn-access-log-exclude-prefixes": list(_QUIET)}
    flags |= config.servers.flags
    return flags | mtp_flags(config.servers.mtp)


def mtp_flags(mtp: MtpConfig) -> dict[str, FlagValue]:
    """The flags that turn MTP on: all four or none, since SGLang fails on some of them alone."""
    if not mtp.enabled:
        return {}
    return {
        "speculative-algorithm": "NEXTN",
        "speculative-num-steps": mtp.steps,
        "speculative-eagle-topk": mtp.topk,
        "speculative-num-draft-tokens": mtp.draft_tokens,
    }


def compose(config: RunConfig) -> tuple[str, ...]:
    """The flags as launch arguments."""
    return argv(run_flags(config))


def argv(flags: FlagSet) -> tuple[str, ...]:
    """A flag set as arguments: true is the bare flag, false leaves it out, a list follows its flag."""
    arguments: list[str] = []
    for name, value in flags.items():
        if value is False:
            continue
        arguments.append(f"--{name}")
        if isinstance(value, list):
            arguments += [str(each) for each in value]
        elif value is not True:
            arguments.append(str(value))
    return tuple(arguments)


def cap_requested(config: RunConfig) -> int | None:
    """The concurrency asked for; what is granted the server says."""
    asked = config.servers.flags.get("max-running-requests")
    return asked if isinstance(asked, int) and not isinstance(asked, bool) else None


def problems(config: RunConfig, version: str) -> list[FlagProblem]:
    """What SGLang `version` would make of a run's flags, as far as it is known (0.5.11 to 0.5.23)."""
    flags, numbers, mtp = config.servers.flags, version_numbers(version), config.servers.mtp.enabled
    found = [
        FlagProblem(True, f"SGLang {version} has no --{old}: since {_dotted(gone)} it is --{new}")
        for old, new, _, gone in _RENAMED
        if old in flags and numbers >= gone
    ]
    found += [
        FlagProblem(True, f"SGLang {version} has no --{new}: before {_dotted(since)} it is --{old}")
        for old, new, since, _ in _RENAMED
        if new in flags and numbers < since
    ]
    strategy = flags.get(_STRATEGY_NEW, flags.get(_STRATEGY_OLD, "auto"))
    default = "no_buffer" if numbers < (0, 5, 14) else "extra_buffer"
    effective = default if strategy == "auto" else strategy
    no_radix = bool(flags.get("disable-radix-cache"))
    if no_radix and str(strategy).startswith("extra_buffer"):
        found.append(FlagProblem(True, f"{strategy} and disable-radix-cache exclude each other: remove one"))
    if mtp and not no_radix and effective == "no_buffer":
        found.append(
            FlagProblem(
                True,
                f"on SGLang {version} MTP does not start with the radix cache and no_buffer (its default): "
                "set disable-radix-cache = true",
            )
        )
    if mtp and effective == "extra_buffer" and not no_radix and numbers < (0, 5, 16):
        found.append(
            FlagProblem(
                False,
                f"MTP with extra_buffer is reported to crash before 0.5.16 (this is {version}): "
                "disable-radix-cache = true avoids it",
            )
        )
    if not mtp and not no_radix and effective == "no_buffer":
        sentence = (
            "the radix cache with no_buffer switches the overlap scheduler off: disable-radix-cache = true keeps it"
        )
        found.append(FlagProblem(False, sentence))
    if mtp and cap_requested(config) is None:
        found.append(FlagProblem(False, f"with MTP on and no max-running-requests SGLang caps it at {_SPEC_CAP}"))
    if flags.get("enable-mixed-chunk"):
        sentence = "enable-mixed-chunk is reported to corrupt about 10 % of the answers of hybrid models: remove it"
        found.append(FlagProblem(False, sentence))
    return found


def _dotted(numbers: tuple[int, ...]) -> str:
    return ".".join(str(each) for each in numbers)
