"""Automatic concurrency on simulated servers whose true best setting is known."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from genmon.engine.knee import Knee
from genmon.sim.physics import tokens_per_s
from genmon.state import ServerPhase, ServerState

Curve = Callable[[int], float]
CURVES: dict[str, tuple[int, Curve]] = {
    "MTP off, cap 64": (64, lambda running: tokens_per_s(running, False)),
    "MTP on, cap 48": (48, lambda running: tokens_per_s(running, True)),
    "full at 16 of 96": (96, lambda running: 2000.0 * min(1.0, running / 16)),
    "retracts above 40 of 128": (
        128,
        lambda running: 60.0 * running * (1.0 if running <= 40 else (40 / running) ** 1.6),
    ),
}


class Box:
    """One server in a closed loop: rows leave one by one, so a lower limit is reached slowly."""

    def __init__(self, cap: int, curve: Curve, seed: int = 0, noise: float = 0.03) -> None:
        self.cap, self.curve, self.noise = cap, curve, noise
        self.random = random.Random(seed)
        self.knee = Knee()
        self.now = self.tokens = 0.0
        self.in_flight = 0
        self.mtp = False
        self.said: list[str] = []
        self.limits: list[int] = []

    def run(self, seconds: int) -> Box:
        for _ in range(seconds):
            limit = self.knee.limit or self.cap
            self.in_flight += max(-2, min(limit - self.in_flight, limit))
            self.now += 1.0
            self.tokens += self.curve(self.in_flight) * self.random.gauss(1.0, self.noise)
            state = ServerState(
                host="here",
                name="s0",
                url="http://127.0.0.1:1",
                phase=ServerPhase.READY,
                since=0.0,
                cap=self.cap,
                mtp=self.mtp,
                queued=0,
                decode_tokens=int(self.tokens),
            )
            if sentence := self.knee.hear(state, self.in_flight, self.now):
                self.said.append(sentence)
            self.limits.append(self.knee.limit or self.cap)
        return self

    @property
    def loss(self) -> float:
        """Share of the best fixed setting's tokens/s that the choice gives up."""
        best = max(self.curve(running) for running in range(1, self.cap + 1))
        return 1 - self.curve(self.knee.limit or self.cap) / best


@pytest.mark.parametrize("name", CURVES)
@pytest.mark.parametrize("seed", range(5))
def test_the_choice_is_within_3_percent_of_the_best_fixed_setting_and_stands(name: str, seed: int) -> None:
    box = Box(*CURVES[name], seed=seed).run(3600)
    assert len(box.said) == 1
    assert box.loss < 0.03
    settled = box.limits[-1]
    box.run(6 * 3600)
    assert set(box.limits[-6 * 3600 :]) == {settled}


def test_a_server_that_never_fills_is_left_at_its_cap() -> None:
    box = Box(64, lambda running: 10.0 * running)
    knee, state = box.knee, None
    for second in range(3600):
        state = ServerState(
            host="h",
            name="s0",
            url="u",
            phase=ServerPhase.READY,
            since=0.0,
            cap=64,
            queued=0,
            decode_tokens=second * 90,
        )
        assert knee.hear(state, 9, float(second)) is None
    assert knee.limit is None


def test_other_flags_are_searched_anew_and_known_ones_are_not() -> None:
    box = Box(64, lambda running: 2000.0 * min(1.0, running / 16)).run(1800)
    first = box.knee.limit
    assert first is not None
    assert first < 32
    box.mtp, box.curve = True, lambda running: 50.0 * running
    box.run(1800)
    assert (box.knee.limit or 64) == 64
    box.mtp = False
    box.run(1)
    assert box.knee.limit == first
    assert len(box.said) == 2


def test_a_workload_that_has_become_another_is_searched_again() -> None:
    box = Box(64, lambda running: 2000.0 * min(1.0, running / 16)).run(3600)
    box.curve = lambda running: 50.0 * running
    box.run(3 * 3600)
    assert (box.knee.limit or 64) == 64
    assert box.loss < 0.03


def test_a_small_cap_is_not_searched() -> None:
    box = Box(4, lambda running: 60.0 * running).run(3600)
    assert box.knee.limit is None
    assert box.said == []
