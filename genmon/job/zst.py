"""A .zst file as a stream of bytes that says when the file was cut short: the one door to zstandard."""

from __future__ import annotations

import io
from pathlib import Path
from typing import TYPE_CHECKING

import zstandard

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

_CHUNK_B = 1 << 17


class ZstFile(io.RawIOBase):
    """Reads frame after frame. zstandard's own reader takes a torn frame for the end of the file.

    `read` raises `EOFError` when the file ends inside a frame, `ValueError` when it is no zstd.
    """

    def __init__(self, path: Path) -> None:
        """Opens the file."""
        self._file = path.open("rb", buffering=0)
        self._context = zstandard.ZstdDecompressor()
        self._frame: zstandard.ZstdDecompressionObj | None = None
        self._packed = b""
        self._plain = memoryview(b"")

    def readable(self) -> bool:
        """Always."""
        return True

    def readinto(self, buffer: WriteableBuffer) -> int:
        """Fill a buffer; 0 at the end."""
        while not self._plain:
            self._packed = self._packed or self._file.read(_CHUNK_B)
            if not self._packed:
                if self._frame is not None:
                    raise EOFError("the file ends in the middle of a zstd frame")
                return 0
            self._frame = self._frame or self._context.decompressobj()
            try:
                self._plain = memoryview(self._frame.decompress(self._packed))
            except zstandard.ZstdError as error:
                raise ValueError(str(error)) from error
            self._packed = b""
            if self._frame.eof:
                self._packed, self._frame = self._frame.unused_data, None
        view = memoryview(buffer).cast("B")
        count = min(len(view), len(self._plain))
        view[:count], self._plain = self._plain[:count], self._plain[count:]
        return count

    def close(self) -> None:
        """Close the file."""
        self._file.close()
        super().close()
