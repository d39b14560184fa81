"""The door to NVML, against a driver that is a module of the shape of pynvml."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import ModuleType, SimpleNamespace
from typing import cast

import pynvml
import pytest

from genmon.errors import StartError
from genmon.gpu.nvml import Nvml
from genmon.gpu.source import GpuInfo
from genmon.state import GpuSample

GIB = 1 << 30
OK, INVALID_ARGUMENT, NOT_SUPPORTED, NO_PERMISSION, LOST, UNKNOWN = 0, 2, 3, 4, 15, 999
UNSIGNED_INT, UNSIGNED_LONG_LONG = 1, 3


class DriverError(Exception):
    """What pynvml raises: `value` is the code."""

    def __init__(self, value: int) -> None:
        super().__init__({LOST: "GPU is lost", NO_PERMISSION: "Insufficient Permissions"}.get(value, f"code {value}"))
        self.value = value


class FakeDriver(ModuleType):
    """A box of GPUs. `fails` maps a call to the code it ends with, `fields` a field id to (code, type, value)."""

    NVMLError = DriverError
    NVML_CLOCK_SM = 1
    NVML_TEMPERATURE_GPU = 0
    NVML_ERROR_LIBRARY_NOT_FOUND = 12
    NVML_ERROR_DRIVER_NOT_LOADED = 9
    NVML_ERROR_NO_PERMISSION = NO_PERMISSION
    NVML_ERROR_LIB_RM_VERSION_MISMATCH = 18

    def __init__(self, count: int = 2) -> None:
        super().__init__("pynvml")
        self.count = count
        self.fails: dict[str, int] = {}
        self.calls: list[str] = []
        self.fields: dict[int, tuple[int, int, int]] = {
            186: (OK, UNSIGNED_INT, 907_000),
            185: (OK, UNSIGNED_INT, 649_000),
            190: (OK, UNSIGNED_INT, 600_000),
            83: (OK, UNSIGNED_LONG_LONG, 5_000_000_000_000),
            74: (OK, UNSIGNED_LONG_LONG, 12_500_000_000),
            269: (OK, UNSIGNED_LONG_LONG, 0),
        }
        self.reasons = 0x4
        self.mig = [0, 0]
        for name, answer in self._answers().items():
            setattr(self, name, self._call(name, answer))

    def _answers(self) -> dict[str, Callable[..., object]]:
        return {
            "nvmlInit": lambda: None,
            "nvmlShutdown": lambda: None,
            "nvmlDeviceGetCount": lambda: self.count,
            "nvmlDeviceGetHandleByIndex": lambda index: index,
            "nvmlDeviceGetHandleByUUID": lambda uuid: int(uuid.removeprefix("GPU-")),
            "nvmlDeviceGetUUID": lambda handle: f"GPU-{handle}",
            "nvmlDeviceGetName": lambda handle: b"NVIDIA H200",
            "nvmlDeviceGetMemoryInfo": lambda handle: SimpleNamespace(total=140 * GIB, used=51 * GIB, free=89 * GIB),
            "nvmlDeviceGetEnforcedPowerLimit": lambda handle: 600_000,
            "nvmlDeviceGetPowerManagementDefaultLimit": lambda handle: 700_000,
            "nvmlDeviceGetPowerUsage": lambda handle: 650_000,
            "nvmlDeviceGetTotalEnergyConsumption": lambda handle: 1_234_500,
            "nvmlDeviceGetClockInfo": lambda handle, kind: 1980,
            "nvmlDeviceGetMaxClockInfo": lambda handle, kind: 1980,
            "nvmlDeviceGetMigMode": lambda handle: self.mig,
            "nvmlDeviceGetTemperature": lambda handle, kind: 62,
            "nvmlDeviceGetUtilizationRates": lambda handle: SimpleNamespace(gpu=97, memory=88),
            "nvmlDeviceGetCurrentClocksEventReasons": lambda handle: self.reasons,
            "nvmlDeviceGetComputeRunningProcesses": lambda handle: [SimpleNamespace(pid=4321)],
            "nvmlDeviceGetFieldValues": self._field_values,
        }

    def _call(self, name: str, answer: Callable[..., object]) -> Callable[..., object]:
        def called(*arguments: object) -> object:
            self.calls.append(name)
            if name in self.fails:
                raise DriverError(self.fails[name])
            return answer(*arguments)

        return called

    def _field_values(self, handle: object, ids: Sequence[int]) -> object:
        values = (pynvml.c_nvmlFieldValue_t * len(ids))()  # the binding's own layout
        for value, field in zip(values, ids, strict=True):
            code, kind, number = self.fields.get(field, (NOT_SUPPORTED, 0, 0))
            value.fieldId, value.nvmlReturn, value.valueType = field, code, kind
            setattr(value.value, "uiVal" if kind == UNSIGNED_INT else "ullVal", number)
        return values


@pytest.fixture
def driver() -> FakeDriver:
    return FakeDriver()


def sampled(driver: FakeDriver) -> GpuSample:
    nvml = Nvml(driver)
    return nvml.sample("here", nvml.infos()[0])


def test_infos(driver: FakeDriver) -> None:
    assert Nvml(driver).infos() == tuple(
        GpuInfo(
            index=index,
            uuid=f"GPU-{index}",
            name="NVIDIA H200",
            memory_total_b=140 * GIB,
            power_limit_w=600.0,
            power_default_limit_w=700.0,
            sm_clock_max_mhz=1980,
        )
        for index in (0, 1)
    )


def test_a_sample_with_its_units(driver: FakeDriver) -> None:
    sample = sampled(driver)
    assert (sample.power_w, sample.power_instant_w) == (649.0, 907.0), "above the limit is not cut"
    assert (sample.power_limit_w, sample.power_default_limit_w) == (600.0, 700.0)
    assert sample.energy_j == 5e9
    assert (sample.sm_clock_mhz, sample.temperature_c, sample.utilization) == (1980, 62, 0.97)
    assert (sample.memory_used_b, sample.memory_total_b) == (51 * GIB, 140 * GIB)
    assert (sample.reasons, sample.trouble, sample.simulated) == (("power cap",), None, False)
    assert sample.slowed_s == {"power cap": 12.5, "thermal slow-down": 0.0}, (
        "nanoseconds; what is not told is not there"
    )
    assert not sample.lost


def test_power_and_energy_come_in_one_call(driver: FakeDriver) -> None:
    nvml = Nvml(driver)
    info = nvml.infos()[0]
    driver.calls.clear()
    nvml.sample("here", info)
    single = {"nvmlDeviceGetPowerUsage", "nvmlDeviceGetTotalEnergyConsumption", "nvmlDeviceGetEnforcedPowerLimit"}
    assert not single & set(driver.calls)
    assert driver.calls.count("nvmlDeviceGetFieldValues") == 1


@pytest.mark.parametrize("broken", ["each field", "the whole call"])
def test_what_the_batch_does_not_give_is_asked_for_alone(broken: str, driver: FakeDriver) -> None:
    if broken == "each field":
        driver.fields = {185: (INVALID_ARGUMENT, 0, 7), 190: (NOT_SUPPORTED, UNSIGNED_INT, 7), 83: (UNKNOWN, 3, 7)}
    else:
        driver.fails["nvmlDeviceGetFieldValues"] = UNKNOWN
    sample = sampled(driver)
    assert (sample.power_w, sample.power_limit_w, sample.energy_j) == (650.0, 600.0, 1234.5)
    assert sample.power_instant_w is None, "not 0, and not the average in its place"
    assert sample.trouble is None


def test_what_a_gpu_does_not_have_is_none_and_no_trouble(driver: FakeDriver) -> None:
    driver.fields.clear()
    for name in ("PowerUsage", "TotalEnergyConsumption", "Temperature", "EnforcedPowerLimit", "UtilizationRates"):
        driver.fails[f"nvmlDeviceGet{name}"] = NOT_SUPPORTED
    sample = sampled(driver)
    assert (sample.power_w, sample.energy_j, sample.temperature_c, sample.power_limit_w) == (None, None, None, None)
    assert (sample.utilization, sample.trouble) == (None, None)
    assert sample.sm_clock_mhz == 1980


def test_what_cannot_be_read_now_is_none_and_says_why(driver: FakeDriver) -> None:
    driver.fails |= {"nvmlDeviceGetTemperature": UNKNOWN, "nvmlDeviceGetClockInfo": NO_PERMISSION}
    sample = sampled(driver)
    assert (sample.temperature_c, sample.sm_clock_mhz, sample.power_w) == (None, None, 649.0)
    assert sample.trouble == "clock: Insufficient Permissions; temperature: code 999"


def test_a_lost_gpu_has_no_values_and_says_that_it_is_lost(driver: FakeDriver) -> None:
    nvml = Nvml(driver)
    info = nvml.infos()[0]
    driver.fails["nvmlDeviceGetHandleByUUID"] = LOST
    sample = nvml.sample("here", info)
    assert sample.trouble == "GPU: GPU is lost"
    assert sample.lost
    assert (sample.power_w, sample.memory_used_b, sample.reasons) == (None, None, ())
    assert (sample.uuid, sample.name) == ("GPU-0", "NVIDIA H200")
    assert nvml.memory_used_b("GPU-0") is None
    assert nvml.compute_pids("GPU-0") is None


def test_lost_while_it_is_read(driver: FakeDriver) -> None:
    driver.fails |= dict.fromkeys(
        ("nvmlDeviceGetFieldValues", "nvmlDeviceGetPowerUsage", "nvmlDeviceGetClockInfo"), LOST
    )
    sample = sampled(driver)
    assert sample.power_w is None
    assert sample.trouble == "power, clock: GPU is lost"


def test_a_gpu_cut_into_instances_says_whose_figures_these_are(driver: FakeDriver) -> None:
    driver.mig = [1, 1]
    sample = sampled(driver)
    assert sample.trouble == "MIG is on: watts, clocks and memory are those of the whole GPU"
    assert sample.power_w == 649.0
    driver.fails["nvmlDeviceGetMigMode"] = NOT_SUPPORTED
    assert sampled(driver).trouble is None


def test_an_unknown_error_three_times_in_a_row_is_a_lost_gpu(driver: FakeDriver) -> None:
    nvml = Nvml(driver)
    info = nvml.infos()[0]
    driver.fails["nvmlDeviceGetHandleByUUID"] = UNKNOWN
    assert [nvml.sample("here", info).lost for _ in range(3)] == [False, False, True]
    driver.fails.clear()
    assert not nvml.sample("here", info).lost


@pytest.mark.parametrize(
    ("bits", "words"),
    [
        (0x0, ()),
        (0x1, ("idle",)),
        (0x2, ()),
        (0x4 | 0x20, ("power cap", "thermal slow-down")),
        (0x40 | 0x80, ("hardware thermal slow-down", "power brake")),
        (0x4 | 0x400, ("power cap", "reason 0x400")),
    ],
)
def test_clock_event_reasons_in_words(bits: int, words: tuple[str, ...], driver: FakeDriver) -> None:
    driver.reasons = bits
    assert sampled(driver).reasons == words


def test_memory_and_processes(driver: FakeDriver) -> None:
    nvml = Nvml(driver)
    assert nvml.memory_used_b("GPU-1") == 51 * GIB
    assert nvml.compute_pids("GPU-1") == (4321,)


def test_a_gpu_that_fell_off_the_bus_is_left_out(driver: FakeDriver) -> None:
    cast("dict[str, object]", driver.__dict__)["nvmlDeviceGetUUID"] = _lost_above_zero
    assert [info.index for info in Nvml(driver).infos()] == [0]


def _lost_above_zero(handle: int) -> str:
    if handle > 0:
        raise DriverError(LOST)
    return "GPU-0"


@pytest.mark.parametrize(
    ("code", "sentence"),
    [
        (12, "no NVIDIA driver is installed"),
        (9, "the NVIDIA driver is not loaded"),
        (4, "this user may not use the NVIDIA driver"),
        (18, "the NVIDIA driver and its library are of different versions"),
        (999, "NVML cannot be used: code 999"),
    ],
)
def test_why_there_is_no_nvml(code: int, sentence: str, driver: FakeDriver) -> None:
    driver.fails["nvmlInit"] = code
    with pytest.raises(StartError, match=sentence):
        Nvml(driver)


def test_the_field_ids_are_those_of_the_binding() -> None:
    assert pynvml.NVML_FI_DEV_TOTAL_ENERGY_CONSUMPTION == 83
    names = ("NVML_FI_DEV_POWER_AVERAGE", "NVML_FI_DEV_POWER_INSTANT", "NVML_FI_DEV_POWER_CURRENT_LIMIT")
    assert [getattr(pynvml, name, None) for name in names] == [185, 186, 190]
    assert (pynvml.NVML_VALUE_TYPE_UNSIGNED_INT, pynvml.NVML_VALUE_TYPE_UNSIGNED_LONG_LONG) == (1, 3)
