"""The probe, against a driver that is not there."""

import pytest

from tonnage.errors import Unreachable
from tonnage.hardware import probe
from tonnage.hardware.fake_nvml import FakeDevice, FakeNvml, FakeNvmlError
from tonnage.units import GIB, MIB


def test_an_h200_is_recognised() -> None:
    machine = probe(FakeNvml())
    (gpu,) = machine.gpus
    assert (machine.driver_version, machine.cuda_version) == ("580.95.05", "13.0")
    assert gpu.gpu is not None
    assert gpu.gpu.name == "H200"
    assert (gpu.memory_bytes, gpu.reserved_bytes) == (143771 * MIB, 615 * MIB)
    assert (gpu.pcie_generation, gpu.pcie_lanes, gpu.power_limit_watts) == (5, 16, 700.0)
    assert gpu.pci_address == "00000000:1B:00.0"


def test_unequal_gpus_keep_their_order() -> None:
    devices = [FakeDevice(name="Tesla T4", total_bytes=15360 * MIB), FakeDevice()]
    assert [gpu.gpu and gpu.gpu.name for gpu in probe(FakeNvml(devices)).gpus] == ["T4", "H200"]


def test_an_unknown_gpu_is_shown_without_a_catalogue_entry() -> None:
    (gpu,) = probe(FakeNvml([FakeDevice(name="NVIDIA GeForce GT 710", total_bytes=2 * GIB)])).gpus
    assert gpu.gpu is None
    assert gpu.name == "NVIDIA GeForce GT 710"


def test_what_the_board_does_not_tell_is_none() -> None:
    silent = frozenset(
        {"pci_address", "pcie_generation", "pcie_lanes", "power_limit_watts", "sm_clock_mhz", "max_sm_clock_mhz"}
    )
    (gpu,) = probe(FakeNvml([FakeDevice(unsupported=silent)])).gpus
    assert (gpu.pci_address, gpu.pcie_generation, gpu.power_limit_watts, gpu.max_sm_clock_mhz) == (None,) * 4


def test_an_old_driver_counts_its_reserve_as_used() -> None:
    (gpu,) = probe(FakeNvml([FakeDevice(unsupported=frozenset({"reserved_bytes"}))])).gpus
    assert (gpu.used_bytes, gpu.reserved_bytes) == (615 * MIB, None)


def test_a_machine_without_a_driver_gets_one_line() -> None:
    with pytest.raises(Unreachable) as caught:
        probe(FakeNvml(has_driver=False))
    assert caught.value.message == "no NVIDIA driver on this machine: NVML could not be loaded"


def test_the_driver_is_released_even_when_it_fails() -> None:
    class Failing(FakeNvml):
        def nvmlDeviceGetCount(self) -> int:  # noqa: N802 - NVML's name
            raise FakeNvmlError("GPU is lost")

    nvml = Failing()
    with pytest.raises(Unreachable, match="does not answer: GPU is lost"):
        probe(nvml)
    assert nvml.shut_down
