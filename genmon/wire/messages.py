"""What crosses the wire, and how it is framed.

A view connects, both say hello in one JSON line each, and then speak in frames: four bytes of length (big-endian)
and a msgpack message. What the engine sends is one zstd stream, flushed after each frame: a state differs from the
last one by a few numbers, and eight servers at 1 Hz fit a slow link.

Either end ignores fields that it does not know, so both may grow fields; `WIRE` rises when an old meaning breaks.
"""

from __future__ import annotations

import struct

import msgspec
import zstandard
from msgspec import Struct

from genmon.commands import Command, Plan
from genmon.history import Track
from genmon.state import State
from genmon.wire.link import LogLines

WIRE = 1
MAX_FRAME_B = 64 << 20
"""No frame is near this: a longer one means that the other end does not speak this wire."""
HELLO_LINE_B = 64 << 10
_WINDOW_LOG = 21
"""2 MiB: the last states must lie in the compressor's window, or every one is sent anew."""


class EngineHello(Struct, frozen=True, kw_only=True):
    """The engine's first line. With `refused` set nothing follows."""

    wire: int
    genmon: str
    pid: int
    run: str
    directory: str
    refused: str | None = None


class ViewHello(Struct, frozen=True, kw_only=True):
    """A view's first line; `by` says who looks, in words, for the record of commands."""

    wire: int
    genmon: str
    by: str = ""


class Snapshot(Struct, frozen=True, tag="state"):
    """The latest picture. A slow view misses some and always gets the last."""

    state: State


class Past(Struct, frozen=True, tag="past"):
    """What the plots show of the time before this view came."""

    tracks: tuple[Track, ...]


class Log(Struct, frozen=True, tag="log"):
    """New lines of the log that this view follows."""

    lines: LogLines


class Reply(Struct, frozen=True, kw_only=True, tag="reply"):
    """The answer to an `Ask`: what happens now, or what would, or why not."""

    id: int
    sentence: str = ""
    plan: Plan | None = None
    refused: str | None = None


class Ask(Struct, frozen=True, kw_only=True, tag="ask"):
    """A command; with `only_plan` it is not obeyed, only thought through."""

    id: int
    command: Command
    only_plan: bool = False


class Follow(Struct, frozen=True, tag="follow"):
    """Send this server's log; None ends that."""

    server: str | None


FromEngine = Snapshot | Past | Log | Reply
FromView = Ask | Follow


class FrameWriter:
    """Messages → bytes. With `compress`, all frames are one zstd stream."""

    def __init__(self, *, compress: bool) -> None:
        parameters = zstandard.ZstdCompressionParameters.from_level(3, window_log=_WINDOW_LOG)
        self._zstd = zstandard.ZstdCompressor(compression_params=parameters).compressobj() if compress else None
        self._encoder = msgspec.msgpack.Encoder()

    def pack(self, message: FromEngine | FromView) -> bytes:
        """One frame."""
        body = self._encoder.encode(message)
        frame = struct.pack(">I", len(body)) + body
        if self._zstd is None:
            return frame
        return self._zstd.compress(frame) + self._zstd.flush(zstandard.COMPRESSOBJ_FLUSH_BLOCK)


class FrameReader:
    """Bytes, cut anywhere → the bodies of whole frames."""

    def __init__(self, *, compressed: bool) -> None:
        self._zstd = zstandard.ZstdDecompressor(max_window_size=1 << 27).decompressobj() if compressed else None
        self._buffer = bytearray()

    def feed(self, data: bytes) -> list[bytes]:
        """Take bytes in; the frames that are whole now.

        Raises:
            ValueError: this is not our wire.
        """
        try:
            self._buffer += self._zstd.decompress(data) if self._zstd is not None else data
        except zstandard.ZstdError as error:
            raise ValueError(f"not a zstd stream: {error}") from None
        bodies = []
        while len(self._buffer) >= 4:
            (length,) = struct.unpack_from(">I", self._buffer)
            if length > MAX_FRAME_B:
                raise ValueError(f"a frame of {length:,} bytes")
            if len(self._buffer) < 4 + length:
                break
            bodies.append(bytes(self._buffer[4 : 4 + length]))
            del self._buffer[: 4 + length]
        return bodies
