"""What is wrong with a run file's keys and types, in words a user can act on."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from difflib import get_close_matches
from types import UnionType
from typing import Union, get_args, get_origin, get_type_hints

import msgspec
from msgspec import Struct

from genmon.config.lines import KeyPath
from genmon.config.rules import Problem
from genmon.config.schema import RunConfig

_TYPE_WORDS = {
    "int": "a whole number",
    "float": "a number",
    "str": "text",
    "bool": "true or false",
    "array": "a list",
    "object": "a table",
    "null": "nothing",
}


def sections(kind: type[Struct]) -> dict[str, type[Struct] | None]:
    """Each key of a section, with the struct behind it if it is a section itself."""
    return {name: _struct(hint) for name, hint in _hints(kind).items()}


def wrong_key(table: Mapping[str, object], kind: type[Struct] = RunConfig, path: KeyPath = ()) -> Problem | None:
    """The first key that is none, with the nearest that is: here, or in another section."""
    known = sections(kind)
    for key, value in table.items():
        if not _is_text(key):
            return _not_text(path, key)
        here = (*path, key)
        if key not in known:
            return Problem(here, f"{'.'.join(here)} is not a key{_nearest(key, path)}")
        if not isinstance(value, dict):
            continue
        inner = known[key]
        if inner is not None:
            found = wrong_key(value, inner, here)
        else:
            found = next((_not_text(here, each) for each in value if not _is_text(each)), None)
        if found is not None:
            return found
    return None


def wrong_type(error: msgspec.ValidationError, table: Mapping[str, object]) -> Problem:
    """What msgspec found, with the field it found it in."""
    message = str(error)
    field = _field(message)
    hint, value = _look_up(field, table)
    if get_origin(hint) is dict and isinstance(value, dict):
        field = (*field, _first_wrong(value, get_args(hint)[1]))
    name = ".".join(field)
    if "missing required field" in message:
        return Problem(field, _missing(field))
    typed = re.match(r"Expected `([^`]+)`(?:, got `(\w+)`)?", message)
    if typed and typed[2]:
        got = "a fraction" if typed[2] == "float" else _TYPE_WORDS.get(typed[2], f"a {typed[2]}")
        return Problem(field, f"{name} must be {_wanted(typed[1])}, not {got}")
    invalid = re.match(r"Invalid enum value '?([^']*)'?", message)
    if invalid:
        return Problem(field, f"{name} cannot be {invalid[1]!r}{_choices(hint)}")
    return Problem(field, f"{name}: {message.split(' - at')[0]}")


def _wanted(expected: str) -> str:
    """msgspec's "int | float | null" in words."""
    kinds = [kind.strip() for kind in expected.split("|")]
    words = [
        _TYPE_WORDS.get(kind, kind) for kind in kinds if kind != "null" and not (kind == "int" and "float" in kinds)
    ]
    return " or ".join([", ".join(words[:-1]), words[-1]]) if len(words) > 1 else words[0]


def _is_text(key: object) -> bool:
    """YAML has keys that are numbers, dates, true and false."""
    return isinstance(key, str)


def _not_text(path: KeyPath, key: object) -> Problem:
    where = f"{'.'.join(path)}: " if path else ""
    return Problem(path, f"{where}the key {key!r} is not text: write it in quotes")


def _nearest(key: str, path: KeyPath) -> str:
    """The rest of "x is not a key": the key that was meant, or all there are."""
    everywhere = list(_all_keys(RunConfig, ()))
    here = [keys[-1] for keys in everywhere if keys[:-1] == path]
    name = key.replace("-", "_")
    if name in here:
        return f"; did you mean {name}?"
    elsewhere = [keys[:-1] for keys in everywhere if keys[-1] == name]
    if elsewhere:
        places = (f"to [{'.'.join(each)}]" if each else "above the first section" for each in elsewhere)
        return f" there; it belongs {' or '.join(places)}"
    if close := get_close_matches(name, here, 1, 0.6):
        return f"; did you mean {close[0]}?"
    if close := get_close_matches(name, [keys[-1] for keys in everywhere], 1, 0.75):
        meant = next(keys for keys in everywhere if keys[-1] == close[0])
        return f"; did you mean {'.'.join(meant)}?"
    listed = f"; the keys there are {', '.join(here)}"
    return f"{listed} (SGLang's launch flags go to [servers.flags])" if path == ("servers",) else listed


def _all_keys(kind: type[Struct], path: KeyPath) -> Iterator[KeyPath]:
    for name, inner in sections(kind).items():
        yield (*path, name)
        if inner is not None:
            yield from _all_keys(inner, (*path, name))


def _field(message: str) -> KeyPath:
    """The path in msgspec's "… - at `$.job.shard_size`"; for a missing field, the section and the field."""
    at = re.search(r"at `\$\.?([^`]*)`", message)
    path = tuple(part for part in re.split(r"\.|\[.*?\]", at[1]) if part) if at else ()
    missing = re.search(r"missing required field `(\w+)`", message)
    return (*path, missing[1]) if missing else path


def _missing(field: KeyPath) -> str:
    hint, _ = _look_up(field, {})
    inner = _struct(hint)
    if inner is None:
        return f"{'.'.join(field)} is missing: add it to [{'.'.join(field[:-1])}]"
    needed = [each.name for each in msgspec.structs.fields(inner) if each.required]
    return f"the section [{'.'.join(field)}] is missing: it must give {' and '.join(needed)}"


def _look_up(field: KeyPath, table: Mapping[str, object]) -> tuple[object, object]:
    """The type a field should have, and the value it has."""
    hint: object = RunConfig
    value: object = table
    for part in field:
        struct = _struct(hint)
        hint = _hints(struct).get(part) if struct else None
        value = value.get(part) if isinstance(value, Mapping) else None
    return hint, value


def _hints(kind: type[Struct]) -> dict[str, object]:
    return {name: hint for name, hint in get_type_hints(kind).items() if name in kind.__struct_fields__}


def _options(hint: object) -> tuple[object, ...]:
    return get_args(hint) if get_origin(hint) in (UnionType, Union) else (hint,)


def _struct(hint: object) -> type[Struct] | None:
    return next((each for each in _options(hint) if isinstance(each, type) and issubclass(each, Struct)), None)


def _first_wrong(values: Mapping[str, object], kind: object) -> str:
    """The first key whose value is not of a kind."""
    for key, value in values.items():
        try:
            msgspec.convert(value, kind)
        except msgspec.ValidationError:
            return key
    return next(iter(values))


def _choices(hint: object) -> str:
    texts: list[str] = []
    for option in _options(hint):
        if get_origin(option) is list:
            texts.append("a list")
        elif option is int:
            texts.append("a whole number")
        else:
            texts += [repr(each) for each in get_args(option) if isinstance(each, str)]
    return f"; it can be {' or '.join(texts)}" if texts else ""
