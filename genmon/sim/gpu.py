"""Simulated GPUs: each draws what its simulated server's load would draw, with NVML's averages and refresh.

A server publishes its load into a small file; a server whose process is gone draws nothing. The energy counter
is the integral of the instantaneous power at 10 Hz, the rate at which an H200 refreshes its own.
"""

from __future__ import annotations

import os
import threading
import time
from collections import deque
from pathlib import Path

import msgspec
from msgspec import Struct

from genmon.config.schema import SimulationConfig
from genmon.gpu.source import GpuInfo
from genmon.sim import physics
from genmon.state import GpuSample

_REFRESH_S = 0.1
_AVERAGE_OVER = 10
"""Samples of 100 ms in NVML's one-second average."""
_HOST = "simulated"


class Load(Struct):
    """What a simulated server puts on its GPU."""

    pid: int
    loaded: bool
    running: int
    mtp: bool


def write_load(path: Path, load: Load) -> None:
    """Publish a load, as a whole."""
    temporary = path.with_name(f"{path.name}.{load.pid}")
    temporary.write_bytes(msgspec.json.encode(load))
    temporary.replace(path)


class SimulatedGpus:
    """A box of simulated GPUs; every sample says so."""

    def __init__(self, simulation: SimulationConfig, directory: Path) -> None:
        """`directory` is where the servers publish their loads."""
        self._directory = directory
        self.trouble: str | None = None
        self._infos = tuple(
            GpuInfo(
                index=index,
                uuid=f"GPU-51b0{index:04x}-0000-4000-8000-000000000000",
                name="NVIDIA H200 (SIMULATED)",
                memory_total_b=physics.MEMORY_TOTAL_B,
                power_limit_w=physics.POWER_LIMIT_W,
                power_default_limit_w=physics.POWER_LIMIT_W,
            )
            for index in range(simulation.gpus)
        )
        self._instants: list[deque[float]] = [deque(maxlen=_AVERAGE_OVER) for _ in self._infos]
        self._energy_j = [0.0 for _ in self._infos]
        self._samples: tuple[GpuSample, ...] = ()
        self._ended = threading.Event()

    def start(self) -> None:
        """Begin to integrate."""
        self._directory.mkdir(parents=True, exist_ok=True)
        threading.Thread(target=self._run, name="simulated-gpus", daemon=True).start()

    def infos(self) -> tuple[GpuInfo, ...]:
        """The simulated GPUs."""
        return self._infos

    def latest(self) -> tuple[GpuSample, ...]:
        """The newest sample of each."""
        return self._samples

    def memory_used_b(self, uuid: str) -> int | None:
        """Bytes in use now."""
        for info in self._infos:
            if info.uuid == uuid:
                load = self._load(info.index)
                return physics.MEMORY_LOADED_B if load and load.loaded else 0
        return None

    def load_path(self, index: int) -> Path:
        """Where the server of a GPU publishes its load."""
        return self._directory / f"gpu-{index}.load"

    def close(self) -> None:
        """Stop integrating."""
        self._ended.set()

    def _run(self) -> None:
        before = time.monotonic()
        while not self._ended.wait(_REFRESH_S):
            now = time.monotonic()
            self._samples = tuple(self._step(info, now - before) for info in self._infos)
            before = now

    def _step(self, info: GpuInfo, elapsed_s: float) -> GpuSample:
        load = self._load(info.index)
        instant_w = physics.power_w(load.running, load.mtp) if load and load.loaded else physics.IDLE_W
        self._instants[info.index].append(instant_w)
        self._energy_j[info.index] += instant_w * elapsed_s
        window = self._instants[info.index]
        busy = load is not None and load.running > 0
        return GpuSample(
            host=_HOST,
            index=info.index,
            uuid=info.uuid,
            name=info.name,
            taken_at=time.time(),
            power_w=sum(window) / len(window),
            power_instant_w=instant_w,
            power_limit_w=physics.POWER_LIMIT_W,
            power_default_limit_w=physics.POWER_LIMIT_W,
            energy_j=self._energy_j[info.index],
            sm_clock_mhz=physics.SM_CLOCK_MHZ if load else physics.SM_CLOCK_IDLE_MHZ,
            temperature_c=round(30 + 35 * instant_w / physics.POWER_LIMIT_W),
            utilization=1.0 if busy else 0.0,
            memory_used_b=physics.MEMORY_LOADED_B if load and load.loaded else 0,
            memory_total_b=physics.MEMORY_TOTAL_B,
            reasons=("power cap",) if instant_w >= physics.POWER_LIMIT_W else (),
            simulated=True,
        )

    def _load(self, index: int) -> Load | None:
        try:
            load = msgspec.json.decode(self.load_path(index).read_bytes(), type=Load)
            os.kill(load.pid, 0)
        except (OSError, msgspec.MsgspecError):
            return None
        return load
