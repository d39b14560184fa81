"""One daemon thread a GPU, once a second. NVML may block for a minute: then that GPU's sample grows old, no more."""

from __future__ import annotations

import threading
from typing import Protocol

from genmon.gpu.source import GpuInfo
from genmon.state import GpuSample

_PERIOD_S = 1.0


class Driver(Protocol):
    """What the sampler needs of NVML."""

    def infos(self) -> tuple[GpuInfo, ...]:
        """The GPUs there are."""
        ...

    def sample(self, host: str, info: GpuInfo) -> GpuSample:
        """Read one GPU; may block."""
        ...

    def memory_used_b(self, uuid: str) -> int | None:
        """Bytes in use; may block."""
        ...

    def close(self) -> None:
        """Let go of the driver."""
        ...


class SampledGpus:
    """The machine's GPUs, sampled in the background."""

    def __init__(self, host: str, driver: Driver, period_s: float = _PERIOD_S) -> None:
        """`host` names the samples; `driver` is asked every `period_s` seconds, each GPU by its own thread."""
        self._host, self._driver, self._period_s = host, driver, period_s
        self._infos = driver.infos()
        self._samples: dict[str, GpuSample] = {}
        self._ended = threading.Event()
        self.trouble: str | None = None if self._infos else "the NVIDIA driver sees no GPU"

    def start(self) -> None:
        """Begin to sample."""
        for info in self._infos:
            threading.Thread(target=self._run, args=(info,), name=f"gpu-{info.index}", daemon=True).start()

    def infos(self) -> tuple[GpuInfo, ...]:
        """The GPUs there are."""
        return self._infos

    def latest(self) -> tuple[GpuSample, ...]:
        """The newest sample of each GPU, in their order; those not yet sampled are missing."""
        return tuple(self._samples[info.uuid] for info in self._infos if info.uuid in self._samples)

    def memory_used_b(self, uuid: str) -> int | None:
        """Bytes in use now."""
        return self._driver.memory_used_b(uuid)

    def close(self) -> None:
        """End the threads. One that is held by the driver is left to end with the process."""
        self._ended.set()

    def _run(self, info: GpuInfo) -> None:
        while not self._ended.is_set():
            self._samples[info.uuid] = self._driver.sample(self._host, info)
            self._ended.wait(self._period_s)
