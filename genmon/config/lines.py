"""On which line of a run file a key stands, so that an error can say so."""

from __future__ import annotations

import re

import yaml

_TABLE = re.compile(r"^\s*\[+\s*([^\]]+?)\s*\]+")
_KEY = re.compile(r"""^\s*((?:[\w-]+|"[^"]*"|'[^']*')(?:\s*\.\s*(?:[\w-]+|"[^"]*"|'[^']*'))*)\s*=""")
Path_ = tuple[str, ...]


def toml_lines(text: str) -> dict[Path_, int]:
    """Line of each table and key, by its path. Keys of inline tables share their table's line."""
    lines: dict[Path_, int] = {}
    table: Path_ = ()
    for number, line in enumerate(text.splitlines(), 1):
        header = _TABLE.match(line)
        if header and "=" not in line.split("]")[0]:
            table = _parts(header[1])
            lines.setdefault(table, number)
            continue
        key = _KEY.match(line)
        if key:
            lines.setdefault(table + _parts(key[1]), number)
    return lines


def yaml_lines(text: str) -> dict[Path_, int]:
    """Line of each key, by its path."""
    lines: dict[Path_, int] = {}

    def walk(node: yaml.Node | None, path: Path_) -> None:
        if isinstance(node, yaml.MappingNode):
            for key, value in node.value:
                here = (*path, str(key.value))
                lines[here] = key.start_mark.line + 1
                walk(value, here)

    walk(yaml.compose(text, Loader=yaml.SafeLoader), ())
    return lines


def line_of(lines: dict[Path_, int], path: Path_) -> int | None:
    """The line of a key, or of the nearest thing around it."""
    while path:
        if path in lines:
            return lines[path]
        path = path[:-1]
    return None


def _parts(dotted: str) -> Path_:
    return tuple(part.strip().strip("\"'") for part in re.findall(r"""[\w-]+|"[^"]*"|'[^']*'""", dotted))
