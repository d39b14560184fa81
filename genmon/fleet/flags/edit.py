"""Flags of a running server changed: MTP on or off, flags unset and set, and why the result would not start."""

from __future__ import annotations

import re
from collections.abc import Mapping
from difflib import get_close_matches

from genmon.config.rules import OWNED, PARALLEL
from genmon.config.schema import FlagValue, MtpConfig
from genmon.errors import Refused
from genmon.fleet.flags.flagset import FlagSet
from genmon.fleet.flags.problems import problems
from genmon.fleet.flags.speculation import mtp_off, mtp_on

_SPECULATION = "speculative-"
_NUMBER = re.compile(r"-?\d+(\.\d+)?")


def edit(
    flags: FlagSet,
    *,
    mtp: bool | None = None,
    unset: tuple[str, ...] = (),
    set: Mapping[str, str | bool] | None = None,
    version: str | None = None,
    mtp_config: MtpConfig | None = None,
) -> dict[str, FlagValue]:
    """A flag set with MTP switched first, then flags taken out, then flags put in.

    Raises:
        Refused: a flag is genmon's own, or one to take out is not there.
    """
    changed = dict(flags)
    if mtp is not None:
        changed = mtp_on(changed, version, mtp_config) if mtp else mtp_off(changed)
    for name in map(_name, unset):
        if name not in changed:
            raise Refused(f"--{name} is not among its launch flags, so it cannot be taken out.")
        del changed[name]
    for name, value in (set or {}).items():
        changed[_name(name)] = _value(value)
    return changed


def forbidden(flags: FlagSet, version: str | None, known: frozenset[str] | None) -> str | None:
    """Why a flag set would not start, in a sentence without its end; None when nothing speaks against it."""
    for each in problems(flags, version) if version else ():
        if each.fatal:
            return each.sentence
    for name in flags:
        if known is not None and name not in known:
            near = get_close_matches(name, known, n=1)
            return f"SGLang {version} has no flag --{name}" + (f"; did you mean --{near[0]}?" if near else "")
    return None


def _name(flag: str) -> str:
    name = flag.lstrip("-").replace("_", "-")
    if name in OWNED and not name.startswith(_SPECULATION):
        raise Refused(f"--{name} cannot be changed while the job runs: {OWNED[name]}.")
    if name in PARALLEL:
        raise Refused(f"--{name} cannot be changed: genmon runs one server a GPU.")
    return name


def _value(value: str | bool) -> FlagValue:
    """A number as a number, several as a list: as a run file has them."""
    if not isinstance(value, str):
        return value
    parts = value.split()
    if not parts or not all(_NUMBER.fullmatch(part) for part in parts):
        return value
    numbers: list[str | int | float] = [float(part) if "." in part else int(part) for part in parts]
    return numbers if len(numbers) > 1 else numbers[0]
