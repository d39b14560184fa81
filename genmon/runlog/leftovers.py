"""Spools of engines that were killed: taken in, and their runs marked interrupted."""

from __future__ import annotations

import os
from pathlib import Path

from genmon.runlog.database import writing
from genmon.runlog.ingest import take_in
from genmon.runlog.spool import cut_torn_lines, lock, remove_folder, remove_segment, segments, spool_root

_INTERRUPTED = """
    UPDATE runs SET outcome = 'interrupted', ended_at = coalesce(last_seen_at, started_at),
        reason = 'its engine was killed' WHERE run = ? AND outcome IS NULL
    """


def take_in_leftovers(path: Path) -> int:
    """Take in every spool beside the log at `path` whose engine is gone. Returns how many there were.

    Raises:
        LogError: the log cannot be written now; nothing is lost.
    """
    taken = 0
    for folder in sorted(spool_root(path).glob("*")):
        try:
            held = lock(folder)
        except OSError:
            continue  # its engine lives, or another start was faster
        try:
            _take_in(path, folder)
            taken += 1
        finally:
            os.close(held)
    return taken


def _take_in(path: Path, folder: Path) -> None:
    cut_torn_lines(folder)
    for number in segments(folder):
        with writing(path) as connection:
            take_in(connection, folder, folder.name, number)
        remove_segment(folder, number)
    with writing(path) as connection:
        connection.execute(_INTERRUPTED, [folder.name])
    remove_folder(folder)
