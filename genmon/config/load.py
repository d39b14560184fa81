"""The run file to a `RunConfig`; every error is one sentence that names file, line and field."""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Callable, Mapping, Sequence
from difflib import get_close_matches
from pathlib import Path
from types import UnionType
from typing import Any, get_args, get_origin, get_type_hints

import msgspec
import yaml
from msgspec import Struct

from genmon.config.lines import line_of, toml_lines, yaml_lines
from genmon.config.overrides import Override
from genmon.config.rules import problem
from genmon.config.schema import RunConfig
from genmon.errors import ConfigError

Table = dict[str, object]
_TYPE_WORDS = {
    "int": "a whole number",
    "float": "a number",
    "str": "text",
    "bool": "true or false",
    "array": "a list",
    "object": "a table",
    "null": "nothing",
}


def load(path: Path, overrides: Sequence[Override] = ()) -> RunConfig:
    """Read a run file, TOML or YAML by its ending, and lay command-line overrides over it.

    Relative prompts, output and an existing model folder are relative to the run file; `~` and `$NAME` expand.

    Raises:
        ConfigError: it cannot be read, or something in it is wrong.
    """
    text, is_yaml = _read(path)
    try:
        table = yaml.safe_load(text) if is_yaml else tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{path} is not TOML: {error}.") from error
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = f", line {mark.line + 1}" if mark else ""
        raise ConfigError(f"{path}{where}: not YAML: {getattr(error, 'problem', None) or error}.") from error
    if not isinstance(table, dict):
        raise ConfigError(f"{path} is empty: genmon init writes a run file to begin with.")
    lines = yaml_lines(text) if is_yaml else toml_lines(text)

    def where_of(field: tuple[str, ...]) -> str:
        line = line_of(lines, field)
        return f"{path}, line {line}" if line else str(path)

    _anchor(table, path.resolve().parent)
    table.setdefault("name", path.stem)
    return _convert(_lay_over(table, overrides), where_of, overrides)


def override(config: RunConfig, overrides: Sequence[Override]) -> RunConfig:
    """Lay command-line overrides over a config that came from no file."""
    table = msgspec.to_builtins(config)
    return _convert(_lay_over(table, overrides), lambda _: "the built-in run", overrides)


def _read(path: Path) -> tuple[str, bool]:
    if path.suffix not in (".toml", ".yaml", ".yml"):
        raise ConfigError(f"{path}: a run file ends in .toml, .yaml or .yml.")
    try:
        return path.read_text(encoding="utf-8"), path.suffix != ".toml"
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror}.") from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path} is not UTF-8 text.") from error


def _anchor(table: Table, folder: Path) -> None:
    """Make the file's paths absolute."""

    def absolute(value: object) -> object:
        if not isinstance(value, str):
            return value
        return os.path.normpath(folder / Path(os.path.expandvars(value)).expanduser())

    job, model = table.get("job"), table.get("model")
    if isinstance(job, dict):
        if isinstance(job.get("prompts"), list):
            job["prompts"] = [absolute(each) for each in job["prompts"]]
        if "output" in job:
            job["output"] = absolute(job["output"])
    if isinstance(model, dict) and isinstance(model.get("path"), str):
        expanded = os.path.expandvars(os.path.expanduser(model["path"]))
        model["path"] = str(folder / expanded) if (folder / expanded).is_dir() else expanded


def _lay_over(table: Table, overrides: Sequence[Override]) -> Table:
    for each in overrides:
        inner: Table = table
        for part in each.path[:-1]:
            following = inner.setdefault(part, {})
            if not isinstance(following, dict):
                return table  # the file is wrong there; the conversion will say so
            inner = following
        for name in each.drops:
            inner.pop(name, None)
        inner[each.path[-1]] = each.value
    return table


def _convert(table: Table, where_of: Callable[[tuple[str, ...]], str], overrides: Sequence[Override]) -> RunConfig:
    by_option = {each.path: each.option for each in overrides}

    def where(field: tuple[str, ...]) -> str:
        return f"option {by_option[field]}" if field in by_option else where_of(field)

    _refuse_unknown(table, RunConfig, (), where)
    try:
        config = msgspec.convert(table, RunConfig)
    except msgspec.ValidationError as error:
        field = _field(str(error))
        raise ConfigError(f"{where(field)}: {_words(str(error), field, table)}.") from error
    found = problem(config)
    if found is not None:
        raise ConfigError(f"{where(found.field)}: {found.sentence}.")
    return config


def _refuse_unknown(
    table: Mapping[str, object],
    kind: type[Struct],
    path: tuple[str, ...],
    where: Callable[[tuple[str, ...]], str],
) -> None:
    """Refuse keys that are none, with the nearest that is: here, or in another section."""
    known = _sections(kind)
    for key, value in table.items():
        here = (*path, key)
        if key not in known:
            raise ConfigError(f"{where(here)}: {'.'.join(here)} is not a key{_nearest(key, path)}.")
        inner = known[key]
        if inner is not None and isinstance(value, dict):
            _refuse_unknown(value, inner, here, where)


def _sections(kind: type[Struct]) -> dict[str, type[Struct] | None]:
    """Each key of a section, with the struct behind it if it is a section itself."""
    found: dict[str, type[Struct] | None] = {}
    for name, hint in get_type_hints(kind).items():
        if name not in kind.__struct_fields__:
            continue
        options = get_args(hint) if get_origin(hint) is UnionType else (hint,)
        structs = [each for each in options if isinstance(each, type) and issubclass(each, Struct)]
        found[name] = structs[0] if structs else None
    return found


def _nearest(key: str, path: tuple[str, ...]) -> str:
    everywhere = _all_keys(RunConfig, ())
    here = [keys[-1] for keys in everywhere if keys[:-1] == path]
    name = key.replace("-", "_")
    elsewhere = [keys for keys in everywhere if keys[-1] == name and keys[:-1] != path]
    if name in here:
        return f"; did you mean {name}?"
    if elsewhere:
        return f" there; it belongs to [{'.'.join(elsewhere[0][:-1])}]"
    close = get_close_matches(name, here, 1, 0.6) or get_close_matches(name, [keys[-1] for keys in everywhere], 1, 0.75)
    if not close:
        return f"; the keys there are {', '.join(here)}"
    full = next(keys for keys in everywhere if keys[-1] == close[0] and (close[0] not in here or keys[:-1] == path))
    return f"; did you mean {close[0] if close[0] in here else '.'.join(full)}?"


def _all_keys(kind: type[Struct], path: tuple[str, ...]) -> list[tuple[str, ...]]:
    found = []
    for name, inner in _sections(kind).items():
        found.append((*path, name))
        if inner is not None:
            found += _all_keys(inner, (*path, name))
    return found


def _field(message: str) -> tuple[str, ...]:
    """The path in msgspec's "… - at `$.job.shard_size`"; for a missing field, the section and the field."""
    at = re.search(r"at `\$\.?([^`]*)`", message)
    path = tuple(part for part in re.split(r"\.|\[.*?\]", at[1]) if part) if at else ()
    missing = re.search(r"missing required field `(\w+)`", message)
    return (*path, missing[1]) if missing else path


def _words(message: str, field: tuple[str, ...], table: Table) -> str:
    name = ".".join(field)
    if "missing required field" in message:
        return f"{name} is missing" + (f" (section [{'.'.join(field[:-1])}])" if len(field) > 1 else "")
    typed = re.match(r"Expected `([^`]+)`(?:, got `(\w+)`)?", message)
    if typed and typed[2]:
        wanted = " or ".join(_TYPE_WORDS.get(part.strip(), part.strip()) for part in typed[1].split("|"))
        wanted = wanted.replace(" or nothing", "")
        return f"{name} must be {wanted}, not {_TYPE_WORDS.get(typed[2], typed[2])}"
    invalid = re.match(r"Invalid enum value '?([^']*)'?", message)
    if invalid:
        return f"{name} cannot be {invalid[1]!r}{_choices(field)}"
    return f"{name}: {message.split(' - at')[0]}"


def _choices(field: tuple[str, ...]) -> str:
    hint: Any = RunConfig
    for part in field:
        options = get_args(hint) if get_origin(hint) is UnionType else (hint,)
        struct = next(each for each in options if isinstance(each, type) and issubclass(each, Struct))
        hint = get_type_hints(struct)[part]
    texts = [repr(each) for part in (hint, *get_args(hint)) for each in get_args(part) if isinstance(each, str)]
    return f"; it can be {' or '.join(dict.fromkeys(texts))}" if texts else ""
