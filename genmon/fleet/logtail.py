"""Why a server ended, from the last lines of its log. Its return code says little: −9 may be a clean stop.

Only lines that are what they seem count: argparse's own, the last line of a traceback, and lines that SGLang begins
with a stamp. A healthy log names errors too: models that were skipped for want of a package, requests that were
refused, prompts.
"""

from __future__ import annotations

import re
import signal
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
    HUNG = "hung"
    NATIVE_CRASH = "native_crash"
    SCHEDULER_CRASH = "scheduler_crash"
    START_TIMEOUT = "start_timeout"
    SMOKE_FAILED = "smoke_failed"
    CLEAN = "clean"
    KILLED = "killed"
    UNKNOWN = "unknown"


class Diagnosis(Struct, frozen=True):
    """What ended a server, in one line fit for a screen; not `retryable` when trying again would end the same."""

    kind: End
    sentence: str
    retryable: bool


_STAMP = re.compile(r"^\[\d{4}-\d\d-\d\d [\d:.]+[^\]]*\] ")
_ALIVE = re.compile(r"^\[[^\]]+\] (?:Decode|Prefill) batch\b.*$", re.MULTILINE)
"""While its scheduler says this, nothing before it has ended the server."""
_STAMPED = r"^(?:\[\d{4}-\d\d-\d\d [^\]]+\] )?"
_FINAL_ERROR = re.compile(r"^(?P<what>(?:[A-Za-z_][\w.]*\.)?\w*(?:Error|Exception)\b(?:: .*)?)$", re.MULTILINE)
_SECOND_HAND = re.compile(r"EOFError|BrokenPipeError|ConnectionResetError|RuntimeError: Rank \d+ scheduler died")
"""What other processes say when the one with the real error has died."""
_BAD_CONFIG = ("ValueError", "AssertionError", "TypeError", "NotImplementedError", "pydantic_core")

_LINES: tuple[tuple[End, str, str, bool], ...] = (
    # argparse's words only: compilers that run at the first start say "error:" too.
    (
        End.FLAG_ERROR,
        r"^\S[^:\n]*: error: (?P<what>(?:unrecognized arguments: |ambiguous option: |argument |the following arguments"
        r" are required: |expected |one of the arguments ).*)$",
        "{what}",
        False,
    ),
    (
        End.NO_SGLANG,
        r"^\S*python\S*: (?P<what>(?:No module named|Error while finding module specification for) '?sglang.*)$",
        "the interpreter has no SGLang ({what})",
        False,
    ),
    (End.NO_SGLANG, r"^genmon: (?P<what>.* cannot be started: .*)$", "{what}", False),
    (End.KILLED, r"^genmon: (?P<what>the engine has not been heard of for .* s): ending.*$", "{what}", True),
    (
        End.PORT_TAKEN,
        _STAMPED + r"(?:ERROR: +|\S*Error: )(?P<what>.*(?:[Aa]ddress already in use|EADDRINUSE).*)$",
        "its port is taken: {what}",
        True,
    ),
    (End.WATCHDOG, _STAMPED + r"(?P<what>Scheduler watchdog timeout.*)$", "SGLang's own watchdog: {what}", True),
)
_ERRORS: tuple[tuple[End, str, str, bool], ...] = (
    (End.OUT_OF_MEMORY, r"(?i)out ?of ?memory|not enough (?:gpu )?memory|state cache is too small", "{what}", True),
    # A hub that could not be asked may answer the next time.
    (End.NO_MODEL, r"LocalEntryNotFoundError|couldn't connect to", "the model cannot be fetched: {what}", True),
    (
        End.NO_MODEL,
        r"RepositoryNotFoundError|GatedRepoError|RevisionNotFoundError|HFValidationError|is not a local folder"
        r"|does not appear to have a file named|Can't load the configuration of|Repo id must|No such file or directory",
        "the model cannot be found: {what}",
        False,
    ),
    (End.NO_SGLANG, r"^(?:ModuleNotFoundError|ImportError)\b", "SGLang cannot be imported: {what}", False),
)
_DIED = re.compile(
    _STAMPED + r"(?:RuntimeError: )?(?:Subprocess (?P<name>\w+?)(?:_\d+)? .*crashed with exit code (?P<code>-?\d+)"
    r"|Rank \d+ (?P<rank>scheduler) died during initialization \(exit code: (?P<rank_code>-?\d+)\))",
    re.MULTILINE,
)
_SIGTERM = re.compile(_STAMPED + r"(?:SIGTERM received|Gracefully exiting)", re.MULTILINE)


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
        was_ready: whether it had served. A refusal before that would come again; what once served may serve again.
    """
    found = _find(text, returncode, was_ready=was_ready)
    return Diagnosis(found.kind, _line(found.sentence), found.retryable or was_ready)


def _find(text: str, returncode: int | None, *, was_ready: bool) -> Diagnosis:
    if was_ready:
        text = _ALIVE.split(text)[-1]
    for kind, pattern, words, again in _LINES:
        if found := re.search(pattern, text, re.MULTILINE):
            return Diagnosis(kind, words.format(what=found["what"].strip()), again)
    errors = [found["what"] for found in _FINAL_ERROR.finditer(text)]
    first_hand = [error for error in errors if not _SECOND_HAND.match(error)]
    if first_hand:
        return _from_error(first_hand[-1], was_ready=was_ready)
    if found := _DIED.search(text):
        return _from_death(found["name"] or found["rank"], int(found["code"] or found["rank_code"]))
    if errors:
        return _from_error(errors[-1], was_ready=was_ready)
    return _from_code(text, returncode)


def _from_error(error: str, *, was_ready: bool) -> Diagnosis:
    for kind, pattern, words, again in _ERRORS:
        if re.search(pattern, error):
            return Diagnosis(kind, words.format(what=error), again)
    if was_ready:
        return Diagnosis(End.SCHEDULER_CRASH, f"its scheduler crashed: {error}", True)
    config = error.startswith(_BAD_CONFIG)
    return Diagnosis(End.CONFIG_ERROR if config else End.SCHEDULER_CRASH, f"it did not start: {error}", not config)


def _from_death(name: str, code: int) -> Diagnosis:
    if code == -signal.SIGKILL:
        words = f"its {name} was killed (SIGKILL: by hand, or by the system when memory ran out)"
        return Diagnosis(End.KILLED, words, True)
    return Diagnosis(End.NATIVE_CRASH, f"its {name} crashed with {_code(code)}", True)


def _from_code(text: str, returncode: int | None) -> Diagnosis:
    number = -returncode if returncode is not None and returncode < 0 else (returncode or 0) - 128
    if _SIGTERM.search(text) or number == signal.SIGTERM:
        return Diagnosis(End.CLEAN, "somebody asked it to end (SIGTERM)", True)
    if number == signal.SIGKILL:
        return Diagnosis(End.KILLED, "it was killed (SIGKILL: by hand, or by the system when memory ran out)", True)
    last = next((line for line in reversed(text.splitlines()) if line.strip()), "its log is empty")
    last = _STAMP.sub("", last)
    if number > 0:
        return Diagnosis(End.NATIVE_CRASH, f"it crashed with {_code(-number)}: {last}", True)
    return Diagnosis(End.UNKNOWN, f"it ended with code {returncode}: {last}", True)


def _code(code: int) -> str:
    try:
        return signal.Signals(-code).name
    except ValueError:
        return f"exit code {code}"


def _line(text: str) -> str:
    text = " ".join(text.split())
    return text if len(text) <= _SENTENCE_MAX else text[: _SENTENCE_MAX - 1] + "…"
