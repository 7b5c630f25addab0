"""A driver that is not there: answers like the `pynvml` module, for tests and demonstrations without a GPU."""

# ruff: noqa: N802, N815 - the names are NVML's own

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import TypeVar

from tonnage.units import MIB

AnswerT = TypeVar("AnswerT")


class FakeNvmlError(Exception):
    """What NVML raises: no driver, or a question that the board does not answer."""


@dataclass(frozen=True, kw_only=True)
class FakeDevice:
    """One GPU of the fake driver. `unsupported` names the questions it refuses."""

    name: str = "NVIDIA H200"
    total_bytes: int = 143771 * MIB
    used_bytes: int = 0
    reserved_bytes: int = 615 * MIB
    pci_address: str = "00000000:1B:00.0"
    pcie_generation: int = 5
    pcie_lanes: int = 16
    power_limit_watts: float = 700.0
    sm_clock_mhz: int = 345
    max_sm_clock_mhz: int = 1980
    power_watts: float = 450.0
    utilisation_percent: int = 90
    temperature_celsius: int = 55
    unsupported: frozenset[str] = frozenset()


@dataclass
class FakeNvml:
    """Pass it to `probe(nvml)`. Without a driver, `nvmlInit` fails as on a machine without a GPU."""

    devices: Sequence[FakeDevice] = field(default_factory=lambda: [FakeDevice()])
    driver_version: str = "580.95.05"
    cuda_version: int = 13000
    has_driver: bool = True
    shut_down: bool = False
    NVMLError: type[Exception] = FakeNvmlError
    nvmlMemory_v2: int = 2
    clock: Callable[[], float] = time.monotonic
    energy_update_seconds: float = 0.05  # real drivers update the counter every 20 to 100 ms

    def nvmlInit(self) -> None:
        if not self.has_driver:
            raise FakeNvmlError("NVML Shared Library Not Found")

    def nvmlShutdown(self) -> None:
        self.shut_down = True

    def nvmlSystemGetDriverVersion(self) -> str:
        return self.driver_version

    def nvmlSystemGetCudaDriverVersion_v2(self) -> int:
        return self.cuda_version

    def nvmlDeviceGetCount(self) -> int:
        return len(self.devices)

    def nvmlDeviceGetHandleByIndex(self, index: int) -> FakeDevice:
        return self.devices[index]

    def nvmlDeviceGetName(self, device: FakeDevice) -> str:
        return device.name

    def nvmlDeviceGetUUID(self, device: FakeDevice) -> str:
        return f"GPU-fake-{self.devices.index(device)}"

    def nvmlDeviceGetPciInfo(self, device: FakeDevice) -> SimpleNamespace:
        return SimpleNamespace(busId=_answer(device, "pci_address", device.pci_address))

    def nvmlDeviceGetMemoryInfo(self, device: FakeDevice, version: int | None = None) -> SimpleNamespace:
        if version is None:  # the first version counts the driver's reserve as used
            return SimpleNamespace(total=device.total_bytes, used=device.used_bytes + device.reserved_bytes)
        reserved = _answer(device, "reserved_bytes", device.reserved_bytes)
        return SimpleNamespace(total=device.total_bytes, used=device.used_bytes, reserved=reserved)

    def nvmlDeviceGetMaxPcieLinkGeneration(self, device: FakeDevice) -> int:
        return _answer(device, "pcie_generation", device.pcie_generation)

    def nvmlDeviceGetMaxPcieLinkWidth(self, device: FakeDevice) -> int:
        return _answer(device, "pcie_lanes", device.pcie_lanes)

    def nvmlDeviceGetEnforcedPowerLimit(self, device: FakeDevice) -> int:
        return _answer(device, "power_limit_watts", round(device.power_limit_watts * 1000))

    def nvmlDeviceGetClockInfo(self, device: FakeDevice, _kind: int) -> int:
        return _answer(device, "sm_clock_mhz", device.sm_clock_mhz)

    def nvmlDeviceGetMaxClockInfo(self, device: FakeDevice, _kind: int) -> int:
        return _answer(device, "max_sm_clock_mhz", device.max_sm_clock_mhz)

    def nvmlDeviceGetTotalEnergyConsumption(self, device: FakeDevice) -> int:
        updates = self.clock() // self.energy_update_seconds
        millijoules = round(updates * self.energy_update_seconds * device.power_watts * 1000)
        return _answer(device, "power_watts", millijoules)

    def nvmlDeviceGetUtilizationRates(self, device: FakeDevice) -> SimpleNamespace:
        return SimpleNamespace(gpu=_answer(device, "utilisation_percent", device.utilisation_percent))

    def nvmlDeviceGetTemperature(self, device: FakeDevice, _kind: int) -> int:
        return _answer(device, "temperature_celsius", device.temperature_celsius)


def _answer(device: FakeDevice, question: str, value: AnswerT) -> AnswerT:
    if question in device.unsupported:
        raise FakeNvmlError("Not Supported")
    return value
