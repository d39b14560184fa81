"""Flags of a running server changed: MTP on or off, flags set and unset, and the difference in words."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from genmon.config.rules import OWNED, PARALLEL
from genmon.config.schema import FlagValue, MtpConfig
from genmon.errors import Refused
from genmon.fleet.flags import FlagSet, mtp_off, mtp_on, problems

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


def words(flags: FlagSet) -> tuple[str, ...]:
    """Flags for a screen, one element a flag with its value; secrets are masked."""
    return tuple(_words(flags))


def diff(before: FlagSet, after: FlagSet) -> str:
    """What changed, in words: max-running-requests 16→64, +speculative-algorithm NEXTN, −disable-radix-cache."""
    parts = [f"−{name}" for name in before if name not in after]
    for name, value in after.items():
        if name not in before:
            parts.append("+" + " ".join(_words({name: value})))
        elif str(before[name]) != str(value):
            parts.append(f"{name} {_text(name, before[name])}→{_text(name, value)}")
    return ", ".join(parts)


def _words(flags: FlagSet) -> Iterator[str]:
    for name, value in flags.items():
        if value is not False:
            yield name if value is True else f"{name} {_text(name, value)}"


def _text(name: str, value: FlagValue) -> str:
    if name.endswith(("api-key", "password")):
        return "***"
    return " ".join(map(str, value)) if isinstance(value, list) else str(value)


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
