"""What GPUs are in this machine, asked from the NVIDIA driver through NVML."""

# ruff: noqa: N802, N815 - the names are NVML's own

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from tonnage.errors import Unreachable
from tonnage.hardware.catalogue import match_gpu
from tonnage.hardware.gpu import Gpu

Handle = Any  # an opaque pointer of NVML
AnswerT = TypeVar("AnswerT")
NVML_CLOCK_SM = 1
NVML_TEMPERATURE_GPU = 0


class Nvml(Protocol):
    """The part of the `pynvml` module that is used here; `FakeNvml` is the other implementation."""

    NVMLError: type[Exception]
    nvmlMemory_v2: int

    def nvmlInit(self) -> None: ...
    def nvmlShutdown(self) -> None: ...
    def nvmlSystemGetDriverVersion(self) -> str: ...
    def nvmlSystemGetCudaDriverVersion_v2(self) -> int: ...
    def nvmlDeviceGetCount(self) -> int: ...
    def nvmlDeviceGetHandleByIndex(self, index: int, /) -> Handle: ...
    def nvmlDeviceGetName(self, device: Handle, /) -> str: ...
    def nvmlDeviceGetUUID(self, device: Handle, /) -> str: ...
    def nvmlDeviceGetPciInfo(self, device: Handle, /) -> Any: ...
    def nvmlDeviceGetMemoryInfo(self, device: Handle, /, version: int | None = None) -> Any: ...
    def nvmlDeviceGetMaxPcieLinkGeneration(self, device: Handle, /) -> int: ...
    def nvmlDeviceGetMaxPcieLinkWidth(self, device: Handle, /) -> int: ...
    def nvmlDeviceGetEnforcedPowerLimit(self, device: Handle, /) -> int: ...
    def nvmlDeviceGetClockInfo(self, device: Handle, kind: int, /) -> int: ...
    def nvmlDeviceGetMaxClockInfo(self, device: Handle, kind: int, /) -> int: ...
    def nvmlDeviceGetTotalEnergyConsumption(self, device: Handle, /) -> int: ...
    def nvmlDeviceGetUtilizationRates(self, device: Handle, /) -> Any: ...
    def nvmlDeviceGetTemperature(self, device: Handle, kind: int, /) -> int: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalGpu:
    """One GPU in this machine, as its driver describes it; `None` where the driver does not say."""

    index: int
    uuid: str
    name: str
    gpu: Gpu | None
    memory_bytes: int
    used_bytes: int
    reserved_bytes: int | None
    pci_address: str | None  # 00000000:1B:00.0
    pcie_generation: int | None
    pcie_lanes: int | None
    power_limit_watts: float | None
    sm_clock_mhz: int | None
    max_sm_clock_mhz: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalMachine:
    """The GPUs of this machine and the driver that runs them."""

    driver_version: str
    cuda_version: str
    gpus: tuple[LocalGpu, ...]


def probe(nvml: Nvml | None = None) -> LocalMachine:
    """Ask the driver; raises `Unreachable` on a machine without one."""
    nvml = nvml or import_nvml()
    try:
        nvml.nvmlInit()
    except nvml.NVMLError as error:
        raise Unreachable("no NVIDIA driver on this machine: NVML could not be loaded", _hint(error)) from error
    try:
        return _read_machine(nvml)
    except nvml.NVMLError as error:
        raise Unreachable(f"the NVIDIA driver does not answer: {error}", "try nvidia-smi") from error
    finally:
        nvml.nvmlShutdown()


def import_nvml() -> Nvml:
    """The driver's library by way of `pynvml`."""
    import pynvml  # loads the driver's library, which most machines do not have

    module: Nvml = pynvml
    return module


def _hint(error: Exception) -> str:
    return f"NVML says: {error}; estimates for catalogue GPUs need no driver"


def _read_machine(nvml: Nvml) -> LocalMachine:
    version = nvml.nvmlSystemGetCudaDriverVersion_v2()
    return LocalMachine(
        driver_version=nvml.nvmlSystemGetDriverVersion(),
        cuda_version=f"{version // 1000}.{version % 1000 // 10}",
        gpus=tuple(_read_gpu(nvml, index) for index in range(nvml.nvmlDeviceGetCount())),
    )


def _read_gpu(nvml: Nvml, index: int) -> LocalGpu:
    handle = nvml.nvmlDeviceGetHandleByIndex(index)
    name, memory = nvml.nvmlDeviceGetName(handle), _read_memory(nvml, handle)
    power_milliwatts = _optional(nvml, nvml.nvmlDeviceGetEnforcedPowerLimit, handle)
    return LocalGpu(
        index=index,
        uuid=nvml.nvmlDeviceGetUUID(handle),
        name=name,
        gpu=match_gpu(name, memory.total),
        memory_bytes=memory.total,
        used_bytes=memory.used,
        reserved_bytes=getattr(memory, "reserved", None),
        pci_address=_optional(nvml, lambda: _text(nvml.nvmlDeviceGetPciInfo(handle).busId)),
        pcie_generation=_optional(nvml, nvml.nvmlDeviceGetMaxPcieLinkGeneration, handle),
        pcie_lanes=_optional(nvml, nvml.nvmlDeviceGetMaxPcieLinkWidth, handle),
        power_limit_watts=None if power_milliwatts is None else power_milliwatts / 1000,
        sm_clock_mhz=_optional(nvml, nvml.nvmlDeviceGetClockInfo, handle, NVML_CLOCK_SM),
        max_sm_clock_mhz=_optional(nvml, nvml.nvmlDeviceGetMaxClockInfo, handle, NVML_CLOCK_SM),
    )


def _read_memory(nvml: Nvml, handle: Handle) -> Any:
    """Version 2 tells the driver's reserve apart from what processes use; drivers before R510 have version 1."""
    try:
        return nvml.nvmlDeviceGetMemoryInfo(handle, version=nvml.nvmlMemory_v2)
    except nvml.NVMLError:
        return nvml.nvmlDeviceGetMemoryInfo(handle)


def _text(value: str | bytes) -> str:
    """Older releases of `pynvml` hand the driver's bytes on as they are."""
    return value.decode() if isinstance(value, bytes) else value


def _optional(nvml: Nvml, ask: Callable[..., AnswerT], *arguments: Handle) -> AnswerT | None:
    """Many boards and virtual GPUs answer some questions with "not supported"."""
    try:
        return ask(*arguments)
    except nvml.NVMLError:
        return None
