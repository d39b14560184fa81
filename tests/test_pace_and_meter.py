"""Rates, ETA and energy from counters that may start anew."""

from __future__ import annotations

import math

import pytest

from genmon.engine.meter import Meter
from genmon.engine.pace import Pace
from genmon.figures import count, decimal, duration, energy, share, watts
from genmon.state import GpuSample, ServerPhase, ServerState


def gpu(energy_j: float | None, uuid: str = "GPU-a") -> GpuSample:
    return GpuSample(host="h", index=0, uuid=uuid, name="card", taken_at=0.0, energy_j=energy_j)


def server(decode_tokens: int | None, launches: int = 1) -> ServerState:
    return ServerState(
        host="h",
        name="s0",
        url="",
        phase=ServerPhase.READY,
        since=0.0,
        decode_tokens=decode_tokens,
        launches=launches,
    )


def test_nothing_is_known_before_the_first_row() -> None:
    pace = Pace(100.0)
    assert pace.rows_per_s(130.0) is None
    assert pace.eta_s(10, 130.0) is None


def test_a_steady_pace_has_a_narrow_eta() -> None:
    pace = Pace(0.0)
    for second in range(120):
        pace.add(4, float(second))
    assert pace.rows_per_s(120.0) == pytest.approx(4.0, rel=0.1)
    eta = pace.eta_s(400, 120.0)
    assert eta is not None
    expected, low, high = eta
    assert expected == pytest.approx(100.0, rel=0.02)
    assert low == pytest.approx(high)


def test_an_uneven_pace_has_a_wide_eta() -> None:
    pace = Pace(0.0)
    for second in range(0, 120, 10):
        pace.add(40 if second % 20 else 4, float(second))
    eta = pace.eta_s(400, 120.0)
    assert eta is not None
    expected, low, high = eta
    assert low < expected * 0.8
    assert high > expected * 1.3 or math.isinf(high)


def test_energy_and_tokens_add_up_over_counters_that_start_anew() -> None:
    meter = Meter()
    meter.add((gpu(1000.0),), (server(0),), 0.0)
    meter.add((gpu(1500.0),), (server(100),), 1.0)
    meter.add((gpu(50.0),), (server(20, launches=2),), 2.0)
    assert meter.energy_j == pytest.approx(550.0)
    assert meter.tokens == 120
    assert meter.joules_per_token == pytest.approx(550 / 120)


def test_without_a_counter_energy_is_unknown_not_zero() -> None:
    meter = Meter()
    meter.add((gpu(None),), (server(10),), 0.0)
    assert meter.energy_j is None
    assert meter.joules_per_token is None


def test_figures_say_unknown_as_a_dash() -> None:
    assert {count(None), decimal(None), share(None), duration(None), energy(None), duration(math.inf)} == {"–"}
    assert watts(None, 600.0) == "– W"


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(45, "45 s"), (75, "1 min 15 s"), (1800, "30 min"), (7800, "2 h 10 min"), (277_200, "3 d 5 h")],
)
def test_durations_name_their_two_largest_units(seconds: float, words: str) -> None:
    assert duration(seconds) == words


def test_large_counts_are_shortened() -> None:
    assert [count(value) for value in (0, 99_999, 902_087, 4_500_000_000)] == ["0", "99,999", "902k", "4.5G"]


def test_energy_reads_in_the_unit_that_fits() -> None:
    assert [energy(value) for value in (12, 34_000, 7.2e6)] == ["12 J", "34.0 kJ", "2.00 kWh"]
