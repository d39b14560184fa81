"""Flags of a running server changed: MTP on or off, flags unset and set, and why the result would not start."""

from __future__ import annotations

from collections.abc import Mapping

from genmon.config.rules import OWNED, PARALLEL
from genmon.config.schema import FlagValue, MtpConfig
from genmon.errors import Refused
from genmon.fleet.flags.flagset import FlagSet
from genmon.fleet.flags.problems import problems
from genmon.fleet.flags.speculation import mtp_off, mtp_on

_SPECULATION = "speculative-"


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
    for name in flags:
        if known is not None and name not in known:
            return f"SGLang {version} has no flag --{name}"
    fatal = [each.sentence for each in problems(flags, version) if each.fatal] if version else []
    return fatal[0] if fatal else None


def _name(flag: str) -> str:
    name = flag.lstrip("-").replace("_", "-")
    if name in OWNED and not name.startswith(_SPECULATION):
        raise Refused(f"--{name} cannot be changed while the job runs: {OWNED[name]}.")
    if name in PARALLEL:
        raise Refused(f"--{name} cannot be changed: genmon runs one server a GPU.")
    return name


def _value(value: str | bool) -> FlagValue:
    """A number as a number, so that it compares with the run file's."""
    if isinstance(value, str) and value.lstrip("-").isdigit():
        return int(value)
    return value
