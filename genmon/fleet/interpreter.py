"""The interpreter that has SGLang: which version, and which flags its launcher accepts, without importing it."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import msgspec
from msgspec import Struct

_TIMEOUT_S = 30.0
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
_ARGUMENT = re.compile(r"""["']--([a-z][a-z0-9-]+)["']""")
_FIELD = re.compile(r"^    ([a-z][a-z0-9_]+)\s*:\s", re.MULTILINE)


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


def probe(python: str, env: dict[str, str] | None = None) -> Interpreter:
    """Ask an interpreter for its SGLang; about 0.1 s. `python` is a path or a name on PATH."""
    path = shutil.which(str(Path(python).expanduser()))
    if path is None:
        return Interpreter(python, trouble=f"servers.python: {python} is no interpreter that can be run")
    try:
        answered = subprocess.run(
            [path, "-c", _QUESTION], capture_output=True, timeout=_TIMEOUT_S, check=True, env=env, text=True
        )
        reply = msgspec.json.decode(answered.stdout.splitlines()[-1], type=_Reply)
    except (subprocess.SubprocessError, OSError, IndexError, msgspec.MsgspecError) as error:
        return Interpreter(path, trouble=f"servers.python: {path} did not answer as a Python does: {error}")
    trouble = None if reply.sglang else f"servers.python: {path} (Python {reply.python}) has no SGLang installed"
    return Interpreter(path, reply.python, reply.sglang, reply.folder, trouble)


def known_flags(interpreter: Interpreter) -> frozenset[str] | None:
    """The launch flags that an installed SGLang accepts, read from its source; None when it cannot be read.

    Older versions name each flag in an `add_argument`; newer ones derive them from dataclass fields.
    """
    if interpreter.folder is None:
        return None
    srt = Path(interpreter.folder) / "srt"
    sources = [srt / "server_args.py", *sorted((srt / "arg_groups").rglob("*.py"))]
    flags: set[str] = set()
    for source in sources:
        try:
            text = source.read_text(encoding="utf-8", errors="replace")
        except OSError:
            continue
        flags.update(_ARGUMENT.findall(text))
        flags.update(field.replace("_", "-") for field in _FIELD.findall(text))
    return frozenset(flags) if len(flags) > 100 else None
