"""Energy and tokens since the run began, from counters that may start anew."""

from __future__ import annotations

from collections import deque

from genmon.state import GpuSample, ServerState

_WINDOW_S = 60.0


class Meter:
    """Adds up what the GPUs' energy counters and the servers' token counters gained.

    A counter that went backwards has started anew (a driver reload, a server restart): it then counts from 0.
    """

    def __init__(self) -> None:
        self._energy_j: dict[str, float] = {}
        self._tokens: dict[str, tuple[int, int]] = {}
        self._window: deque[tuple[float, float, int]] = deque()
        self.energy_j: float | None = None
        """Joules of all GPUs since the first sample; None when no GPU has a counter."""
        self.tokens = 0
        """Tokens decoded by all servers since they were first seen."""

    def add(self, gpus: tuple[GpuSample, ...], servers: tuple[ServerState, ...], now: float) -> None:
        """Take in one poll, at `now` seconds."""
        for gpu in gpus:
            if gpu.energy_j is None:
                continue
            before = self._energy_j.get(gpu.uuid, gpu.energy_j)
            gained = gpu.energy_j - before if gpu.energy_j >= before else gpu.energy_j
            self._energy_j[gpu.uuid] = gpu.energy_j
            self.energy_j = (self.energy_j or 0.0) + gained
        for server in servers:
            if server.decode_tokens is None:
                continue
            launch, counted = self._tokens.get(server.name, (server.launches, server.decode_tokens))
            restarted = launch != server.launches or server.decode_tokens < counted
            self.tokens += server.decode_tokens - (0 if restarted else counted)
            self._tokens[server.name] = (server.launches, server.decode_tokens)
        if self.energy_j is not None:
            self._window.append((now, self.energy_j, self.tokens))
            while self._window[0][0] < now - _WINDOW_S:
                self._window.popleft()

    @property
    def joules_per_token(self) -> float | None:
        """Joules per decoded token over the last minute; None without a counter or without a token."""
        if not self._window:
            return None
        (_, first_j, first_tokens), (_, last_j, last_tokens) = self._window[0], self._window[-1]
        return (last_j - first_j) / (last_tokens - first_tokens) if last_tokens > first_tokens else None
