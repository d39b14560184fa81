"""The one door to NVML: what the driver says of each GPU, field by field, with units.

A field that a GPU does not have is None, never 0; one that it usually has and does not tell now is None, and
`trouble` says why.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Protocol, TypeVar, cast

import pynvml

from genmon.errors import StartError
from genmon.gpu.sampler import SampledGpus
from genmon.gpu.source import GpuInfo, GpuSource, NoGpus
from genmon.state import GpuSample

_REASONS = {
    0x1: "idle",
    0x4: "power cap",
    0x8: "hardware slow-down",
    0x10: "sync boost",
    0x20: "thermal slow-down",
    0x40: "hardware thermal slow-down",
    0x80: "power brake",
    0x100: "display clocks",
}
"""Clock-event reasons (nvml.h, nvmlClocksEventReason*)."""
_UNTOLD = 0x2
"""Clocks set by an application: deprecated, and the normal state of a GPU whose clocks are locked."""

# Field ids of nvml.h (NVML_FI_DEV_*), read in one call. Older bindings do not name all of them.
_ENERGY_MJ = 83
_POWER_AVERAGE_MW = 185
"""One-second trailing average; the same as nvmlDeviceGetPowerUsage on Ampere and newer."""
_POWER_INSTANT_MW = 186
_POWER_LIMIT_MW = 190
"""The limit enforced now, the least of all limiters."""
_SLOWED_NS = {74: "power cap", 269: "thermal slow-down", 270: "hardware thermal slow-down", 271: "power brake"}
"""Nanoseconds (nvml.h) that each reason has held the clocks down, by field: better than a bit that flickers."""
_FIELDS = (_POWER_INSTANT_MW, _POWER_AVERAGE_MW, _POWER_LIMIT_MW, _ENERGY_MJ, *_SLOWED_NS)
_UNSIGNED: dict[int, str] = {1: "uiVal", 2: "ulVal", 3: "ullVal"}
"""Member of nvmlValue_t by nvmlValueType_t, for the types that these fields have."""
_MIG_ON = 1
"""NVML_DEVICE_MIG_ENABLE."""
_LOST = (15, 16)
"""NVML_ERROR_GPU_IS_LOST, NVML_ERROR_RESET_REQUIRED."""
_UNKNOWN, _UNKNOWN_IS_LOST = 999, 3
"""NVML_ERROR_UNKNOWN: so many in a row are a lost GPU."""
_ABSENT = (3, 13)
"""NVML_ERROR_NOT_SUPPORTED, NVML_ERROR_FUNCTION_NOT_FOUND: this GPU or this driver never has it. No trouble."""
T = TypeVar("T")


class _FieldValue(Protocol):
    """nvmlFieldValue_t, as far as it is read."""

    fieldId: int
    nvmlReturn: int
    valueType: int
    value: object


class Nvml:
    """An open NVML. Every call may block for as long as the driver likes: call it from a thread of its own."""

    def __init__(self, module: ModuleType = pynvml) -> None:
        """Open the driver; `module` is pynvml or something of its shape.

        Raises:
            StartError: there is no driver, no permission, or the driver and its library do not fit.
        """
        self._nvml = module
        self._unknowns: dict[str, int] = {}
        """By UUID: readings in a row that ended with an unknown error."""
        try:
            module.nvmlInit()
        except module.NVMLError as error:
            raise StartError(_why(module, error)) from error

    def infos(self) -> tuple[GpuInfo, ...]:
        """The GPUs there are; one that cannot be opened (fallen off the bus) is left out."""
        nvml, reading = self._nvml, _Reading(self._nvml)
        count = reading.ask("count", nvml.nvmlDeviceGetCount) or 0
        found = []
        for index in range(count):
            try:
                handle = nvml.nvmlDeviceGetHandleByIndex(index)
                uuid, name = _text(nvml.nvmlDeviceGetUUID(handle)), _text(nvml.nvmlDeviceGetName(handle))
            except nvml.NVMLError:
                continue
            memory = reading.ask("memory", nvml.nvmlDeviceGetMemoryInfo, handle)
            enforced = reading.ask("limit", nvml.nvmlDeviceGetEnforcedPowerLimit, handle)
            default = reading.ask("limit", nvml.nvmlDeviceGetPowerManagementDefaultLimit, handle)
            mig = reading.ask("MIG", nvml.nvmlDeviceGetMigMode, handle)
            found.append(
                GpuInfo(
                    mig=mig is not None and mig[0] == _MIG_ON,
                    index=index,
                    uuid=uuid,
                    name=name,
                    memory_total_b=None if memory is None else memory.total,
                    power_limit_w=_milli(enforced),
                    power_default_limit_w=_milli(default),
                    sm_clock_max_mhz=reading.ask("clock", nvml.nvmlDeviceGetMaxClockInfo, handle, nvml.NVML_CLOCK_SM),
                )
            )
        return tuple(found)

    def sample(self, host: str, info: GpuInfo) -> GpuSample:
        """Read one GPU now. What it does not say is None, and `trouble` says why; a lost GPU says so there."""
        nvml, reading = self._nvml, _Reading(self._nvml)
        handle = reading.ask("GPU", nvml.nvmlDeviceGetHandleByUUID, info.uuid)
        if handle is None:
            return GpuSample(
                host=host,
                index=info.index,
                uuid=info.uuid,
                name=info.name,
                taken_at=time.time(),
                lost=self._lost(info, reading),
                trouble=reading.trouble,
            )
        if info.mig:
            reading.remark("MIG is on: watts, clocks and memory are those of the whole GPU")
        fields = reading.fields(handle)
        average_mw, limit_mw, energy_mj = (
            fields.get(each) for each in (_POWER_AVERAGE_MW, _POWER_LIMIT_MW, _ENERGY_MJ)
        )
        if average_mw is None:
            average_mw = reading.ask("power", nvml.nvmlDeviceGetPowerUsage, handle)
        if limit_mw is None:
            limit_mw = reading.ask("power limit", nvml.nvmlDeviceGetEnforcedPowerLimit, handle)
        if energy_mj is None:
            energy_mj = reading.ask("energy", nvml.nvmlDeviceGetTotalEnergyConsumption, handle)
        memory = reading.ask("memory", nvml.nvmlDeviceGetMemoryInfo, handle)
        use = reading.ask("utilization", nvml.nvmlDeviceGetUtilizationRates, handle)
        return GpuSample(
            host=host,
            index=info.index,
            uuid=info.uuid,
            name=info.name,
            taken_at=time.time(),
            power_w=_milli(average_mw),
            power_instant_w=_milli(fields.get(_POWER_INSTANT_MW)),
            power_limit_w=_milli(limit_mw),
            power_default_limit_w=info.power_default_limit_w,
            energy_j=_milli(energy_mj),
            sm_clock_max_mhz=info.sm_clock_max_mhz,
            slowed_s={name: fields[field] / 1e9 for field, name in _SLOWED_NS.items() if field in fields},
            sm_clock_mhz=reading.ask("clock", nvml.nvmlDeviceGetClockInfo, handle, nvml.NVML_CLOCK_SM),
            temperature_c=reading.ask("temperature", nvml.nvmlDeviceGetTemperature, handle, nvml.NVML_TEMPERATURE_GPU),
            utilization=None if use is None else use.gpu / 100,
            memory_used_b=None if memory is None else memory.used,
            memory_total_b=info.memory_total_b,
            reasons=reading.reasons(handle),
            lost=self._lost(info, reading),
            trouble=reading.trouble,
        )

    def memory_used_b(self, uuid: str) -> int | None:
        """Bytes in use on a GPU."""
        nvml, reading = self._nvml, _Reading(self._nvml)
        handle = reading.ask("GPU", nvml.nvmlDeviceGetHandleByUUID, uuid)
        memory = None if handle is None else reading.ask("memory", nvml.nvmlDeviceGetMemoryInfo, handle)
        return None if memory is None else int(memory.used)

    def compute_pids(self, uuid: str) -> tuple[int, ...] | None:
        """Processes with a context on a GPU."""
        nvml, reading = self._nvml, _Reading(self._nvml)
        handle = reading.ask("GPU", nvml.nvmlDeviceGetHandleByUUID, uuid)
        found = None if handle is None else reading.ask("processes", nvml.nvmlDeviceGetComputeRunningProcesses, handle)
        return None if found is None else tuple(int(each.pid) for each in found)

    def _lost(self, info: GpuInfo, reading: _Reading) -> bool:
        unknowns = self._unknowns.get(info.uuid, 0) + 1 if _UNKNOWN in reading.codes else 0
        self._unknowns[info.uuid] = unknowns
        return not reading.codes.isdisjoint(_LOST) or unknowns >= _UNKNOWN_IS_LOST

    def close(self) -> None:
        """Let go of the driver."""
        _Reading(self._nvml).ask("end", self._nvml.nvmlShutdown)


class _Reading:
    """One reading of one GPU: its answers, and why some are missing."""

    def __init__(self, nvml: ModuleType) -> None:
        self._nvml = nvml
        self._missing: dict[str, list[str]] = {}
        self._remarks: list[str] = []
        self.codes: set[int] = set()
        """Errors that the driver answered with."""

    @property
    def trouble(self) -> str | None:
        """Why fields are missing: `power, clock: GPU is lost`."""
        why = [f"{', '.join(names)}: {why}" for why, names in self._missing.items()]
        return "; ".join([*self._remarks, *why]) or None

    def remark(self, words: str) -> None:
        """Say something about the whole reading."""
        self._remarks.append(words)

    def ask(self, name: str, question: Callable[..., T], *arguments: object) -> T | None:
        """The answer, or None; a reason is kept unless this GPU never has it."""
        try:
            return question(*arguments)
        except self._nvml.NVMLError as error:
            self._note(name, getattr(error, "value", None), str(error))
            return None

    def fields(self, handle: object) -> dict[int, int]:
        """The batched fields that are valid, in milliwatts and millijoules; the others are asked for one by one."""
        values = cast(
            "Sequence[_FieldValue] | None", self.ask("", self._nvml.nvmlDeviceGetFieldValues, handle, list(_FIELDS))
        )
        found: dict[int, int] = {}
        for field in values or ():
            member = _UNSIGNED.get(field.valueType)
            if field.nvmlReturn == 0 and member is not None:
                found[field.fieldId] = int(getattr(field.value, member))
        self._missing.pop("", None)
        return found

    def reasons(self, handle: object) -> tuple[str, ...]:
        """Clock-event reasons in words; a bit without a name as a number."""
        bits = self.ask("clock-event reasons", self._nvml.nvmlDeviceGetCurrentClocksEventReasons, handle)
        left = (bits or 0) & ~_UNTOLD
        return tuple(_REASONS.get(1 << place, f"reason {1 << place:#x}") for place in range(64) if left >> place & 1)

    def _note(self, name: str, code: int | None, words: str) -> None:
        if code is not None:
            self.codes.add(code)
        if name and code not in _ABSENT:
            self._missing.setdefault(words, []).append(name)


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
