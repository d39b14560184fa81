"""The rules as a table: `rules.toml` beside this module, extended or overruled by a file of the user's.

A rule is a table of the file, by its id. The order is the order of priority: the first cause comes first.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable
from importlib.resources import files
from pathlib import Path
from typing import Literal

import msgspec
from msgspec import Struct

from genmon.config.lines import toml_lines
from genmon.errors import ConfigError
from genmon.state import TellLevel
from genmon.tells.inputs import JOB, SERVER, Input
from genmon.tells.signature import Signature, SignatureError


class Give(Struct, frozen=True, forbid_unknown_fields=True):
    """The command behind a key: a restart, with MTP on or off and flags set and unset, or the rows in flight."""

    mtp: bool | None = None
    set: dict[str, str | bool | int | float] = {}
    unset: list[str] = []
    restart: bool = False
    concurrency: int | Literal["auto"] | None = None
    """Rows in flight a server; "auto" lets genmon find the best."""


class Rule(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One row of the table."""

    level: TellLevel
    looks_for: str
    """What it looks for, in words."""
    when: str
    """Its signature (signature.py)."""
    says: str
    """The sentence; {power_w} and the like are filled in, {who} is the server and its GPU."""
    mend: str
    wrong_if: str
    """What would prove it wrong."""
    shows: list[str] = []
    """Inputs shown as its evidence, beside those of the sentence."""
    scope: Literal["server", "job"] = "server"
    give: Give | None = None
    hides: list[str] = []
    """Rules whose tells are consequences of this one: not shown beside it."""
    until: str | None = None
    """When a tell is over; default: when its signature is not true any more."""
    hold_s: float = 10.0
    """How long the signature must hold."""
    clear_s: float = 20.0
    """How long it must be over."""
    window_s: float = 10.0
    """What bare inputs are medians over."""
    always: bool = False
    """Judged in every phase of a server, and in the first minute after a launch."""
    off: bool = False
    """Not looked for."""


class Row(Struct, frozen=True):
    """A rule with its expressions parsed."""

    id: str
    rule: Rule
    when: Signature
    until: Signature | None
    filled: tuple[str, ...]
    """Inputs that its words name."""

    @property
    def inputs(self) -> dict[str, Input]:
        """The inputs there are for it."""
        return SERVER if self.rule.scope == "server" else JOB


Refuse = Callable[..., ConfigError]
_PLACE = re.compile(r"\{(\w+)\}")
_WORDS = ("says", "mend", "wrong_if")


def shipped() -> tuple[Row, ...]:
    """genmon's own rules."""
    return _rows(files("genmon.tells").joinpath("rules.toml").read_text(), "genmon's own rules.toml")


def rules(own: Path | None) -> tuple[Row, ...]:
    """All rules: the user's new ones first, then genmon's; a user's rule of a known id takes its place.

    Raises:
        ConfigError: the file cannot be read, or a rule in it is wrong; names file and line.
    """
    theirs = shipped()
    if own is None:
        return tuple(row for row in theirs if not row.rule.off)
    try:
        text = own.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{own} (tells.rules) cannot be read: {getattr(error, 'strerror', error)}.") from error
    mine = {row.id: row for row in _rows(text, str(own), known={row.id for row in theirs})}
    ids = {row.id for row in theirs}
    merged = [*(row for id, row in mine.items() if id not in ids), *(mine.get(row.id, row) for row in theirs)]
    return tuple(row for row in merged if not row.rule.off)


def _rows(text: str, where: str, known: set[str] | None = None) -> tuple[Row, ...]:
    lines = toml_lines(text)

    def refuse(words: str, *path: str) -> ConfigError:
        line = next((lines[path[:end]] for end in range(len(path), 0, -1) if path[:end] in lines), None)
        return ConfigError(f"{where}{f', line {line}' if line else ''}: {words}.")

    try:
        table = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{where}: not TOML: {error}.") from error
    rows = []
    for id, fields in table.items():
        if not isinstance(fields, dict):
            raise refuse(f"{id} is no rule: a rule is a table, [{id}]", id)
        if fields.get("off") is True and id in (known or ()):
            fields = {**dict.fromkeys((*_WORDS, "looks_for"), ""), "when": "False", "level": "look", **fields}
        try:
            rule = msgspec.convert(fields, Rule)
        except msgspec.ValidationError as error:
            words, _, at = str(error).partition(" - at `$")
            field = re.findall(r"\w+", at)[:1] or re.findall(r"unknown field `(\w+)`", words)
            raise refuse(f"rule {id}: {words[:1].lower()}{words[1:]}", id, *field) from error
        rows.append(_row(id, rule, refuse))
    known = {*(known or ()), *table, "*"}
    for row in rows:
        if strange := set(row.rule.hides) - known:
            raise refuse(f"rule {row.id} hides {min(strange)}, and there is no such rule", row.id, "hides")
    return tuple(rows)


def _row(id: str, rule: Rule, refuse: Refuse) -> Row:
    inputs = SERVER if rule.scope == "server" else JOB
    try:
        when = Signature(rule.when, inputs, rule.window_s)
    except SignatureError as error:
        raise refuse(f"rule {id}: {error}", id, "when") from error
    try:
        until = Signature(rule.until, inputs, rule.window_s) if rule.until is not None else None
    except SignatureError as error:
        raise refuse(f"rule {id}: {error}", id, "until") from error
    filled = []
    for field in _WORDS:
        for name in _PLACE.findall(getattr(rule, field)):
            if name not in inputs and name != "who":
                raise refuse(f"rule {id}: there is no input {name} to fill in", id, field)
            filled.append(name)
    for name in rule.shows:
        if name not in inputs:
            raise refuse(f"rule {id}: there is no input {name} to show", id, "shows")
    return Row(id, rule, when, until, tuple(dict.fromkeys(name for name in filled if name != "who")))
