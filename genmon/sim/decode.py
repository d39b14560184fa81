"""The simulated scheduler: a queue, a batch, and a clock that hands out tokens at the measured rate."""

from __future__ import annotations

import asyncio
import bisect
import math
import random
import time
import zlib
from collections import deque
from dataclasses import dataclass, field

from genmon.config.schema import SimulationConfig
from genmon.sim import physics
from genmon.sim.arguments import NEW, Arguments, numbers
from genmon.sim.log import log

_TICK_S = 0.03
_LENGTH_SIGMA = 0.6
"""Spread of the logarithm of answer lengths: the longest of a hundred is four times the median."""
_LOG_EVERY_STEPS = 40
_IDLE_REPORT_S = 30.0
"""An idle 0.5.11 refreshes its gauges only this often: until then they say what the last batch was."""
_KV_TOKENS = {False: 928_864, True: 268_469}
"""KV-cache room as logged on the H200, MTP off and on."""
LATENCY_BOUNDS_S = (0.1, 0.2, 0.4, 0.6, 0.8, 1, 2, 4, 6, 8, 10, 20, 40, 60, 80, 100, 200, 400, 600, 1200, 1800, 2400)
"""Upper bounds of the buckets of sglang:e2e_request_latency_seconds."""
_FATES = ("good", "empty", "loop", "unclosed", "abort")


@dataclass(eq=False)
class Request:
    """One request in the simulated scheduler."""

    rid: str
    prompt_tokens: int
    length: int
    thought: int
    """Tokens of thinking before the answer begins; more than `length` when it is cut before that."""
    ends: str
    seed: int
    fate: str
    thinking: bool
    streaming: bool
    acceptance: float
    tokens: float = 0.0
    arrived: float = field(default_factory=time.monotonic)
    done: asyncio.Event = field(default_factory=asyncio.Event)
    aborted: bool = False
    progress: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def completion_tokens(self) -> int:
        """Whole tokens so far; a finished request has at least one."""
        return max(1, int(self.tokens + 1e-6)) if self.done.is_set() else int(self.tokens + 1e-6)


@dataclass
class Gauges:
    """What `/metrics` and the log say of the batch: the values of the last report, not of now."""

    running: int = 0
    queued: int = 0
    gen_throughput: float = 0.0
    kv_usage: float = 0.0
    mamba_usage: float = 0.0
    acceptance_length: float = 0.0
    """Of the last 40 steps; 0 when speculation is off."""


@dataclass
class Finished:
    """Counters that move when a request ends, apart for streaming and other requests."""

    requests: int = 0
    prompt_tokens: int = 0
    tokens: int = 0
    latency_s: float = 0.0
    """Sum over all."""
    latency_counts: list[int] = field(default_factory=lambda: [0] * (len(LATENCY_BOUNDS_S) + 1))
    """Requests by `LATENCY_BOUNDS_S`, the last for those above all."""


class Scheduler:
    """Admits requests up to the cap, first come first served, and decodes them all at one pace."""

    def __init__(self, arguments: Arguments, simulation: SimulationConfig, gpu_index: int) -> None:
        """`gpu_index` makes the faults of each server its own."""
        self.arguments, self.simulation = arguments, simulation
        self.kv_tokens = _KV_TOKENS[arguments.mtp]
        self.queue: deque[Request] = deque()
        self.running: list[Request] = []
        self.decoded = self.prefilled = self.aborted = 0
        self.finished = {False: Finished(), True: Finished()}
        """By whether the request was a stream."""
        self.gauges = Gauges()
        self.hung = False
        self._new = numbers(simulation.version) >= NEW
        self._chance = random.Random(simulation.seed * 1009 + gpu_index)
        self._acceptance = physics.acceptance_length(arguments.steps) if arguments.mtp else 1.0
        self._steps = self._decoded_owed = 0.0
        self._logged_steps, self._logged_tokens, self._logged_at = 0.0, 0, time.monotonic()
        self._accepted_tokens = self._accepted_steps = 0.0
        self._wake = asyncio.Event()

    def admit(
        self, *, rid: str, prompt: str, max_tokens: int, ignore_eos: bool, thinking: bool, streaming: bool
    ) -> Request:
        """Take a request into the queue."""
        simulation = self.simulation
        seed = zlib.crc32(prompt.encode())
        chance = random.Random(seed)
        mean = math.log(simulation.output_tokens) - _LENGTH_SIGMA**2 / 2
        wanted = max(2, round(chance.lognormvariate(mean, _LENGTH_SIGMA)))
        cut = ignore_eos or wanted >= max_tokens
        shares = (
            simulation.empty_share,
            simulation.loop_share,
            simulation.unclosed_share,
            simulation.abort_share,
        )
        request = Request(
            rid=rid,
            prompt_tokens=max(1, len(prompt) // 4),
            length=max(1, max_tokens if cut else wanted),
            thought=wanted * 2 // 3,
            ends="length" if cut else "stop",
            seed=seed,
            fate=self._chance.choices(_FATES, [max(0.0, 1 - sum(shares)), *shares])[0],
            thinking=thinking,
            streaming=streaming,
            acceptance=min(max(1.0, self._acceptance * chance.uniform(0.9, 1.1)), self.arguments.steps + 1),
        )
        self.queue.append(request)
        self._wake.set()
        return request

    def abort(self, prefix: str | None) -> None:
        """Abort by prefix of the request id, as SGLang does; None aborts all."""
        for request in [*self.running, *self.queue]:
            if prefix is None or request.rid.startswith(prefix):
                self.drop(request)

    def drop(self, request: Request) -> None:
        """Take a request out, unfinished; nothing happens to a finished one."""
        if request.done.is_set():
            return
        self.aborted += 1
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

    @property
    def lifetime_acceptance(self) -> float | None:
        """Tokens per verify step since the start or the last `reset_acceptance`; None when there is none to tell."""
        return self._accepted_tokens / self._accepted_steps if self._accepted_steps else None

    def reset_acceptance(self) -> None:
        """Forget it, as `/flush_cache` makes SGLang do."""
        self._accepted_tokens = self._accepted_steps = 0.0

    async def decode(self) -> None:
        """Hand out tokens for ever."""
        before = time.monotonic()
        while True:
            if self.idle:
                await self._rest()
                before = time.monotonic()
            await asyncio.sleep(_TICK_S)
            now = time.monotonic()
            if not self.hung:
                self._step(now - before)
            before = now

    async def _rest(self) -> None:
        """Wait for work; what the gauges say meanwhile differs between the versions."""
        self._wake.clear()
        if self._new:
            self.gauges = Gauges()
        try:
            await asyncio.wait_for(self._wake.wait(), _IDLE_REPORT_S)
        except TimeoutError:
            self.gauges = Gauges()
            await self._wake.wait()

    def _step(self, elapsed_s: float) -> None:
        self._prefill()
        if not self.running:
            return
        rate = physics.tokens_per_s(len(self.running), self.arguments.mtp)
        share = rate * elapsed_s / len(self.running)
        given = 0.0
        for request in list(self.running):
            gained = min(share, request.length - request.tokens)
            request.tokens += gained
            given += gained
            if request.streaming:
                request.progress.set()
            if request.tokens >= request.length - 1e-6:
                self.running.remove(request)
                self._finish(request)
        self._decoded_owed += given
        whole = int(self._decoded_owed)
        self.decoded += whole
        self._decoded_owed -= whole
        self._steps += share / self._acceptance
        if self._steps - self._logged_steps >= _LOG_EVERY_STEPS:
            self._report()

    def _prefill(self) -> None:
        before, new_tokens = len(self.running), 0
        while self.queue and len(self.running) < self.arguments.cap:
            request = self.queue.popleft()
            self.running.append(request)
            new_tokens += request.prompt_tokens
        if len(self.running) == before:
            return
        self.prefilled += new_tokens
        self._take_gauges()
        log(
            f"Prefill batch, #new-seq: {len(self.running) - before}, #new-token: {new_tokens}, #cached-token: 0, "
            f"full token usage: {self.gauges.kv_usage:.2f}, mamba usage: {self.gauges.mamba_usage:.2f}, "
            f"#running-req: {before}, #queue-req: {len(self.queue)}, #pending-token: 0, "
            "cuda graph: False, input throughput (token/s): 1200.00"
        )

    def _finish(self, request: Request) -> None:
        counted = self.finished[request.streaming]
        counted.requests += 1
        counted.prompt_tokens += request.prompt_tokens
        counted.tokens += request.length
        latency_s = time.monotonic() - request.arrived
        counted.latency_s += latency_s
        counted.latency_counts[bisect.bisect_left(LATENCY_BOUNDS_S, latency_s)] += 1
        request.done.set()
        request.progress.set()

    def _take_gauges(self) -> None:
        gauges = self.gauges
        gauges.running, gauges.queued = len(self.running), len(self.queue)
        gauges.kv_usage = self.tokens_held / self.kv_tokens
        gauges.mamba_usage = len(self.running) / self.arguments.cap

    def _report(self) -> None:
        """The line and the gauges that SGLang refreshes every 40 steps."""
        now = time.monotonic()
        self._take_gauges()
        gauges = self.gauges
        gauges.gen_throughput = (self.decoded - self._logged_tokens) / max(now - self._logged_at, 1e-6)
        spec = ""
        if self.arguments.mtp:
            most = self.arguments.steps + 1
            gauges.acceptance_length = min(max(1.0, self._acceptance + self._chance.uniform(-0.12, 0.12)), most)
            self._accepted_steps += _LOG_EVERY_STEPS
            self._accepted_tokens += gauges.acceptance_length * _LOG_EVERY_STEPS
            spec = f"accept len: {gauges.acceptance_length:.2f}, accept rate: {self.accept_rate:.2f}, "
        log(
            f"Decode batch, #running-req: {gauges.running}, #full token: {self.tokens_held}, full token usage: "
            f"{gauges.kv_usage:.2f}, mamba num: {gauges.running}, mamba usage: {gauges.mamba_usage:.2f}, {spec}"
            f"cuda graph: True, gen throughput (token/s): {gauges.gen_throughput:.2f}, #queue-req: {gauges.queued}"
        )
        self._logged_steps, self._logged_tokens, self._logged_at = self._steps, self.decoded, now

    @property
    def passes(self) -> int:
        """Decode passes since the start."""
        return int(self._steps)

    @property
    def accept_rate(self) -> float:
        """Share of the draft tokens accepted in the last 40 steps."""
        return max(0.0, self.gauges.acceptance_length - 1) / self.arguments.steps

    @property
    def tokens_held(self) -> int:
        """Tokens in the KV cache."""
        return sum(request.prompt_tokens + int(request.tokens) for request in self.running)
