"""Speculative decoding as data: the algorithms with what each needs, and MTP on and off as functions of a flag set."""

from __future__ import annotations

import msgspec
from msgspec import Struct

from genmon.config.schema import FlagValue, MtpConfig
from genmon.errors import Refused
from genmon.fleet.flags.families import Family, family
from genmon.fleet.flags.flagset import FlagSet, version_numbers
from genmon.fleet.flags.strategies import STRATEGIES, goes_with_mtp

ALGORITHM, DRAFT = "speculative-algorithm", "speculative-draft-model-path"
NUMBERS = ("speculative-num-steps", "speculative-eagle-topk", "speculative-num-draft-tokens")
_PREFIX = "speculative-"


class Algorithm(Struct, frozen=True, kw_only=True):
    """One value of --speculative-algorithm."""

    needs_draft: bool = False
    """Whether it does not start without --speculative-draft-model-path."""
    needs_head: bool = False
    """Whether it drafts with the target's own MTP head, unless a draft model is named."""
    numbers: bool = False
    """Whether it takes all three of `NUMBERS` or none."""
    corrupts: frozenset[Family] = frozenset()
    """Families for which wrong output is reported."""


ALGORITHMS = {
    "NEXTN": Algorithm(needs_head=True, numbers=True),
    "EAGLE": Algorithm(needs_head=True, numbers=True),
    "EAGLE3": Algorithm(needs_draft=True, numbers=True),
    "STANDALONE": Algorithm(needs_draft=True, numbers=True),
    "DFLASH": Algorithm(needs_draft=True),
    "NGRAM": Algorithm(corrupts=frozenset({Family.HYBRID})),
}
"""What 0.5.11 to 0.5.23 have in common. NEXTN is another name of EAGLE, and servers report it as that."""


def mtp_flags(mtp: MtpConfig) -> dict[str, FlagValue]:
    """The flags that turn MTP on: all four or none, since SGLang fails on some of them alone."""
    if not mtp.enabled:
        return {}
    numbers = (mtp.steps, mtp.topk, mtp.draft_tokens)
    return {ALGORITHM: "NEXTN", **dict(zip(NUMBERS, numbers, strict=True))}


def mtp_off(flags: FlagSet) -> dict[str, FlagValue]:
    """The same flags without speculation. A radix cache that is off stays off: with it on and MTP off, SGLang before
    0.5.14 would also lose its overlap scheduler, and the two could not be compared.
    """
    return {name: value for name, value in flags.items() if not name.startswith(_PREFIX)}


def mtp_on(flags: FlagSet, version: str | None, mtp: MtpConfig | None = None) -> dict[str, FlagValue]:
    """The same flags with MTP, changed where that version would not start, or is known to crash, with it.

    That is the radix cache with a strategy that does not go with MTP there: it is switched off. When the version is
    unknown it is switched off too, which starts on all of them.

    Raises:
        Refused: the model has no MTP head.
    """
    changed, kind = mtp_off(flags), family(str(flags.get("model-path", "")))
    if kind is Family.PLAIN:
        model = flags.get("served-model-name", flags.get("model-path"))
        raise Refused(f"{model} has no MTP head: its config.json names an architecture for which SGLang loads none.")
    hybrid = kind in (Family.HYBRID, Family.UNKNOWN)
    if hybrid and not goes_with_mtp(changed, version_numbers(version) if version else ()):
        changed = {name: value for name, value in changed.items() if name not in STRATEGIES}
        changed["disable-radix-cache"] = True
    return changed | mtp_flags(msgspec.structs.replace(mtp or MtpConfig(), enabled=True))
