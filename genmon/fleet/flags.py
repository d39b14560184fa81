"""SGLang's launch flags as data: how a run's flags are composed, and what each version makes of them.

What a version makes of them was read in the released packages of 0.5.11 to 0.5.23 (`server_args.py`,
`arg_groups/mamba_hook.py`), for the hybrid models (linear attention beside full attention: Qwen3.5, 3.6, Next)
that keep a mamba state for each request.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path

import msgspec
from msgspec import Struct

from genmon.config.schema import FlagValue, MtpConfig, RunConfig

FlagSet = Mapping[str, FlagValue]
"""Flags by their names without the dashes, in the order they are passed."""

_STRATEGY_OLD, _STRATEGY_NEW = "mamba-scheduler-strategy", "mamba-radix-cache-strategy"
_SPEC_CAP = 48
"""What SGLang sets max_running_requests to when speculation is on and it was not given."""
_QUIET = ["/metrics", "/health", "/v1/loads", "/model_info", "/server_info"]
_NUMBERS = ("speculative-num-steps", "speculative-eagle-topk", "speculative-num-draft-tokens")
_RENAMED: tuple[tuple[str, str, tuple[int, ...], tuple[int, ...]], ...] = (
    (_STRATEGY_OLD, _STRATEGY_NEW, (0, 5, 14), (0, 5, 20)),
    ("cuda-graph-max-bs", "cuda-graph-max-bs-decode", (0, 5, 14), (0, 5, 20)),
)
"""(old name, new name, first version with the new one, first version without the old one)."""
_NEW_MAMBA = (0, 5, 14)
"""From here on auto is extra_buffer when the overlap scheduler is on; before, auto was no_buffer."""
_GUARDED = (0, 5, 16)
"""From here on MTP with extra_buffer has the guard against the None track index that crashed it."""
_LAZY_WITH_MTP = (0, 5, 17)
_HYBRID_NAME = re.compile(r"qwen3[._-]?(5|6|next)", re.IGNORECASE)
_HYBRID = ("Qwen3_5", "Qwen3Next")
_OTHER_HYBRIDS = (
    "BailingMoe",
    "FalconH1",
    "GraniteMoeHybrid",
    "InternS2",
    "Jet",
    "Kimi",
    "Lfm2",
    "MiniCPMV",
    "Nemotron",
)
"""Architectures, by how their names begin, that may keep a mamba state, and for which the rules were not read."""


class FlagProblem(Struct, frozen=True):
    """What a version would make of a flag set. A fatal one does not start."""

    fatal: bool
    sentence: str


class _ModelCard(Struct):
    architectures: list[str] = []


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
    numbers = (mtp.steps, mtp.topk, mtp.draft_tokens)
    return {"speculative-algorithm": "NEXTN", **dict(zip(_NUMBERS, numbers, strict=True))}


def mtp_off(flags: FlagSet) -> dict[str, FlagValue]:
    """The same flags without MTP. A radix cache that is off stays off: with it on and MTP off, SGLang before 0.5.14
    would also lose its overlap scheduler, and the two could not be compared.
    """
    return {name: value for name, value in flags.items() if not name.startswith("speculative-")}


def mtp_on(flags: FlagSet, version: str | None, mtp: MtpConfig | None = None) -> dict[str, FlagValue]:
    """The same flags with MTP, changed where that version would not start, or is known to crash, with it.

    That is the radix cache with a strategy that does not go with MTP there: it is switched off. When the version is
    unknown it is switched off too, which starts on all of them.
    """
    changed = mtp_off(flags)
    if not _goes_with_mtp(changed, version_numbers(version) if version else ()):
        changed = {name: value for name, value in changed.items() if name not in (_STRATEGY_OLD, _STRATEGY_NEW)}
        changed["disable-radix-cache"] = True
    return changed | mtp_flags(msgspec.structs.replace(mtp or MtpConfig(), enabled=True))


def compose(config: RunConfig) -> tuple[str, ...]:
    """A run's flags as launch arguments, as its file says: `problems` warns, nothing is changed behind its back."""
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


def cap_requested(flags: FlagSet) -> int | None:
    """The concurrency asked for; what is granted the server says."""
    asked = flags.get("max-running-requests")
    return asked if isinstance(asked, int) and not isinstance(asked, bool) else None


def problems(flags: FlagSet, version: str) -> list[FlagProblem]:
    """What SGLang `version` would make of a flag set, as far as it is known (0.5.11 to 0.5.23).

    Rules for hybrid models are left out when the model is known to be none, and never fatal when it is unknown.
    """
    numbers, hybrid = version_numbers(version), _is_hybrid(str(flags.get("model-path", "")))
    found = [*_renamed(flags, version, numbers), *_speculation(flags)]
    for each in _hybrid_rules(flags, version, numbers) if hybrid is not False else ():
        sure = hybrid is True
        found.append(each if sure else FlagProblem(False, f"if the model is a hybrid one: {each.sentence}"))
    return found


def _renamed(flags: FlagSet, version: str, numbers: tuple[int, ...]) -> Iterator[FlagProblem]:
    for old, new, since, gone in _RENAMED:
        if old in flags and numbers >= gone:
            yield FlagProblem(True, f"SGLang {version} has no --{old}: since {_dotted(gone)} it is --{new}")
        if new in flags and numbers < since:
            yield FlagProblem(True, f"SGLang {version} has no --{new}: before {_dotted(since)} it is --{old}")


def _speculation(flags: FlagSet) -> Iterator[FlagProblem]:
    if "speculative-algorithm" not in flags:
        return
    missing = [f"--{name}" for name in _NUMBERS if name not in flags]
    if missing and len(missing) < len(_NUMBERS):
        yield FlagProblem(True, f"{', '.join(missing)} is missing: SGLang takes all three numbers or none")
    if "max-running-requests" not in flags:
        yield FlagProblem(False, f"with MTP on and no max-running-requests SGLang caps it at {_SPEC_CAP}")


def _hybrid_rules(flags: FlagSet, version: str, numbers: tuple[int, ...]) -> Iterator[FlagProblem]:
    mtp, radix = "speculative-algorithm" in flags, not flags.get("disable-radix-cache")
    asked, strategy = _strategy(flags, numbers)
    old = numbers < _NEW_MAMBA
    if old and asked == "extra_buffer_lazy":
        yield FlagProblem(True, f"SGLang {version} has no strategy extra_buffer_lazy: it came with 0.5.14")
    elif not radix and asked.startswith("extra_buffer"):
        if old:
            yield FlagProblem(True, f"{asked} and disable-radix-cache exclude each other: remove one")
        else:
            yield FlagProblem(False, f"{asked} has no effect beside disable-radix-cache: remove one")
    if radix and mtp:
        yield from _radix_with_mtp(version, numbers, asked, strategy)
    if radix and strategy == "no_buffer":
        if old and not mtp:
            sentence = "the radix cache with no_buffer switches the overlap scheduler off"
            yield FlagProblem(False, f"{sentence}: disable-radix-cache = true keeps it")
        if not old and not flags.get("disable-overlap-schedule"):
            sentence = f"on SGLang {version} no_buffer does not start with the overlap scheduler"
            yield FlagProblem(True, f"{sentence}: leave the strategy out, or set disable-radix-cache = true")
    if flags.get("enable-mixed-chunk"):
        sentence = "enable-mixed-chunk is reported to corrupt about 10 % of the answers of hybrid models: remove it"
        yield FlagProblem(False, sentence)


def _radix_with_mtp(version: str, numbers: tuple[int, ...], asked: str, strategy: str) -> Iterator[FlagProblem]:
    mend = "set disable-radix-cache = true"
    if strategy == "no_buffer" and numbers < _NEW_MAMBA:
        why = "no_buffer" if asked == "no_buffer" else "no_buffer (its default)"
        yield FlagProblem(True, f"on SGLang {version} MTP does not start with the radix cache and {why}: {mend}")
    if strategy == "extra_buffer" and numbers < _GUARDED:
        sentence = f"MTP with extra_buffer is reported to crash before 0.5.16 (this is {version})"
        yield FlagProblem(False, f"{sentence}: {mend} and leave the strategy out")
    if strategy == "extra_buffer_lazy" and _NEW_MAMBA <= numbers < _LAZY_WITH_MTP:
        yield FlagProblem(True, f"SGLang {version} takes no extra_buffer_lazy with MTP, 0.5.17 and later do: {mend}")


def _goes_with_mtp(flags: FlagSet, numbers: tuple[int, ...]) -> bool:
    """Whether MTP can be added as the flags are. `numbers` is empty when the version is unknown."""
    if flags.get("disable-radix-cache") or _is_hybrid(str(flags.get("model-path", ""))) is False:
        return True
    _, strategy = _strategy(flags, numbers)
    first = {"extra_buffer": _GUARDED, "extra_buffer_lazy": _LAZY_WITH_MTP}.get(strategy)
    return first is not None and numbers >= first


def _strategy(flags: FlagSet, numbers: tuple[int, ...]) -> tuple[str, str]:
    """The mamba strategy as asked for, and what auto comes to."""
    asked = str(flags.get(_STRATEGY_NEW, flags.get(_STRATEGY_OLD, "auto")))
    if asked != "auto":
        return asked, asked
    buffered = numbers >= _NEW_MAMBA and not flags.get("disable-overlap-schedule")
    return asked, "extra_buffer" if buffered else "no_buffer"


def _is_hybrid(model: str) -> bool | None:
    """Whether a model keeps a mamba state: by its config.json, or by its name; None when neither says."""
    try:
        card = msgspec.json.decode((Path(model) / "config.json").read_bytes(), type=_ModelCard)
    except (OSError, msgspec.MsgspecError, UnicodeDecodeError):
        return True if _HYBRID_NAME.search(model) else None
    if any(name.startswith(_HYBRID) for name in card.architectures):
        return True
    return None if any(name.startswith(_OTHER_HYBRIDS) for name in card.architectures) else False


def _dotted(numbers: tuple[int, ...]) -> str:
    return ".".join(str(each) for each in numbers)
