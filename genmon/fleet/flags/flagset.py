"""A flag set: launch flags by name, as arguments, as words, and what differs between two."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from genmon.config.schema import FlagValue

FlagSet = Mapping[str, FlagValue]
"""Flags by their names without the dashes, in the order they are passed."""
_SECRET = ("api-key", "password")


def version_numbers(version: str) -> tuple[int, ...]:
    """0.5.15.post1 → (0, 5, 15, 1)."""
    return tuple(int(part) for part in re.findall(r"\d+", version))


def dotted(numbers: tuple[int, ...]) -> str:
    """(0, 5, 15) → 0.5.15."""
    return ".".join(str(each) for each in numbers)


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
    if name.endswith(_SECRET):
        return "***"
    return " ".join(map(str, value)) if isinstance(value, list) else str(value)
