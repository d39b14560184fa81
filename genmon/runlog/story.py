"""Everything that is known of one run, for show and report."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path

import msgspec
from msgspec import Struct

from genmon.runlog.database import reading
from genmon.runlog.figures import Side, find_run, side
from genmon.runlog.questions import RunLine, alive, catch_up, records

_POINTS = 400
"""Points of a plot: about one a pixel pair on a desktop."""
_STEP_S = 3.0
"""Shorter stretches may miss a sample, or hold one too many."""


class LaunchLine(Struct, frozen=True, kw_only=True):
    """One launch."""

    launch: str
    gpu_index: int | None
    flag_set: str
    mtp: bool | None
    cap: int | None
    sglang: str | None
    started_at: datetime
    ready_s: float | None
    ended_at: datetime | None
    end_reason: str | None
    flags: dict[str, str]


class TellLine(Struct, frozen=True, kw_only=True):
    """One tell."""

    since_at: datetime
    gone_at: datetime | None
    level: str
    sentence: str
    mend: str | None
    followed: str | None


class CommandLine(Struct, frozen=True, kw_only=True):
    """One command."""

    given_at: datetime
    given_by: str
    command: str
    obeyed: bool
    effect: str


class ChangeLine(Struct, frozen=True, kw_only=True):
    """One change of flags."""

    started_at: datetime
    what: str
    servers: list[str]
    outcome: str | None
    verdict: str | None
    verdict_sentence: str | None


class Moment(Struct, frozen=True, kw_only=True):
    """All servers over one stretch of time, for plots."""

    seconds: float
    """Since the run began, to the middle of the stretch."""
    power_w: float | None
    power_limit_w: float | None
    tokens_per_s: float | None
    acceptance_length: float | None


class Story(Struct, frozen=True, kw_only=True):
    """One run."""

    run: RunLine
    whole: Side
    flag_sets: tuple[Side, ...]
    launches: tuple[LaunchLine, ...]
    tells: tuple[TellLine, ...]
    commands: tuple[CommandLine, ...]
    changes: tuple[ChangeLine, ...]
    moments: tuple[Moment, ...] = ()


_MOMENTS = """
    WITH each_server AS (
        SELECT floor((epoch(taken_at) - ?) / ?) AS slot, launch, sum(tokens) / nullif(sum(seconds), 0) AS tokens_per_s,
            sum(acceptance_length * tokens) AS accepted, sum(tokens) FILTER (acceptance_length IS NOT NULL) AS weight
        FROM server_samples WHERE run = ? GROUP BY slot, launch
    ), servers AS (
        SELECT slot, sum(tokens_per_s) AS tokens_per_s, sum(accepted) / nullif(sum(weight), 0) AS acceptance_length
        FROM each_server GROUP BY slot
    ), each_gpu AS (
        SELECT floor((epoch(taken_at) - ?) / ?) AS slot, gpu_uuid, avg(power_limit_w) AS power_limit_w,
            coalesce(sum(energy_j) / nullif(sum(seconds) FILTER (energy_j IS NOT NULL), 0), avg(power_w)) AS power_w
        FROM gpu_samples WHERE run = ? GROUP BY slot, gpu_uuid
    ), gpus AS (
        SELECT slot, sum(power_w) AS power_w, sum(power_limit_w) AS power_limit_w FROM each_gpu GROUP BY slot
    )
    SELECT (slot + 0.5) * ? AS seconds, power_w, power_limit_w, tokens_per_s, acceptance_length
    FROM gpus FULL JOIN servers USING (slot) ORDER BY slot
    """


def story(path: Path, wanted: str, *, plots: bool = False) -> Story:
    """One run by its key, the beginning of it, or "last". Raises `LogError`."""
    catch_up(path)
    with reading(path) as connection:
        run = find_run(connection, wanted)

        def all_of(table: str, order: str) -> list[object]:
            return list(records(connection, f"FROM {table} WHERE run = ? ORDER BY {order}", run))

        line = msgspec.convert(records(connection, "FROM run_list WHERE run = ?", run)[0], RunLine)
        sets = records(
            connection,
            "SELECT flag_set FROM launches WHERE run = ? GROUP BY flag_set ORDER BY min(started_at)",
            run,
        )
        moments: list[object] = []
        if plots:
            start = line.started_at_s
            step = max(_STEP_S, (line.seconds or 1.0) / _POINTS)
            moments = list(records(connection, _MOMENTS, start, step, run, start, step, run, step))
        return Story(
            run=alive(path, line),
            whole=side(connection, run),
            flag_sets=tuple(side(connection, f"{run}/{row['flag_set']}") for row in sets),
            launches=msgspec.convert(all_of("launches", "started_at"), tuple[LaunchLine, ...]),
            tells=msgspec.convert(all_of("tells", "since_at"), tuple[TellLine, ...]),
            commands=msgspec.convert(all_of("commands", "given_at"), tuple[CommandLine, ...]),
            changes=msgspec.convert(all_of("changes", "started_at"), tuple[ChangeLine, ...]),
            moments=msgspec.convert(moments, tuple[Moment, ...]),
        )
