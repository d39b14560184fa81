"""The interpreter that has SGLang: which version, and which flags its launcher accepts, without importing it."""

from __future__ import annotations

import ast
import os
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path

import msgspec
from msgspec import Struct

_TIMEOUT_S = 20.0
_FEWEST_FLAGS = 100
"""SGLang has had several hundred flags since 0.5.11: fewer means that its source was not understood."""
_QUESTION = """
import json, platform, importlib.util
from importlib import metadata
def version(name):
    try: return metadata.version(name)
    except metadata.PackageNotFoundError: return None
spec = importlib.util.find_spec("sglang")
print(json.dumps({"python": platform.python_version(), "sglang": version("sglang"),
    "folder": spec.submodule_search_locations[0] if spec and spec.submodule_search_locations else None}))
"""


class Interpreter(Struct, frozen=True):
    """An interpreter as it answered. `trouble` says why there is no SGLang."""

    path: str
    python: str | None = None
    sglang: str | None = None
    folder: str | None = None
    trouble: str | None = None


class _Reply(Struct):
    python: str
    sglang: str | None
    folder: str | None


def probe(python: str, env: Mapping[str, str] | None = None) -> Interpreter:
    """Ask an interpreter for its SGLang; about 0.1 s. `python` is a path or a name on PATH.

    Links are not followed: a virtual environment is known by the path that it is called by. `env` is what the run
    file adds to the environment: its PYTHONPATH may be what makes SGLang found.
    """
    found = shutil.which(os.path.expanduser(python))
    if found is None:
        return Interpreter(python, trouble=f"servers.python: {python} is no interpreter that can be run")
    path = str(Path(found).absolute())
    try:
        answered = subprocess.run(
            [path, "-c", _QUESTION],
            capture_output=True,
            stdin=subprocess.DEVNULL,
            timeout=_TIMEOUT_S,
            check=True,
            env={**os.environ, **(env or {})},
            text=True,
        )
        reply = msgspec.json.decode(answered.stdout.splitlines()[-1], type=_Reply)
    except subprocess.TimeoutExpired:
        return Interpreter(path, trouble=f"servers.python: {path} did not answer within {_TIMEOUT_S:.0f} s")
    except (subprocess.SubprocessError, OSError, IndexError, UnicodeDecodeError, msgspec.MsgspecError):
        return Interpreter(path, trouble=f"servers.python: {path} did not answer as a Python does")
    trouble = None if reply.sglang else f"servers.python: {path} (Python {reply.python}) has no SGLang installed"
    return Interpreter(path, reply.python, reply.sglang, reply.folder, trouble)


def known_flags(interpreter: Interpreter) -> frozenset[str] | None:
    """The launch flags (without dashes) that an installed SGLang accepts, read from its source.

    None when it cannot be read. Nothing of SGLang is imported or run. Up to 0.5.13 each flag is named in an
    `add_argument`; later ones come from annotated fields, `name: A[type, "help"]` or `A[type, Arg(...)]`.
    """
    if interpreter.folder is None:
        return None
    srt = Path(interpreter.folder) / "srt"
    flags: set[str] = set()
    for source in (srt / "server_args.py", *sorted((srt / "arg_groups").rglob("*.py"))):
        try:
            tree = ast.parse(source.read_bytes())
        except (OSError, SyntaxError, ValueError):
            continue  # a missing file, or a syntax newer than this Python's: too few flags will be found
        for node in ast.walk(tree):
            if isinstance(node, ast.Call):
                flags.update(_of_call(node))
            elif isinstance(node, ast.AnnAssign):
                flags.update(_of_field(node))
    return frozenset(flags) if len(flags) >= _FEWEST_FLAGS else None


def _of_call(node: ast.Call) -> Iterator[str]:
    """Flags of `parser.add_argument("--a", "--b", ...)`."""
    if isinstance(node.func, ast.Attribute) and node.func.attr == "add_argument":
        negated = _negated(node.keywords)
        for name in _options(node.args):
            yield name
            if negated:
                yield f"no-{name}"


def _of_field(node: ast.AnnAssign) -> Iterator[str]:
    """Flags of an annotated field; a field without help or `Arg`, or with `no_cli=True`, is none."""
    hint = node.annotation
    if not (isinstance(node.target, ast.Name) and isinstance(hint, ast.Subscript)):
        return
    if not (isinstance(hint.value, ast.Name) and hint.value.id in ("A", "Annotated")):
        return
    keywords: list[ast.keyword] | None = None
    for each in hint.slice.elts[1:] if isinstance(hint.slice, ast.Tuple) else []:
        if isinstance(each, ast.Call) and isinstance(each.func, ast.Name) and each.func.id == "Arg":
            keywords = each.keywords
        elif _is_text(each) and keywords is None:
            keywords = []
    if keywords is None:
        return
    given = {keyword.arg: keyword.value for keyword in keywords}
    if isinstance(hidden := given.get("no_cli"), ast.Constant) and hidden.value:
        return
    named = list(_options([given["cli_name"]])) if "cli_name" in given else []
    name = named[0] if named else node.target.id.replace("_", "-")
    yield name
    if _negated(keywords):
        yield f"no-{name}"
    aliases = given.get("aliases")
    if isinstance(aliases, ast.List):
        yield from _options(aliases.elts)


def _options(nodes: list[ast.expr]) -> Iterator[str]:
    for node in nodes:
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value.startswith("--"):
            yield node.value[2:]


def _is_text(node: ast.expr) -> bool:
    return isinstance(node, ast.JoinedStr) or (isinstance(node, ast.Constant) and isinstance(node.value, str))


def _negated(keywords: list[ast.keyword]) -> bool:
    """Whether argparse makes a --no-… beside the flag."""
    return any(
        keyword.arg == "action" and ast.unparse(keyword.value).endswith("BooleanOptionalAction") for keyword in keywords
    )
