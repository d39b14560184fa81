"""A closed loop of C requests on one server: when one ends the next begins, so that C are always in flight."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from statistics import median
from uuid import uuid4

from msgspec import Struct

from genmon.config.schema import SamplingConfig
from genmon.engine.generate import request_params
from genmon.engine.hosts import ChatRequest, Host
from genmon.errors import GenmonError
from genmon.job.row import Row

_STREAMS = 4
"""So many of the C requests are streamed, for the times; a stream costs the client more than it may take."""


class Times(Struct, frozen=True):
    """When a streamed request's tokens came, seconds (monotonic)."""

    sent_at: float
    first_at: float
    last_at: float
    tokens: int | None


class Load:
    """Keeps `concurrency` requests in flight on `server`. Use with `async with`."""

    def __init__(
        self, host: Host, server: str, concurrency: int, rows: Iterator[Row], sampling: SamplingConfig
    ) -> None:
        """`rows` never ends; only each row's first turn is sent."""
        self._host, self._server, self._rows, self._sampling = host, server, rows, sampling
        self._concurrency = concurrency
        self._workers: list[asyncio.Task[None]] = []
        self._window_at = 0.0
        self.times: list[Times] = []
        """Of streams that have ended, or were cut when the load ended."""
        self.finished_tokens: list[int] = []
        self.trouble: str | None = None
        """The last failed request's reason."""

    async def __aenter__(self) -> Load:
        self._workers = [
            asyncio.create_task((self._stream_for_ever if number < _STREAMS else self._send_for_ever)(number))
            for number in range(self._concurrency)
        ]
        return self

    async def __aexit__(self, *_: object) -> None:
        for worker in self._workers:
            worker.cancel()
        await asyncio.wait(self._workers)

    def begin_window(self) -> None:
        """The warm-up is over."""
        self._window_at = time.monotonic()
        self.finished_tokens.clear()

    @property
    def ttft_s(self) -> float | None:
        """Median time to the first token of requests sent since the window began; if none was, of all."""
        fresh = [times for times in self.times if times.sent_at >= self._window_at]
        return median(times.first_at - times.sent_at for times in fresh or self.times) if self.times else None

    @property
    def itl_s(self) -> float | None:
        """Median over the window's streams, ended or cut, of their mean time between tokens."""
        known = [
            (times.last_at - times.first_at) / (times.tokens - 1)
            for times in self.times
            if times.last_at >= self._window_at and times.tokens is not None and times.tokens > 1
        ]
        return median(known) if known else None

    def _request(self, part: float = 1.0) -> ChatRequest:
        """The next row's first turn, cut to a part of its ceiling."""
        row = next(self._rows)
        params = request_params(row, self._sampling, attempt=1)
        ceiling = params.get("max_tokens")
        if isinstance(ceiling, int):
            params["max_tokens"] = max(1, round(ceiling * part))
        return ChatRequest(rid=uuid4().hex, messages=row.turns[0], params=params, tools=row.tools)

    def _first_part(self, number: int) -> float:
        """First requests end one after the other: if all began and ended together, so would all that follow."""
        return (number + 1) / self._concurrency

    async def _send_for_ever(self, number: int) -> None:
        part = self._first_part(number)
        while True:
            request, part = self._request(part), 1.0
            try:
                answer = await self._host.complete(self._server, request)
            except GenmonError as error:
                await self._rest(error)
            else:
                self._ended(answer.completion_tokens)

    async def _stream_for_ever(self, number: int) -> None:
        part = self._first_part(number)
        while True:
            request, part = self._request(part), 1.0
            sent_at = time.monotonic()
            first_at: float | None = None
            last_at = sent_at
            tokens: int | None = None
            try:
                async for so_far in self._host.stream(self._server, request):
                    tokens, last_at = so_far, time.monotonic()
                    first_at = first_at or last_at
            except GenmonError as error:
                await self._rest(error)
                continue
            finally:
                if first_at is not None:
                    self.times.append(Times(sent_at, first_at, last_at, tokens))
            self._ended(tokens)

    def _ended(self, tokens: int | None) -> None:
        if tokens is not None:
            self.finished_tokens.append(tokens)

    async def _rest(self, error: GenmonError) -> None:
        self.trouble = str(error)
        await asyncio.sleep(0.5)
