"""The simulated GPU against the table it was fitted to: tokens/s, watts and joules per token."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from genmon.config.schema import SimulationConfig
from genmon.sim import physics
from genmon.sim.gpu import SimulatedGpus
from tests.simulated import MTP, SimulatedProcess, chat, simulated, until

MEASURED = [
    # running, MTP, tokens/s, watts, joules per token: one H200, 256-token answers, closed loop
    (1, False, 64.4, 539, 8.37),
    (8, False, 440.6, 528, 1.20),
    (32, False, 1462.9, 604, 0.41),
    (64, False, 2372.7, 675, 0.28),
    (1, True, 120.1, 476, 3.96),
    (8, True, 699.0, 533, 0.76),
    (32, True, 1706.8, 649, 0.38),
    (64, True, 2161.0, 680, 0.31),
]


@pytest.mark.parametrize(("running", "mtp", "tokens_per_s", "power_w", "joules"), MEASURED)
def test_the_table(running: int, mtp: bool, tokens_per_s: float, power_w: float, joules: float) -> None:
    assert physics.tokens_per_s(running, mtp) == pytest.approx(tokens_per_s, rel=0.01)
    assert physics.power_w(running, mtp) == pytest.approx(power_w, rel=0.01)
    ratio = physics.power_w(running, mtp) / physics.tokens_per_s(running, mtp)
    assert ratio == pytest.approx(joules, rel=0.05)


@pytest.mark.parametrize("mtp", [False, True])
def test_between_and_above_the_points_it_rises_and_stays_under_the_limit(mtp: bool) -> None:
    rates = [physics.tokens_per_s(running, mtp) for running in range(200)]
    assert rates == sorted(rates)
    assert rates[0] == 0
    assert all(physics.power_w(running, mtp) <= physics.POWER_LIMIT_W for running in range(200))
    assert physics.power_w(0, mtp) == physics.LOADED_IDLE_W


def test_mtp_stops_paying_between_32_and_64() -> None:
    assert physics.tokens_per_s(32, True) > physics.tokens_per_s(32, False)
    assert physics.tokens_per_s(64, True) < physics.tokens_per_s(64, False)


def test_acceptance_is_2_8_of_three_steps_and_never_above_steps_plus_one() -> None:
    assert physics.acceptance_length(3) == pytest.approx(2.8, abs=0.01)
    for steps in range(1, 8):
        assert 1 < physics.acceptance_length(steps) < steps + 1


def closed_loop(folder: Path, running: int, mtp: bool, seconds: float) -> tuple[float, float]:
    """(tokens/s, watts) of one server kept at `running` requests, from its live counter and the energy counter."""
    simulation = SimulationConfig(gpus=1, startup_s=0.1)
    gpus = SimulatedGpus(simulation, folder / "loads")
    gpus.start()
    ended = threading.Event()
    flags = ("--disable-radix-cache", "--max-running-requests", "64", *(MTP if mtp else ()))

    def work(server: SimulatedProcess, number: int) -> None:
        while not ended.is_set():
            chat(server.url, f"{number}", max_tokens=256, ignore_eos=True)

    def reading(server: SimulatedProcess) -> tuple[float, float, float]:
        energy_j = gpus.latest()[0].energy_j
        assert energy_j is not None
        return time.monotonic(), server.metric("realtime_tokens_total", 'mode="decode"'), energy_j

    try:
        with (
            simulated(folder, simulation, *flags, load_path=gpus.load_path(0)) as server,
            ThreadPoolExecutor(running) as pool,
        ):
            for number in range(running):
                pool.submit(work, server, number)
            until(lambda: server.loads()["num_running_reqs"] == running, "the batch is full")
            until(lambda: gpus.latest()[0].power_instant_w == physics.power_w(running, mtp), "its watts")
            begin = reading(server)
            ended.wait(seconds)
            end = reading(server)
            ended.set()
            server.process.kill()
    finally:
        gpus.close()
    took_s = end[0] - begin[0]
    return (end[1] - begin[1]) / took_s, (end[2] - begin[2]) / took_s


def test_a_short_closed_loop_spends_the_joules_per_token_that_were_measured(tmp_path: Path) -> None:
    tokens_per_s, power_w = closed_loop(tmp_path, 8, True, 1.5)
    assert tokens_per_s == pytest.approx(699.0, rel=0.15)
    assert power_w / tokens_per_s == pytest.approx(0.76, rel=0.15)


@pytest.mark.slow
@pytest.mark.parametrize(("running", "mtp", "tokens_per_s", "power_w", "joules"), MEASURED)
def test_closed_loops(
    running: int, mtp: bool, tokens_per_s: float, power_w: float, joules: float, tmp_path: Path
) -> None:
    rate, watts = closed_loop(tmp_path, running, mtp, 12.0)
    assert rate == pytest.approx(tokens_per_s, rel=0.15)
    assert watts == pytest.approx(power_w, rel=0.15)
    assert watts / rate == pytest.approx(joules, rel=0.15)
