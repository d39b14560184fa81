"""The simulated scheduler: a queue, a batch, and a clock that hands out tokens at the measured rate."""

from __future__ import annotations

import asyncio
import math
import random
import time
import zlib
from collections import deque
from dataclasses import dataclass, field

from genmon.config.schema import SimulationConfig
from genmon.sim import physics
from genmon.sim.arguments import Arguments

_TICK_S = 0.03
_LENGTH_SIGMA = 0.6
"""Spread of the logarithm of answer lengths: the longest of a hundred is four times the median."""
_LOG_EVERY_STEPS = 40
KV_TOKENS = 928_864
"""KV-cache room as logged on the H200, MTP off."""


@dataclass(eq=False)
class Request:
    """One request in the simulated scheduler."""

    rid: str
    prompt_tokens: int
    length: int
    ends: str
    seed: int
    fate: str
    tokens: float = 0.0
    arrived: float = field(default_factory=time.monotonic)
    done: asyncio.Event = field(default_factory=asyncio.Event)
    aborted: bool = False
    progress: asyncio.Event = field(default_factory=asyncio.Event)


class Scheduler:
    """Admits requests up to the cap, first come first served, and decodes them all at one pace."""

    def __init__(self, arguments: Arguments, simulation: SimulationConfig, gpu_index: int) -> None:
        """`gpu_index` makes the faults of each server its own."""
        self.arguments, self.simulation = arguments, simulation
        self.queue: deque[Request] = deque()
        self.running: list[Request] = []
        self.decoded = self.prefilled = self.finished = self.finished_tokens = self.aborted = 0
        self.gen_throughput = 0.0
        self.acceptance_length: float | None = None
        self.hung = False
        self._chance = random.Random(simulation.seed * 1009 + gpu_index)
        self._steps = self._decoded_owed = 0.0
        self._logged_steps, self._logged_tokens, self._logged_at = 0.0, 0, time.monotonic()
        self._wake = asyncio.Event()

    def admit(self, rid: str, prompt: str, max_tokens: int, ignore_eos: bool) -> Request:
        """Take a request into the queue."""
        simulation = self.simulation
        seed = zlib.crc32(prompt.encode())
        mean = math.log(simulation.output_tokens) - _LENGTH_SIGMA**2 / 2
        wanted = max(2, round(random.Random(seed).lognormvariate(mean, _LENGTH_SIGMA)))
        length = max_tokens if ignore_eos else min(wanted, max_tokens)
        fates = ["good", "empty", "loop", "unclosed", "abort"]
        shares = [
            simulation.empty_share,
            simulation.loop_share,
            simulation.unclosed_share,
            simulation.abort_share,
        ]
        fate = self._chance.choices(fates, [max(0.0, 1 - sum(shares)), *shares])[0]
        request = Request(
            rid=rid,
            prompt_tokens=max(1, len(prompt) // 4),
            length=max(1, length),
            ends="length" if length == max_tokens and wanted >= max_tokens else "stop",
            seed=seed,
            fate=fate,
        )
        self.queue.append(request)
        self._wake.set()
        return request

    def abort(self, prefix: str | None) -> None:
        """Abort by prefix of the request id, as SGLang does; None aborts all."""
        for request in [*self.running, *self.queue]:
            if prefix is None or request.rid.startswith(prefix):
                self.aborted += 1
                self.drop(request)

    def drop(self, request: Request) -> None:
        """Take a request out, unfinished."""
        if request.done.is_set():
            return
        request.aborted = True
        if request in self.running:
            self.running.remove(request)
        elif request in self.queue:
            self.queue.remove(request)
        request.done.set()
        request.progress.set()

    @property
    def idle(self) -> bool:
        """Nothing queued, nothing running."""
        return not self.running and not self.queue

    async def decode(self) -> None:
        """Hand out tokens for ever."""
        before = time.monotonic()
        while True:
            if self.idle:
                self._wake.clear()
                await self._wake.wait()
                before = time.monotonic()
            await asyncio.sleep(_TICK_S)
            now = time.monotonic()
            if not self.hung:
                self._step(now - before)
            before = now

    def _step(self, elapsed_s: float) -> None:
        while self.queue and len(self.running) < self.arguments.cap:
            request = self.queue.popleft()
            self.running.append(request)
            self.prefilled += request.prompt_tokens
            _log(
                f"Prefill batch, #new-seq: 1, #new-token: {request.prompt_tokens}, #cached-token: 0, "
                f"full token usage: {self.kv_usage:.2f}, mamba usage: {self.mamba_usage:.2f}, "
                f"#running-req: {len(self.running) - 1}, #queue-req: {len(self.queue)}, #pending-token: 0, "
                "cuda graph: False, input throughput (token/s): 1200.00"
            )
        if not self.running:
            return
        rate = physics.tokens_per_s(len(self.running), self.arguments.mtp)
        share = rate * elapsed_s / len(self.running)
        given = 0.0
        for request in list(self.running):
            gained = min(share, request.length - request.tokens)
            request.tokens += gained
            given += gained
            request.progress.set()
            if request.tokens >= request.length - 1e-6:
                self.running.remove(request)
                self.finished += 1
                self.finished_tokens += request.length
                request.done.set()
        self._decoded_owed += given
        whole = int(self._decoded_owed)
        self.decoded += whole
        self._decoded_owed -= whole
        self._steps += share / (physics.ACCEPTANCE_LENGTH if self.arguments.mtp else 1.0)
        if self._steps - self._logged_steps >= _LOG_EVERY_STEPS:
            self._report()

    def _report(self) -> None:
        """The line and the gauges that SGLang refreshes every 40 steps."""
        now = time.monotonic()
        self.gen_throughput = (self.decoded - self._logged_tokens) / max(now - self._logged_at, 1e-6)
        spec = ""
        if self.arguments.mtp:
            self.acceptance_length = physics.ACCEPTANCE_LENGTH + self._chance.uniform(-0.12, 0.12)
            rate = (self.acceptance_length - 1) / self.arguments.steps
            spec = f"accept len: {self.acceptance_length:.2f}, accept rate: {rate:.2f}, "
        _log(
            f"Decode batch, #running-req: {len(self.running)}, #full token: {self.tokens_held}, full token usage: "
            f"{self.kv_usage:.2f}, mamba num: {len(self.running)}, mamba usage: {self.mamba_usage:.2f}, {spec}"
            f"cuda graph: True, gen throughput (token/s): {self.gen_throughput:.2f}, #queue-req: {len(self.queue)}"
        )
        self._logged_steps, self._logged_tokens, self._logged_at = self._steps, self.decoded, now

    @property
    def tokens_held(self) -> int:
        """Tokens in the KV cache."""
        return sum(request.prompt_tokens + int(request.tokens) for request in self.running)

    @property
    def kv_usage(self) -> float:
        """Share of the KV cache in use."""
        return self.tokens_held / KV_TOKENS

    @property
    def mamba_usage(self) -> float:
        """Share of the state slots in use."""
        return len(self.running) / self.arguments.cap


def _log(message: str) -> None:
    print(f"[{time.strftime('%Y-%m-%d %H:%M:%S')}] {message}", flush=False)
