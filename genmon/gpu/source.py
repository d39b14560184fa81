"""Where GPU samples come from: real NVML, the simulated box, or nothing at all."""

from __future__ import annotations

from typing import Protocol

from msgspec import Struct

from genmon.state import GpuSample


class GpuInfo(Struct, frozen=True, kw_only=True):
    """What does not change about a GPU."""

    index: int
    uuid: str
    name: str
    memory_total_b: int | None = None
    power_limit_w: float | None = None
    power_default_limit_w: float | None = None
    sm_clock_max_mhz: int | None = None
    mig: bool = False
    """Whether it is cut into instances."""


class GpuSource(Protocol):
    """GPUs that are sampled in the background."""

    trouble: str | None
    """Why there are no GPUs, in words; None when there are."""

    def start(self) -> None:
        """Begin to sample."""
        ...

    def infos(self) -> tuple[GpuInfo, ...]:
        """The GPUs there are."""
        ...

    def latest(self) -> tuple[GpuSample, ...]:
        """The newest sample of each GPU; never waits for one, so it may be old: look at `taken_at`."""
        ...

    def memory_used_b(self, uuid: str) -> int | None:
        """Bytes in use now; may wait for the driver. None when it does not say."""
        ...

    def compute_pids(self, uuid: str) -> tuple[int, ...] | None:
        """Processes that hold a context on the GPU; may wait for the driver. None when it does not say.

        In a container the driver's numbers are those of the machine outside.
        """
        ...

    def close(self) -> None:
        """Stop sampling."""
        ...


class NoGpus:
    """A machine without GPUs, and why."""

    def __init__(self, trouble: str) -> None:
        """`trouble` is the reason, in words."""
        self.trouble: str | None = trouble

    def start(self) -> None:
        """Nothing to start."""

    def infos(self) -> tuple[GpuInfo, ...]:
        """None."""
        return ()

    def latest(self) -> tuple[GpuSample, ...]:
        """None."""
        return ()

    def memory_used_b(self, uuid: str) -> int | None:
        """Unknown."""
        return None

    def compute_pids(self, uuid: str) -> tuple[int, ...] | None:
        """Unknown."""
        return None

    def close(self) -> None:
        """Nothing to close."""
