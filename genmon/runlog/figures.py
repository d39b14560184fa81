"""One run, launch or flag set in figures, each with its n and interval; and two of them side by side."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
from msgspec import Struct

from genmon.errors import LogError
from genmon.runlog.database import reading
from genmon.runlog.questions import records

if TYPE_CHECKING:
    import duckdb


class Figure(Struct, frozen=True, kw_only=True):
    """A mean over blocks of ten seconds (latency: over rows), of one server, with its 95 % interval."""

    figure: str
    n: int
    mean: float
    low: float | None
    high: float | None
    median: float | None = None
    p95: float | None = None


class AnswerShare(Struct, frozen=True, kw_only=True):
    """Share of one answer class among `total` answers, with Wilson's 95 % interval."""

    answer_class: str
    n: int
    total: int
    share: float
    low: float
    high: float


class Side(Struct, frozen=True, kw_only=True):
    """A run, a launch or a flag set."""

    name: str
    run: str
    simulated: bool
    model: str
    flags: dict[str, str]
    flag_sets: int
    """How many flag sets it holds; `flags` is the last one."""
    figures: dict[str, Figure]
    answers: dict[str, AnswerShare]


class Difference(Struct, frozen=True, kw_only=True):
    """Relative change of a figure, B against A, with its 95 % interval: 0.1 is 10 % more."""

    figure: str
    change: float
    low: float | None
    high: float | None


class FlagDifference(Struct, frozen=True):
    """One launch flag that two sides do not share; None: it was not given."""

    flag: str
    a: str | None
    b: str | None


class Comparison(Struct, frozen=True, kw_only=True):
    """Two sides."""

    a: Side
    b: Side
    flags: tuple[FlagDifference, ...]
    differences: tuple[Difference, ...]


def compare(path: Path, a: str, b: str | None = None) -> Comparison:
    """Compare two of: RUN, RUN/s0#2 (a launch), RUN/3fa81c (a flag set). One RUN alone: its last two flag sets.

    Raises:
        LogError: no such thing in the log, or it cannot be read.
    """
    with reading(path) as connection:
        if b is None:
            run = find_run(connection, a)
            sets = _flag_sets(connection, run)
            if len(sets) < 2:
                raise LogError(f"{run} was served with one set of flags only: name two runs, or two launches.")
            a, b = f"{run}/{sets[-2]}", f"{run}/{sets[-1]}"
        return _compared(side(connection, a), side(connection, b))


def side(connection: duckdb.DuckDBPyConnection, name: str) -> Side:
    """A run, a launch or a flag set by its name. Raises `LogError` when there is none."""
    wanted, _, part = name.partition("/")
    run = find_run(connection, wanted)
    level = "run" if not part else "launch" if "#" in part else "flag set"
    where, values = {
        "run": ("run = ?", (run,)),
        "launch": ("run = ? AND launch = ?", (run, part)),
        "flag set": ("run = ? AND flag_set = ?", (run, part)),
    }[level]
    launches = records(connection, f"SELECT flags, flag_set FROM launches WHERE {where} ORDER BY started_at", *values)
    if part and not launches:
        known = ", ".join(_flag_sets(connection, run))
        raise LogError(f"{run} has no launch or flag set {part}: name one like s0#1, or one of {known}.")
    about = records(connection, "SELECT model, simulated FROM runs WHERE run = ?", run)[0]
    figures = records(connection, f"FROM figures WHERE {where} AND level = ?", *values, level)
    answers = records(connection, f"FROM answers WHERE {where} AND level = ? ORDER BY n DESC", *values, level)
    return msgspec.convert(
        {
            **about,
            "name": f"{run}/{part}" if part else run,
            "run": run,
            "flags": launches[-1]["flags"] if launches else {},
            "flag_sets": len({launch["flag_set"] for launch in launches}),
            "figures": {str(row["figure"]): row for row in figures},
            "answers": {str(row["answer_class"]): row for row in answers},
        },
        Side,
    )


def find_run(connection: duckdb.DuckDBPyConnection, wanted: str) -> str:
    """A run by its key, the beginning of its key (the newest that fits), or "last". Raises `LogError`."""
    begins = "" if wanted == "last" else wanted
    rows = connection.execute(
        "SELECT run FROM runs WHERE starts_with(run, ?) ORDER BY run = ? DESC, started_at DESC LIMIT 1",
        [begins, begins],
    ).fetchall()
    if not rows:
        raise LogError(f"There is no run {wanted} in the log: genmon runs lists them.")
    return str(rows[0][0])


def _flag_sets(connection: duckdb.DuckDBPyConnection, run: str) -> list[str]:
    """A run's flag sets, in the order in which they came."""
    query = "SELECT flag_set FROM launches WHERE run = ? GROUP BY flag_set ORDER BY min(started_at)"
    return [str(row[0]) for row in connection.execute(query, [run]).fetchall()]


def _compared(a: Side, b: Side) -> Comparison:
    names = [*a.flags, *(name for name in b.flags if name not in a.flags)]
    return Comparison(
        a=a,
        b=b,
        flags=tuple(
            FlagDifference(name, a.flags.get(name), b.flags.get(name))
            for name in names
            if a.flags.get(name) != b.flags.get(name)
        ),
        differences=tuple(
            change for name in a.figures if name in b.figures and (change := _change(a.figures[name], b.figures[name]))
        ),
    )


def _change(a: Figure, b: Figure) -> Difference | None:
    """The ratio of two means and, by the delta method, its interval."""
    if not a.mean:
        return None
    change = b.mean / a.mean - 1
    half = None
    if a.high is not None and b.high is not None:
        half = math.hypot((b.high - b.mean) / a.mean, (a.high - a.mean) * b.mean / a.mean**2)
    return Difference(
        figure=a.figure,
        change=change,
        low=None if half is None else change - half,
        high=None if half is None else change + half,
    )
