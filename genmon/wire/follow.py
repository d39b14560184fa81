"""A server's log, followed: its last lines first, then what comes, never more than a view can take."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

_FIRST_B = 64 << 10
_FIRST_LINES = 200
_READ_B = 256 << 10
_LINES = 100
"""At most so many lines a call; a view that shows twenty gains nothing from ten thousand."""
_LINE_CHARS = 500


class LogFollower:
    """Reads one log file from near its end. A file that shrank or was replaced is read from its start."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._offset: int | None = None
        self._inode = 0
        self._torn = b""

    def read(self) -> tuple[tuple[str, ...], int]:
        """The lines since the last call, and how many before them were left out. A missing file has no lines."""
        try:
            with self.path.open("rb") as file:
                found = os.fstat(file.fileno())
                first = self._offset is None
                if self._offset is None:
                    self._offset = max(0, found.st_size - _FIRST_B)
                elif found.st_ino != self._inode or found.st_size < self._offset:
                    self._offset, self._torn = 0, b""
                self._inode = found.st_ino
                skipped_b = max(0, found.st_size - self._offset - _READ_B)
                if skipped_b:
                    self._offset, self._torn = self._offset + skipped_b, b""
                file.seek(self._offset)
                data = file.read(_READ_B)
        except OSError:
            return (), 0
        begins_inside = (first and self._offset > 0) or skipped_b > 0
        self._offset += len(data)
        *whole, self._torn = (self._torn + data).split(b"\n")
        if begins_inside and whole:
            del whole[0]
        lines = list(_clean(whole))
        kept = lines[-(_FIRST_LINES if first else _LINES) :]
        return tuple(kept), 0 if first else len(lines) - len(kept) + (1 if skipped_b else 0)


def _clean(lines: list[bytes]) -> Iterator[str]:
    """Printable text: a progress bar's last state, no control characters that would reach a terminal."""
    for line in lines:
        text = line.rstrip(b"\r").rpartition(b"\r")[2].decode("utf-8", "replace")
        text = "".join(c if c.isprintable() else " " for c in text.expandtabs(4)).rstrip()
        if text:
            yield text if len(text) <= _LINE_CHARS else text[: _LINE_CHARS - 1] + "…"
