"""The one door to NVML: what the driver says of each GPU, field by field, with units.

A field that a GPU does not have is None, never 0. Power is the driver's 1-second average
(`POWER_AVERAGE`, equal to `nvmlDeviceGetPowerUsage` on Ampere and newer) beside the instantaneous reading.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from types import ModuleType
from typing import TypeVar

import pynvml

from genmon.errors import StartError
from genmon.gpu.sampler import SampledGpus
from genmon.gpu.source import GpuInfo, GpuSource, NoGpus
from genmon.state import GpuSample

_REASONS = {
    0x4: "power cap",
    0x8: "hardware slow-down",
    0x20: "thermal slow-down",
    0x40: "hardware thermal slow-down",
    0x80: "power brake",
    0x100: "display clocks",
}
"""Clock-event reasons worth telling (nvml.h, nvmlClocksEventReason*). Idle (0x1) and set clocks (0x2) are normal."""
_FIELD_POWER_INSTANT = 186
"""NVML_FI_DEV_POWER_INSTANT; older bindings do not name it."""
T = TypeVar("T")


class Nvml:
    """An open NVML. Every call may block for as long as the driver likes: call it from a thread of its own."""

    def __init__(self, module: ModuleType = pynvml) -> None:
        """Open the driver.

        Raises:
            StartError: there is no driver, no permission, or the driver and its library do not fit.
        """
        self._nvml = module
        try:
            module.nvmlInit()
        except module.NVMLError as error:
            raise StartError(_why(module, error)) from error

    def infos(self) -> tuple[GpuInfo, ...]:
        """The GPUs there are; one that cannot be opened (fallen off the bus) is left out."""
        nvml = self._nvml
        found = []
        for index in range(nvml.nvmlDeviceGetCount()):
            try:
                handle = nvml.nvmlDeviceGetHandleByIndex(index)
                uuid, name = _text(nvml.nvmlDeviceGetUUID(handle)), _text(nvml.nvmlDeviceGetName(handle))
            except nvml.NVMLError:
                continue
            memory = self._ask(lambda h=handle: nvml.nvmlDeviceGetMemoryInfo(h).total)  # type: ignore[misc]
            enforced = self._ask(lambda h=handle: nvml.nvmlDeviceGetEnforcedPowerLimit(h))  # type: ignore[misc]
            default = self._ask(lambda h=handle: nvml.nvmlDeviceGetPowerManagementDefaultLimit(h))  # type: ignore[misc]
            found.append(
                GpuInfo(
                    index=index,
                    uuid=uuid,
                    name=name,
                    memory_total_b=memory,
                    power_limit_w=_milli(enforced),
                    power_default_limit_w=_milli(default),
                )
            )
        return tuple(found)

    def sample(self, host: str, info: GpuInfo) -> GpuSample:
        """Read one GPU now. What it does not say is None; a lost GPU says so in `trouble`."""
        nvml = self._nvml
        try:
            handle = nvml.nvmlDeviceGetHandleByUUID(info.uuid)
        except nvml.NVMLError as error:
            return GpuSample(
                host=host,
                index=info.index,
                uuid=info.uuid,
                name=info.name,
                taken_at=time.time(),
                trouble=str(error),
            )
        memory = self._ask(lambda: nvml.nvmlDeviceGetMemoryInfo(handle))
        use = self._ask(lambda: nvml.nvmlDeviceGetUtilizationRates(handle))
        bits = self._ask(lambda: nvml.nvmlDeviceGetCurrentClocksEventReasons(handle))
        return GpuSample(
            host=host,
            index=info.index,
            uuid=info.uuid,
            name=info.name,
            taken_at=time.time(),
            power_w=_milli(self._ask(lambda: nvml.nvmlDeviceGetPowerUsage(handle))),
            power_instant_w=_milli(self._instant_power_mw(handle)),
            power_limit_w=_milli(self._ask(lambda: nvml.nvmlDeviceGetEnforcedPowerLimit(handle))),
            power_default_limit_w=info.power_default_limit_w,
            energy_j=_milli(self._ask(lambda: nvml.nvmlDeviceGetTotalEnergyConsumption(handle))),
            sm_clock_mhz=self._ask(lambda: nvml.nvmlDeviceGetClockInfo(handle, nvml.NVML_CLOCK_SM)),
            temperature_c=self._ask(lambda: nvml.nvmlDeviceGetTemperature(handle, nvml.NVML_TEMPERATURE_GPU)),
            utilization=None if use is None else use.gpu / 100,
            memory_used_b=None if memory is None else memory.used,
            memory_total_b=info.memory_total_b,
            reasons=tuple(words for bit, words in _REASONS.items() if bits is not None and bits & bit),
        )

    def memory_used_b(self, uuid: str) -> int | None:
        """Bytes in use on a GPU."""
        nvml = self._nvml
        return self._ask(lambda: nvml.nvmlDeviceGetMemoryInfo(nvml.nvmlDeviceGetHandleByUUID(uuid)).used)

    def close(self) -> None:
        """Let go of the driver."""
        self._ask(self._nvml.nvmlShutdown)

    def _instant_power_mw(self, handle: object) -> int | None:
        values = self._ask(lambda: self._nvml.nvmlDeviceGetFieldValues(handle, [_FIELD_POWER_INSTANT]))
        if not values or values[0].nvmlReturn != 0:
            return None
        return int(values[0].value.uiVal)

    def _ask(self, question: Callable[[], T]) -> T | None:
        """The answer, or None when this GPU or this driver has none."""
        try:
            return question()
        except (self._nvml.NVMLError, AttributeError):  # AttributeError: a call that older bindings lack
            return None


def list_gpus() -> tuple[GpuInfo, ...]:
    """The GPUs of this machine. Raises `StartError` with the reason when NVML cannot be used."""
    nvml = Nvml()
    try:
        return nvml.infos()
    finally:
        nvml.close()


def open_gpus(host: str) -> GpuSource:
    """This machine's GPUs, ready to be sampled; without a driver none, and the reason."""
    try:
        nvml = Nvml()
    except StartError as error:
        return NoGpus(str(error))
    return SampledGpus(host, nvml)


def _why(nvml: ModuleType, error: Exception) -> str:
    code = getattr(error, "value", None)
    if code == nvml.NVML_ERROR_LIBRARY_NOT_FOUND:
        return "no NVIDIA driver is installed (libnvidia-ml.so.1 was not found)"
    if code == nvml.NVML_ERROR_DRIVER_NOT_LOADED:
        return "the NVIDIA driver is not loaded (or this container was started without its GPUs)"
    if code == nvml.NVML_ERROR_NO_PERMISSION:
        return "this user may not use the NVIDIA driver"
    if code == nvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH:
        return "the NVIDIA driver and its library are of different versions: reboot, or reload the driver"
    return f"NVML cannot be used: {error}"


def _text(value: str | bytes) -> str:
    return value.decode() if isinstance(value, bytes) else value


def _milli(value: int | None) -> float | None:
    return None if value is None else value / 1000
