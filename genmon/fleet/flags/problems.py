"""What a version would make of a flag set: flags it has not or calls otherwise, and sets that exclude each other.

Read in the released packages of 0.5.11 to 0.5.23 (`server_args.py`, `arg_groups/mamba_hook.py`), for the hybrid models
(linear attention beside full attention: Qwen3.5, 3.6, Next) that keep a mamba state for each request.
"""

from __future__ import annotations

from collections.abc import Iterator

from msgspec import Struct

from genmon.fleet.flags.families import Family, family
from genmon.fleet.flags.flagset import FlagSet, dotted, version_numbers
from genmon.fleet.flags.speculation import ALGORITHM, ALGORITHMS, DRAFT, NUMBERS
from genmon.fleet.flags.strategies import (
    GUARDED,
    LAZY_WITH_MTP,
    NEW_MAMBA,
    STRATEGY_NEW,
    STRATEGY_OLD,
    strategy,
)

_SPEC_CAP = 48
"""What SGLang sets max_running_requests to when speculation is on and it was not given."""
_RENAMED: tuple[tuple[str, str, tuple[int, ...], tuple[int, ...]], ...] = (
    (STRATEGY_OLD, STRATEGY_NEW, (0, 5, 14), (0, 5, 20)),
    ("cuda-graph-max-bs", "cuda-graph-max-bs-decode", (0, 5, 14), (0, 5, 20)),
)
"""(old name, new name, first version with the new one, first version without the old one)."""


class FlagProblem(Struct, frozen=True):
    """What a version would make of a flag set. A fatal one does not start."""

    fatal: bool
    sentence: str


def problems(flags: FlagSet, version: str) -> list[FlagProblem]:
    """What SGLang `version` would make of a flag set, as far as it is known (0.5.11 to 0.5.23).

    Rules for hybrid models are left out when the model is known to be none, and never fatal when it is unknown.
    """
    numbers, kind = version_numbers(version), family(str(flags.get("model-path", "")))
    found = [*_renamed(flags, version, numbers), *_speculation(flags, kind)]
    for each in _hybrid_rules(flags, version, numbers) if kind in (Family.HYBRID, Family.UNKNOWN) else ():
        sure = kind is Family.HYBRID
        found.append(each if sure else FlagProblem(False, f"if the model is a hybrid one: {each.sentence}"))
    return found


def _renamed(flags: FlagSet, version: str, numbers: tuple[int, ...]) -> Iterator[FlagProblem]:
    for old, new, since, gone in _RENAMED:
        if old in flags and numbers >= gone:
            yield FlagProblem(True, f"SGLang {version} has no --{old}: since {dotted(gone)} it is --{new}")
        if new in flags and numbers < since:
            yield FlagProblem(True, f"SGLang {version} has no --{new}: before {dotted(since)} it is --{old}")


def _speculation(flags: FlagSet, kind: Family) -> Iterator[FlagProblem]:
    if ALGORITHM not in flags:
        return
    name = str(flags[ALGORITHM]).upper()
    needs = ALGORITHMS.get(name)
    if "max-running-requests" not in flags:
        yield FlagProblem(False, f"with MTP on and no max-running-requests SGLang caps it at {_SPEC_CAP}")
    if needs is None:
        return  # a plug-in's, or one of a later version
    missing = [f"--{number}" for number in NUMBERS if number not in flags]
    if needs.numbers and missing and len(missing) < len(NUMBERS):
        yield FlagProblem(True, f"{', '.join(missing)} is missing: SGLang takes all three numbers or none")
    if needs.needs_draft and DRAFT not in flags:
        yield FlagProblem(True, f"{name} needs a draft model: set --{DRAFT}")
    if needs.needs_head and kind is Family.PLAIN and DRAFT not in flags:
        yield FlagProblem(False, f"{name} needs an MTP head, and SGLang is not known to load one for this model")
    if kind in needs.corrupts:
        yield FlagProblem(True, f"{name} is reported to corrupt the output of hybrid models (Qwen3.5, 3.6, Next)")


def _hybrid_rules(flags: FlagSet, version: str, numbers: tuple[int, ...]) -> Iterator[FlagProblem]:
    mtp, radix = ALGORITHM in flags, not flags.get("disable-radix-cache")
    asked, found = strategy(flags, numbers)
    old = numbers < NEW_MAMBA
    if old and asked == "extra_buffer_lazy":
        yield FlagProblem(True, f"SGLang {version} has no strategy extra_buffer_lazy: it came with 0.5.14")
    elif not radix and asked.startswith("extra_buffer"):
        if old:
            yield FlagProblem(True, f"{asked} and disable-radix-cache exclude each other: remove one")
        else:
            yield FlagProblem(False, f"{asked} has no effect beside disable-radix-cache: remove one")
    if radix and mtp:
        yield from _radix_with_mtp(version, numbers, asked, found)
    if radix and found == "no_buffer":
        if old and not mtp:
            sentence = "the radix cache with no_buffer switches the overlap scheduler off"
            yield FlagProblem(False, f"{sentence}: disable-radix-cache = true keeps it")
        if not old and not flags.get("disable-overlap-schedule"):
            sentence = f"on SGLang {version} no_buffer does not start with the overlap scheduler"
            yield FlagProblem(True, f"{sentence}: leave the strategy out, or set disable-radix-cache = true")
    if flags.get("enable-mixed-chunk"):
        sentence = "enable-mixed-chunk is reported to corrupt about 10 % of the answers of hybrid models: remove it"
        yield FlagProblem(False, sentence)


def _radix_with_mtp(version: str, numbers: tuple[int, ...], asked: str, found: str) -> Iterator[FlagProblem]:
    mend = "set disable-radix-cache = true"
    if found == "no_buffer" and numbers < NEW_MAMBA:
        why = "no_buffer" if asked == "no_buffer" else "no_buffer (its default)"
        yield FlagProblem(True, f"on SGLang {version} MTP does not start with the radix cache and {why}: {mend}")
    if found == "extra_buffer" and numbers < GUARDED:
        sentence = f"MTP with extra_buffer is reported to crash before 0.5.16 (this is {version})"
        yield FlagProblem(False, f"{sentence}: {mend} and leave the strategy out")
    if found == "extra_buffer_lazy" and NEW_MAMBA <= numbers < LAZY_WITH_MTP:
        yield FlagProblem(True, f"SGLang {version} takes no extra_buffer_lazy with MTP, 0.5.17 and later do: {mend}")
