"""GPUs sampled in the background: a driver that blocks makes samples old, and never anybody wait."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator

import pytest
from msgspec.structs import replace

from genmon.errors import StartError
from genmon.gpu.nvml import list_gpus, open_gpus
from genmon.gpu.sampler import SampledGpus
from genmon.gpu.source import GpuInfo, GpuSource, NoGpus
from genmon.state import GpuSample
from tests.simulated import until

INFOS = tuple(GpuInfo(index=index, uuid=f"GPU-{index}", name="H200", memory_total_b=1) for index in (0, 1))


class Driver:
    """Two GPUs; a read of one in `blocked` waits until it is let go."""

    def __init__(self, infos: tuple[GpuInfo, ...] = INFOS) -> None:
        self._infos = infos
        self.blocked: set[str] = set()
        self.let_go = threading.Event()
        self.reads = {info.uuid: 0 for info in infos}

    def infos(self) -> tuple[GpuInfo, ...]:
        return self._infos

    def sample(self, host: str, info: GpuInfo) -> GpuSample:
        if info.uuid in self.blocked:
            self.let_go.wait(30)
        self.reads[info.uuid] += 1
        return GpuSample(
            host=host, index=info.index, uuid=info.uuid, name=info.name, taken_at=time.time(), power_w=500.0
        )

    def memory_used_b(self, uuid: str) -> int | None:
        return 7

    def compute_pids(self, uuid: str) -> tuple[int, ...] | None:
        return (1,)

    def close(self) -> None:
        """Nothing to let go of."""


@pytest.fixture
def driver() -> Iterator[Driver]:
    made = Driver()
    yield made
    made.let_go.set()


@pytest.fixture
def gpus(driver: Driver) -> Iterator[SampledGpus]:
    source = SampledGpus("here", driver, period_s=0.02)
    yield source
    source.close()


def test_each_gpu_is_sampled_again_and_again(gpus: SampledGpus, driver: Driver) -> None:
    assert gpus.latest() == ()
    gpus.start()
    until(lambda: min(driver.reads.values()) > 3, "a few reads of each")
    samples = gpus.latest()
    assert [sample.uuid for sample in samples] == ["GPU-0", "GPU-1"]
    assert {(sample.host, sample.power_w, sample.trouble) for sample in samples} == {("here", 500.0, None)}
    assert gpus.trouble is None
    assert (gpus.memory_used_b("GPU-0"), gpus.compute_pids("GPU-0")) == (7, (1,))


def test_one_that_blocks_grows_old_and_says_so_while_the_other_goes_on(gpus: SampledGpus, driver: Driver) -> None:
    gpus.start()
    until(lambda: len(gpus.latest()) == 2, "a sample of each")
    driver.blocked.add("GPU-0")
    until(lambda: "has not answered" in (gpus.latest()[0].trouble or ""), "its silence is told")
    old = gpus.latest()[0]
    reads = driver.reads["GPU-1"]
    until(lambda: driver.reads["GPU-1"] > reads + 3, "the other goes on")
    began = time.monotonic()
    still, other = gpus.latest()
    assert time.monotonic() - began < 0.1
    assert (still.taken_at, still.power_w) == (old.taken_at, 500.0), "the values stay, with their age"
    assert other.trouble is None
    driver.blocked.clear()
    driver.let_go.set()
    until(lambda: gpus.latest()[0].trouble is None, "it answers again")
    assert gpus.latest()[0].taken_at > old.taken_at


def test_one_that_never_answered_is_shown_without_values(gpus: SampledGpus, driver: Driver) -> None:
    driver.blocked.add("GPU-1")
    gpus.start()
    until(lambda: len(gpus.latest()) == 2, "it is shown")
    silent = gpus.latest()[1]
    assert (silent.uuid, silent.power_w, silent.memory_total_b) == ("GPU-1", None, 1)
    assert silent.trouble is not None
    assert silent.trouble.startswith("the driver has not answered for")


def test_close_ends_the_sampling(gpus: SampledGpus, driver: Driver) -> None:
    gpus.start()
    until(lambda: driver.reads["GPU-0"] > 0, "it samples")
    gpus.close()
    until(lambda: not any(thread.name.startswith("gpu-") for thread in threading.enumerate()), "the threads have ended")


def test_a_driver_without_gpus_says_so() -> None:
    source: GpuSource = SampledGpus("here", Driver(()))
    source.start()
    assert (source.latest(), source.trouble) == ((), "the NVIDIA driver sees no GPU")


def test_no_gpus_is_a_source_with_a_reason() -> None:
    source: GpuSource = NoGpus("no NVIDIA driver is installed")
    source.start()
    assert (source.infos(), source.latest(), source.memory_used_b("x"), source.compute_pids("x")) == (
        (),
        (),
        None,
        None,
    )
    assert source.trouble == "no NVIDIA driver is installed"
    source.close()


def test_this_machine_says_what_it_has() -> None:
    """With a driver its GPUs; without one a sentence, and a source that yields nothing."""
    source = open_gpus("here")
    try:
        listed = list_gpus()
    except StartError as error:
        assert source.trouble == str(error)
        assert source.infos() == ()
    else:
        assert source.infos() == listed
    source.close()


def test_time_slowed_is_added_up_from_the_reasons_when_the_driver_does_not_count_it() -> None:
    class Hot(Driver):
        def sample(self, host: str, info: GpuInfo) -> GpuSample:
            return replace(super().sample(host, info), reasons=("thermal slow-down",))

    source = SampledGpus("here", Hot(), period_s=0.02)
    source.start()
    try:
        until(lambda: any(each.slowed_s.get("thermal slow-down", 0.0) > 0.04 for each in source.latest()), "slowed")
        assert all(each.slowed_s["power cap"] == 0.0 for each in source.latest())
    finally:
        source.close()
