"""One daemon thread a GPU, once a second. NVML may block for a minute: then that GPU's sample grows old, no more."""

from __future__ import annotations

import threading
import time
from typing import Protocol

from msgspec.structs import replace

from genmon.gpu.source import GpuInfo
from genmon.state import GpuSample

_PERIOD_S = 1.0
_SILENT_AFTER_PERIODS = 5.0
SLOWING = ("power cap", "thermal slow-down", "hardware thermal slow-down", "power brake")
"""Clock-event reasons whose time is counted."""


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

    def compute_pids(self, uuid: str) -> tuple[int, ...] | None:
        """Processes with a context; may block."""
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
        self._started_at: float | None = None
        self._ended = threading.Event()
        self.trouble: str | None = None if self._infos else "the NVIDIA driver sees no GPU"

    def start(self) -> None:
        """Begin to sample."""
        self._started_at = time.time()
        for info in self._infos:
            threading.Thread(target=self._run, args=(info,), name=f"gpu-{info.index}", daemon=True).start()

    def infos(self) -> tuple[GpuInfo, ...]:
        """The GPUs there are."""
        return self._infos

    def latest(self) -> tuple[GpuSample, ...]:
        """The newest sample of each GPU, in their order; never waits.

        When the driver has not answered for five periods the sample keeps its values and its `taken_at`, and
        `trouble` says so. A GPU that never answered is missing until then, and without values after.
        """
        return tuple(sample for info in self._infos if (sample := self._newest(info)) is not None)

    def memory_used_b(self, uuid: str) -> int | None:
        """Bytes in use now."""
        return self._driver.memory_used_b(uuid)

    def compute_pids(self, uuid: str) -> tuple[int, ...] | None:
        """Processes with a context now."""
        return self._driver.compute_pids(uuid)

    def close(self) -> None:
        """End the threads. One that is held by the driver is left to end with the process."""
        self._ended.set()

    def _newest(self, info: GpuInfo) -> GpuSample | None:
        sample = self._samples.get(info.uuid)
        since = sample.taken_at if sample else self._started_at
        silent_s = 0.0 if since is None else time.time() - since
        if silent_s < _SILENT_AFTER_PERIODS * self._period_s:
            return sample
        if sample is None:
            sample = GpuSample(
                host=self._host,
                index=info.index,
                uuid=info.uuid,
                name=info.name,
                taken_at=time.time() - silent_s,
                power_default_limit_w=info.power_default_limit_w,
                memory_total_b=info.memory_total_b,
            )
        silence = f"the driver has not answered for {silent_s:.0f} s"
        return replace(sample, trouble=f"{silence}; {sample.trouble}" if sample.trouble else silence)

    def _run(self, info: GpuInfo) -> None:
        slowed_s: dict[str, float] = {}
        before: float | None = None
        while not self._ended.is_set():
            sample = self._driver.sample(self._host, info)
            if not sample.slowed_s and not sample.trouble:
                # A driver that does not count it: a reason seen now has held since the last look.
                elapsed_s = 0.0 if before is None else sample.taken_at - before
                for reason in SLOWING:
                    slowed_s[reason] = slowed_s.get(reason, 0.0) + (elapsed_s if reason in sample.reasons else 0.0)
                sample = replace(sample, slowed_s=dict(slowed_s))
            before = sample.taken_at
            self._samples[info.uuid] = sample
            self._ended.wait(self._period_s)
