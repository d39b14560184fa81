"""One line of the report, and the words its rooms share."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct


class Finding(Struct, frozen=True):
    """One line of the report."""

    level: Literal["ok", "warn", "FAIL"]
    what: str
    sentence: str


def ok(what: str, sentence: str) -> Finding:
    """Nothing stands in the way."""
    return Finding("ok", what, sentence)


def warn(what: str, sentence: str) -> Finding:
    """It could run, and a person should look at this."""
    return Finding("warn", what, sentence)


def fail(what: str, sentence: str) -> Finding:
    """It could not run."""
    return Finding("FAIL", what, sentence)


def plural(count: int, noun: str) -> str:
    """A count with its noun."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"
