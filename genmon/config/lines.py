"""On which line of a run file a key stands, so that an error can say so."""

from __future__ import annotations

import re

import yaml

KeyPath = tuple[str, ...]

_NAME = r"""(?:[\w-]+|"[^"]*"|'[^']*')"""
_TABLE = re.compile(rf"^\s*\[\[?\s*({_NAME}(?:\s*\.\s*{_NAME})*)\s*\]\]?\s*(?:#.*)?$")
_KEY = re.compile(rf"^\s*({_NAME}(?:\s*\.\s*{_NAME})*)\s*=")
_LONG_STRING = re.compile(r"\"\"\"|'''")


def toml_lines(text: str) -> dict[KeyPath, int]:
    """Line of each table and key, by its path. Keys of inline tables share their table's line."""
    lines: dict[KeyPath, int] = {}
    table: KeyPath = ()
    ending: str | None = None
    """What ends the string over several lines that this line is inside of."""
    for number, line in enumerate(text.splitlines(), 1):
        if ending is None:
            if header := _TABLE.match(line):
                table = _parts(header[1])
                lines.setdefault(table, number)
            elif key := _KEY.match(line):
                lines.setdefault(table + _parts(key[1]), number)
        for quotes in _LONG_STRING.findall(line):
            if ending is None:
                ending = quotes
            elif ending == quotes:
                ending = None
    return lines


def yaml_lines(text: str) -> dict[KeyPath, int]:
    """Line of each key, by its path.

    Raises:
        yaml.MarkedYAMLError: it is not YAML, or a key is there twice (YAML itself would take the last).
    """
    lines: dict[KeyPath, int] = {}

    def walk(node: yaml.Node | None, path: KeyPath, above: tuple[yaml.Node, ...]) -> None:
        if not isinstance(node, yaml.MappingNode) or node in above:
            return
        for key, value in node.value:
            here = (*path, str(key.value))
            if here in lines:
                raise yaml.MarkedYAMLError(
                    problem=f"{'.'.join(here)} is there twice, first on line {lines[here]}", problem_mark=key.start_mark
                )
            lines[here] = key.start_mark.line + 1
            walk(value, here, (*above, node))

    walk(yaml.compose(text, Loader=yaml.SafeLoader), (), ())
    return lines


def line_of(lines: dict[KeyPath, int], path: KeyPath) -> int | None:
    """The line of a key, or of the nearest thing around it."""
    while path:
        if path in lines:
            return lines[path]
        path = path[:-1]
    return None


def _parts(dotted: str) -> KeyPath:
    return tuple(part.strip("\"'") for part in re.findall(_NAME, dotted))
