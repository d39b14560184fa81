"""Simulated GPUs: each draws what its simulated server's load would draw, with NVML's averages and refresh.

A server publishes its load into a small file; a server whose process is gone draws nothing. The energy counter
is the integral of the instantaneous power at 10 Hz, the rate at which an H200 refreshes its own.
"""

from __future__ import annotations

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
_SLOWED_BY = ("power cap", "thermal slow-down", "hardware thermal slow-down", "power brake")


_STALE_S = 3.0
"""A load older than this is of a server that is stopped (SIGSTOP) or stuck: it draws what an idle one draws."""


class Load(Struct):
    """What a simulated server puts on its GPU; not `loaded` while it loads its weights."""

    pid: int
    loaded: bool
    running: int
    mtp: bool
    hung: bool = False


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
        self._slowed_s = [dict.fromkeys(_SLOWED_BY, 0.0) for _ in self._infos]
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
        return next((_memory_b(self._load(info.index)) for info in self._infos if info.uuid == uuid), None)

    def compute_pids(self, uuid: str) -> tuple[int, ...] | None:
        """The simulated server on a GPU, if one runs."""
        index = next((info.index for info in self._infos if info.uuid == uuid), None)
        if index is None:
            return None
        load = self._load(index)
        return (load.pid,) if load else ()

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
        instant_w = physics.IDLE_W if load is None else physics.power_w(load.running, load.mtp)
        window = self._instants[info.index]
        window.append(instant_w)
        self._energy_j[info.index] += instant_w * elapsed_s
        if "power cap" in _reasons(load, instant_w):
            self._slowed_s[info.index]["power cap"] += elapsed_s
        # A hung kernel keeps the GPU at 100 % while it draws no more than an idle one.
        busy = load is not None and (load.running > 0 or load.hung)
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
            sm_clock_max_mhz=physics.SM_CLOCK_MHZ,
            slowed_s=dict(self._slowed_s[info.index]),
            temperature_c=round(30 + 35 * instant_w / physics.POWER_LIMIT_W),
            utilization=1.0 if busy else 0.0,
            memory_used_b=_memory_b(load),
            memory_total_b=physics.MEMORY_TOTAL_B,
            reasons=_reasons(load, instant_w),
            simulated=True,
        )

    def _load(self, index: int) -> Load | None:
        """What runs on a GPU now; None when nothing does."""
        path = self.load_path(index)
        try:
            load = msgspec.json.decode(path.read_bytes(), type=Load)
            age_s = time.time() - path.stat().st_mtime
        except (OSError, msgspec.MsgspecError):
            return None
        if not _lives(load.pid):
            return None
        return msgspec.structs.replace(load, running=0) if age_s > _STALE_S else load


def _reasons(load: Load | None, instant_w: float) -> tuple[str, ...]:
    if load is None:
        return ("idle",)  # an H200 says so without a CUDA context only
    return ("power cap",) if instant_w >= physics.POWER_LIMIT_W else ()


def _memory_b(load: Load | None) -> int:
    if load is None:
        return 0
    return physics.MEMORY_LOADED_B if load.loaded else physics.MEMORY_WEIGHTS_B


def _lives(pid: int) -> bool:
    """Whether a process runs; one that has ended and was not waited for does not."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False
    return stat.rpartition(")")[2].split()[0] not in ("Z", "X")
