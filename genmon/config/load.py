"""The run file to a `RunConfig`; every error is one sentence that names file, line and field."""

from __future__ import annotations

import glob
import os
import re
import tomllib
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec
import yaml

from genmon.config.lines import KeyPath, line_of, toml_lines, yaml_lines
from genmon.config.overrides import Override
from genmon.config.rules import Problem, problem
from genmon.config.schema import RunConfig
from genmon.config.wording import sections, wrong_key, wrong_type
from genmon.errors import ConfigError

Table = dict[str, object]
_VARIABLE = re.compile(r"\$(\w+|\{\w+\})")


def load(path: Path, overrides: Sequence[Override] = ()) -> RunConfig:
    """Read a run file, TOML or YAML by its ending, and lay command-line overrides over it.

    Relative prompts, output, interpreter and an existing model folder are relative to the run file; `~` and `$NAME`
    expand in them. `name` is the file's, without its ending, when it is not given.

    Raises:
        ConfigError: it cannot be read, or something in it is wrong.
    """
    table, lines = _parse(path)

    def where_of(field: KeyPath) -> str:
        line = line_of(lines, field)
        return f"{path}, line {line}" if line else str(path)

    for section, kind in sections(RunConfig).items():
        if kind is not None and section in table and table[section] is None:
            table[section] = {}  # YAML's way to write a section with nothing but comments in it
    wrong = _anchor(table, path.resolve().parent)
    if wrong is not None:
        raise ConfigError(_sentence(where_of(wrong.field), wrong))
    table.setdefault("name", path.stem)
    return _convert(_lay_over(table, overrides), where_of, overrides)


def override(config: RunConfig, overrides: Sequence[Override]) -> RunConfig:
    """Lay command-line overrides over a config that came from no file.

    Raises:
        ConfigError: one of them is wrong, or does not go with the rest.
    """
    table = msgspec.to_builtins(config)
    return _convert(_lay_over(table, overrides), lambda _: "the built-in run", overrides)


def _parse(path: Path) -> tuple[Table, dict[KeyPath, int]]:
    """The file as nested tables, and the line of each key."""
    text, is_yaml = _read(path)
    try:
        lines = yaml_lines(text) if is_yaml else toml_lines(text)
        table = yaml.safe_load(text) if is_yaml else tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        words, line = _toml_error(str(error), text)
        raise ConfigError(f"{path}, line {line}: not TOML: {words}.") from error
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = f", line {mark.line + 1}" if mark else ""
        raise ConfigError(f"{path}{where}: not YAML: {getattr(error, 'problem', None) or error}.") from error
    if table is None or table == {}:
        raise ConfigError(f"{path} is empty: genmon init writes a run file to begin with.")
    if not isinstance(table, dict):
        raise ConfigError(f"{path} must hold sections such as model and job: genmon init writes one to begin with.")
    return table, lines


def _read(path: Path) -> tuple[str, bool]:
    if path.suffix not in (".toml", ".yaml", ".yml"):
        raise ConfigError(f"{path}: a run file ends in .toml, .yaml or .yml.")
    try:
        return path.read_text(encoding="utf-8-sig"), path.suffix != ".toml"
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror}.") from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path} is not UTF-8 text.") from error


def _toml_error(message: str, text: str) -> tuple[str, int]:
    """tomllib's "Cannot declare ('job',) twice (at line 3, column 5)" as words and line."""
    found = re.search(r"(.*) \(at line (\d+), column \d+\)$", message)
    words, line = (found[1], int(found[2])) if found else (message, text.count("\n") + 1)
    words = words.removesuffix(" (at end of document)")
    return re.sub(r"\(('[^)]*?'),?\)", lambda keys: f"[{keys[1]}]".replace("', '", ".").replace("'", ""), words), line


def _anchor(table: Table, folder: Path) -> Problem | None:
    """Make the file's paths absolute, with variables filled in; the first variable that is not set is a problem."""
    unset: list[Problem] = []

    def expand(text: str, field: KeyPath) -> str:
        expanded = os.path.expanduser(os.path.expandvars(text))
        left = _VARIABLE.search(expanded)
        if left:
            unset.append(Problem(field, f"{'.'.join(field)} names {left[0]}, which is not set in the environment"))
        return expanded

    def rooted(text: str, root: str) -> str:
        return os.path.normpath(f"{root}/{text}" if not text.startswith("/") else text)

    paths = (
        ("job", "prompts"),
        ("job", "output"),
        ("servers", "python"),
        ("model", "path"),
        ("tells", "rules"),
        ("log", "path"),
    )
    for field in paths:
        section, key = field
        inner = table.get(section)
        value = inner.get(key) if isinstance(inner, dict) else None
        if not isinstance(inner, dict) or not value:
            continue
        if key == "prompts" and isinstance(value, list):
            # What looks like a glob in the folder's own name is none.
            root = glob.escape(str(folder))
            inner[key] = [
                rooted(expand(each, field), root) if isinstance(each, str) and each else each for each in value
            ]
        elif (key in ("output", "rules") or section == "log") and isinstance(value, str):
            inner[key] = rooted(expand(value, field), str(folder))
        elif key == "python" and isinstance(value, str):
            # A bare name is looked for on PATH. Links are not followed: a virtual environment's python is one.
            command = expand(value, field)
            inner[key] = rooted(command, str(folder)) if "/" in command else command
        elif key == "path" and isinstance(value, str):
            expanded = expand(value, field)
            inner[key] = rooted(expanded, str(folder)) if (folder / expanded).is_dir() else expanded
    return unset[0] if unset else None


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


def _convert(table: Table, where_of: Callable[[KeyPath], str], overrides: Sequence[Override]) -> RunConfig:
    by_option = {each.path: each.option for each in overrides}

    def refusal(wrong: Problem) -> ConfigError:
        option = by_option.get(wrong.field)
        return ConfigError(_sentence(f"option {option}" if option else where_of(wrong.field), wrong))

    wrong = wrong_key(table)
    if wrong is not None:
        raise refusal(wrong)
    try:
        config = msgspec.convert(table, RunConfig)
    except msgspec.ValidationError as error:
        raise refusal(wrong_type(error, table)) from error
    wrong = problem(config)
    if wrong is not None:
        raise refusal(wrong)
    return config


def _sentence(where: str, wrong: Problem) -> str:
    return f"{where}: {wrong.sentence}{'' if wrong.sentence.endswith('?') else '.'}"
