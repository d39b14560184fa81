"""Why a server ended, from the last lines of its log. Its return code says little: −9 may be a clean stop."""

from __future__ import annotations

import re
from enum import StrEnum
from pathlib import Path

from msgspec import Struct

_TAIL_B = 64 << 10
_SENTENCE_MAX = 240


class End(StrEnum):
    """Kinds of ends."""

    FLAG_ERROR = "flag_error"
    CONFIG_ERROR = "config_error"
    OUT_OF_MEMORY = "out_of_memory"
    PORT_TAKEN = "port_taken"
    NO_SGLANG = "no_sglang"
    NO_MODEL = "no_model"
    WATCHDOG = "watchdog"
    NATIVE_CRASH = "native_crash"
    SCHEDULER_CRASH = "scheduler_crash"
    CLEAN = "clean"
    KILLED = "killed"
    UNKNOWN = "unknown"


class Diagnosis(Struct, frozen=True):
    """What ended a server, in one line fit for a screen; not `retryable` when trying again would end the same."""

    kind: End
    sentence: str
    retryable: bool


_SIGNS: tuple[tuple[End, str, str, bool], ...] = (
    (
        End.FLAG_ERROR,
        r"error: (?P<what>unrecognized arguments: .*|ambiguous option: .*|argument .*)",
        "{what}",
        False,
    ),
    (
        End.NO_SGLANG,
        r"(?P<what>No module named '?sglang[\w.]*'?)",
        "the interpreter has no SGLang ({what})",
        False,
    ),
    (End.NO_SGLANG, r"genmon: (?P<what>.* cannot be started: .*)", "{what}", False),
    (
        End.NO_SGLANG,
        r"(?P<what>(?:ImportError|ModuleNotFoundError): .*)",
        "SGLang cannot be imported: {what}",
        False,
    ),
    (
        End.NO_MODEL,
        r"(?P<what>.*(?:RepositoryNotFoundError|is not a local folder|does not appear to have a file named"
        r"|Can't load the configuration of|LocalEntryNotFoundError|Repo id must be).*)",
        "the model cannot be found: {what}",
        False,
    ),
    (End.PORT_TAKEN, r"(?P<what>.*(?:address already in use|EADDRINUSE).*)", "its port is taken", True),
    (End.OUT_OF_MEMORY, r"(?P<what>.*Not enough (?:GPU )?memory.*)", "{what}", False),
    (
        End.OUT_OF_MEMORY,
        r"(?P<what>.*OutOfMemoryError.*|.*CUDA out of memory.*|.*[Oo]ut of memory.*)",
        "{what}",
        True,
    ),
    (End.WATCHDOG, r"(?P<what>Scheduler watchdog timeout.*)", "SGLang's own watchdog ended it: {what}", True),
    (
        End.NATIVE_CRASH,
        r"(?P<what>Subprocess scheduler_\d+ .*crashed with exit code.*?)(?:\. |$)",
        "{what}",
        True,
    ),
)
_FINAL_ERROR = re.compile(r"^(?P<what>(?:[\w.]+\.)?\w*(?:Error|Exception|Interrupt)\b(?:: .*)?)$", re.MULTILINE)
_SIGTERM = "SIGTERM received"
_STAMP = re.compile(r"^\[\d{4}-\d\d-\d\d [\d:.]+[^\]]*\] ")


def tail(path: Path, offset: int) -> str:
    """What a log says from `offset` on, at most its last 64 KiB."""
    try:
        with path.open("rb") as file:
            size = file.seek(0, 2)
            file.seek(max(offset, size - _TAIL_B))
            return file.read().decode(errors="replace")
    except OSError:
        return ""


def diagnose(text: str, returncode: int | None, *, was_ready: bool) -> Diagnosis:
    """Why a server ended.

    Args:
        text: the end of its log, of this launch only.
        returncode: as a shell says it (128 + n for signal n), or None.
        was_ready: whether it had served. A refusal before that would come again.
    """
    for kind, pattern, words, retryable in _SIGNS:
        found = re.search(pattern, text)
        if found:
            again = retryable or (kind is End.OUT_OF_MEMORY and was_ready)
            return Diagnosis(kind, _line(words.format(what=_STAMP.sub("", found["what"].strip()))), again)
    errors = [found["what"] for found in _FINAL_ERROR.finditer(text)]
    if errors and was_ready:
        return Diagnosis(End.SCHEDULER_CRASH, _line(f"its scheduler crashed: {errors[-1]}"), True)
    if errors:
        config = errors[-1].startswith(("ValueError", "AssertionError", "TypeError", "NotImplementedError"))
        kind = End.CONFIG_ERROR if config else End.SCHEDULER_CRASH
        return Diagnosis(kind, _line(f"it did not start: {errors[-1]}"), not config)
    if _SIGTERM in text:
        return Diagnosis(End.CLEAN, "somebody asked it to end (SIGTERM)", True)
    if returncode in (137, -9):
        return Diagnosis(End.KILLED, "it was killed (SIGKILL: by hand, or by the system when memory ran out)", True)
    last = next((line for line in reversed(text.splitlines()) if line.strip()), "its log is empty")
    return Diagnosis(End.UNKNOWN, _line(f"it ended with code {returncode}: {_STAMP.sub('', last)}"), True)


def _line(text: str) -> str:
    text = " ".join(text.split())
    return text if len(text) <= _SENTENCE_MAX else text[: _SENTENCE_MAX - 1] + "…"
