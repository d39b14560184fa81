"""Simulated GPUs: what they draw follows what their servers publish, as NVML would tell it."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from genmon.config.schema import SimulationConfig
from genmon.gpu.source import GpuSource
from genmon.sim import physics
from genmon.sim.gpu import Load, SimulatedGpus, write_load
from genmon.state import GpuSample
from tests.simulated import simulated, until


@pytest.fixture
def gpus(tmp_path: Path) -> Iterator[SimulatedGpus]:
    source = SimulatedGpus(SimulationConfig(gpus=2), tmp_path / "loads")
    source.start()
    until(lambda: len(source.latest()) == 2, "a first sample of each")
    yield source
    source.close()


def first(source: GpuSource) -> GpuSample:
    return source.latest()[0]


def test_every_sample_says_simulated(gpus: SimulatedGpus) -> None:
    assert [info.name for info in gpus.infos()] == ["NVIDIA H200 (SIMULATED)"] * 2
    assert all(sample.simulated and "SIMULATED" in sample.name for sample in gpus.latest())
    assert len({info.uuid for info in gpus.infos()}) == 2
    assert [info.uuid for info in gpus.infos()] == [sample.uuid for sample in gpus.latest()]
    assert {info.power_limit_w for info in gpus.infos()} == {700.0}


def test_without_a_server_it_idles_and_its_memory_is_free(gpus: SimulatedGpus) -> None:
    sample = first(gpus)
    assert sample.power_w == sample.power_instant_w == physics.IDLE_W
    assert (sample.utilization, sample.memory_used_b, sample.reasons) == (0.0, 0, ("idle",))
    assert gpus.memory_used_b(sample.uuid) == 0
    assert gpus.compute_pids(sample.uuid) == ()
    assert gpus.memory_used_b("GPU-of-somebody-else") is None


def test_it_draws_what_its_load_draws_and_only_that_gpu(gpus: SimulatedGpus) -> None:
    write_load(gpus.load_path(0), Load(os.getpid(), True, 8, False))
    until(lambda: first(gpus).power_instant_w == physics.power_w(8, False), "the load is seen")
    sample = first(gpus)
    assert sample.power_w is not None
    assert sample.power_w < 528.0, "the average of a second comes later"
    assert sample.utilization == 1.0
    assert sample.memory_used_b == gpus.memory_used_b(sample.uuid) == physics.MEMORY_LOADED_B
    assert gpus.compute_pids(sample.uuid) == (os.getpid(),)
    assert gpus.latest()[1].power_instant_w == physics.IDLE_W
    until(lambda: first(gpus).power_w == pytest.approx(528.0), "the average has arrived")


def test_the_energy_counter_is_the_integral_of_the_power(gpus: SimulatedGpus) -> None:
    write_load(gpus.load_path(0), Load(os.getpid(), True, 8, True))
    until(lambda: first(gpus).power_instant_w == physics.power_w(8, True), "the load is seen")
    before = first(gpus)
    until(lambda: first(gpus).taken_at > before.taken_at + 0.5, "half a second")
    after = first(gpus)
    assert before.energy_j is not None
    assert after.energy_j is not None
    mean_w = (after.energy_j - before.energy_j) / (after.taken_at - before.taken_at)
    assert mean_w == pytest.approx(533.0, rel=0.05)


def test_a_server_that_loads_holds_its_weights(gpus: SimulatedGpus) -> None:
    write_load(gpus.load_path(0), Load(os.getpid(), False, 0, False))
    until(lambda: first(gpus).memory_used_b == physics.MEMORY_WEIGHTS_B, "the load is seen")
    assert first(gpus).power_instant_w == physics.LOADED_IDLE_W


def test_a_hung_server_is_busy_and_draws_little(gpus: SimulatedGpus) -> None:
    write_load(gpus.load_path(0), Load(os.getpid(), True, 0, True, hung=True))
    until(lambda: first(gpus).utilization == 1.0, "the load is seen")
    assert first(gpus).power_instant_w == physics.LOADED_IDLE_W


@pytest.mark.parametrize("waited_for", [True, False])
def test_the_memory_of_a_dead_server_is_free(gpus: SimulatedGpus, waited_for: bool) -> None:
    server = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    assert server.stdin is not None
    uuid = gpus.infos()[0].uuid
    try:
        write_load(gpus.load_path(0), Load(server.pid, True, 32, True))
        assert gpus.memory_used_b(uuid) == physics.MEMORY_LOADED_B
        server.kill()
        if waited_for:
            server.wait()
        until(lambda: gpus.memory_used_b(uuid) == 0, "its memory is free")
        until(lambda: first(gpus).power_instant_w == physics.IDLE_W, "it draws nothing")
    finally:
        server.stdin.close()
        server.kill()
        server.wait()


def test_a_server_that_stands_still_draws_what_an_idle_one_does(gpus: SimulatedGpus) -> None:
    path = gpus.load_path(0)
    write_load(path, Load(os.getpid(), True, 32, True))
    long_ago = time.time() - 60
    os.utime(path, (long_ago, long_ago))
    until(lambda: first(gpus).power_instant_w == physics.LOADED_IDLE_W, "it is seen to be stale")
    assert first(gpus).memory_used_b == physics.MEMORY_LOADED_B


def test_a_torn_load_is_none(gpus: SimulatedGpus) -> None:
    gpus.load_path(0).write_text('{"pid": 1')
    assert gpus.compute_pids(gpus.infos()[0].uuid) == ()


def test_the_servers_gpu_is_loaded_by_a_real_server(tmp_path: Path, gpus: SimulatedGpus) -> None:
    with simulated(tmp_path, SimulationConfig(startup_s=0.05), load_path=gpus.load_path(1)) as server:
        until(lambda: gpus.latest()[1].memory_used_b == physics.MEMORY_LOADED_B, "it is loaded")
        assert gpus.compute_pids(gpus.infos()[1].uuid) == (server.process.pid,)
    until(lambda: gpus.latest()[1].memory_used_b == 0, "it is gone")
