"""One point, measured: which steps count, what is known on a CPU, and what a GPU would add."""

import pytest
import torch

from tonnage.benchmark import measure, timing
from tonnage.benchmark.environment import find_local, find_place
from tonnage.benchmark.failures import is_out_of_memory, short_reason
from tonnage.benchmark.measure import measure_point
from tonnage.benchmark.messages import Method
from tonnage.benchmark.power import PowerMeter
from tonnage.benchmark.workloads import FAMILIES, Step, make_point
from tonnage.errors import Unreachable
from tonnage.hardware import probe
from tonnage.hardware.cpu import cpu_model
from tonnage.hardware.fake_nvml import FakeDevice, FakeNvml
from tonnage.store.rows import Status

SHORT = Method(steps=2, repetitions=2)
POINT = make_point("mlp", {"depth": 2, "width": 16, "inputs": 8, "batch": 4})


def test_the_first_step_of_every_repetition_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []

    def times(step: Step, count: int, device: str) -> list[timing.StepTimes]:
        asked.append(count)
        timing.time_steps(step, 1, device)
        seconds = [9.0, *range(1, count)]
        return [timing.StepTimes(float(s), (s, 0, 0, 0, 0), s / 2) for s in seconds]

    monkeypatch.setattr(measure, "time_steps", times)
    found = measure_point(POINT, device="cpu", method=Method(steps=20, repetitions=3, kernels=False)).measurement
    assert asked == [1, 21, 21, 21]
    assert found.step_seconds is not None
    assert found.host_seconds is not None
    assert (found.step_seconds.mean, found.host_seconds.mean) == (10.5, 5.25)  # of 1 to 20: not of the 9
    assert (found.first_step_seconds, found.steps, found.repetitions) == (9.0, 20, 3)


def test_the_parts_of_a_step_make_up_the_step() -> None:
    found = measure_point(POINT, device="cpu", method=SHORT).measurement
    parts = [
        found.h2d_seconds,
        found.forward_seconds,
        found.backward_seconds,
        found.optimizer_seconds,
        found.d2h_seconds,
    ]
    assert found.step_seconds is not None
    assert sum(part.mean for part in parts if part) == pytest.approx(found.step_seconds.mean, rel=1e-6)
    assert None not in parts


@pytest.mark.parametrize("family", FAMILIES)
def test_every_family_is_measured_on_a_cpu(family: str) -> None:
    small = {
        "width": 16,
        "depth": 1,
        "hidden": 16,
        "sequence": 8,
        "heads": 2,
        "convolutions": 1,
        "conv1": 8,
        "size": 32,
    }
    values = {name: value for name, value in small.items() if name in {n.name for n in FAMILIES[family].numbers}}
    found = measure_point(make_point(family, {**values, "batch": 2}), device="cpu", method=SHORT)
    assert found.measurement.status is Status.OK
    assert found.measurement.parameter_count == FAMILIES[family].parameter_count(values)
    assert {row.phase for row in found.kernels} >= {"forward", "backward", "optimizer"}
    assert {row.phase for row in found.hosts} >= {"forward", "backward", "optimizer"}


def test_inference_has_neither_backward_nor_optimizer() -> None:
    point = make_point("mlp", {"width": 16, "batch": 4, "mode": "inference"})
    found = measure_point(point, device="cpu", method=SHORT)
    assert (found.measurement.backward_seconds, found.measurement.optimizer_seconds) == (None, None)
    assert found.measurement.d2h_bytes == 4 * 10 * 4
    assert {row.phase for row in found.kernels} == {"forward"}


def test_what_only_a_gpu_has_is_none_on_a_cpu() -> None:
    found = measure_point(POINT, device="cpu", method=SHORT).measurement
    assert (found.allocated_bytes, found.reserved_bytes, found.device_bytes) == (None, None, None)
    assert (found.power_watts, found.energy_joules_step, found.utilisation) == (None, None, None)


def test_bytes_of_batch_and_checkpoint_are_known() -> None:
    found = measure_point(POINT, device="cpu", method=SHORT).measurement
    assert (found.h2d_bytes, found.d2h_bytes) == (4 * 8 * 4 + 4 * 8, 4)
    assert found.parameter_count is not None
    assert found.storage_bytes is not None
    assert 4 * found.parameter_count < found.storage_bytes < 4 * found.parameter_count + 8192


def test_a_meter_adds_power() -> None:
    device = FakeDevice(power_watts=350.0, utilisation_percent=70)
    meter = PowerMeter(FakeNvml([device], energy_update_seconds=0.01), device)
    method = Method(steps=1, repetitions=1, kernels=False, power_seconds=0.1)
    found = measure_point(POINT, device="cpu", method=method, meter=meter).measurement
    assert found.power_watts == pytest.approx(350, rel=0.5)  # real time, on a machine that does other things too
    assert (found.utilisation, found.temperature_celsius) == (0.7, 55)


# -- failures -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (torch.OutOfMemoryError("CUDA out of memory."), True),
        (MemoryError(), True),
        (RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling cublasCreate"), True),
        (RuntimeError("[enforce fail at x] DefaultCPUAllocator: can't allocate memory: you tried"), True),
        (RuntimeError("CUDA error: an illegal memory access was encountered"), False),
        (ValueError("CUBLAS_STATUS_ALLOC_FAILED"), False),
    ],
)
def test_too_little_memory_has_many_names(error: BaseException, expected: bool) -> None:
    assert is_out_of_memory(error) is expected


def test_the_reason_is_short() -> None:
    text = (
        "CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has 4 GiB of which 1 GiB is free. Including: a, b. See\n"
    )
    assert short_reason(torch.OutOfMemoryError(text)) == (
        "CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has 4 GiB of which 1 GiB is free"
    )
    assert short_reason(ValueError("a\n  b")) == "ValueError: a b"


# -- places ---------------------------------------------------------------------------------------------------------------


def test_a_cpu_is_described() -> None:
    place = find_place("cpu", 0)
    assert (place.device, place.environment.device, place.environment.gpu, place.meter) == ("cpu", "cpu", "", None)
    assert place.environment.torch == torch.__version__
    assert place.environment.cpu == cpu_model()
    assert place.environment.cuda == place.environment.driver == ""


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU here")
def test_a_gpu_that_is_not_there_is_an_error() -> None:
    with pytest.raises(Unreachable, match="torch finds no GPU on this machine"):
        find_place("cuda", 0)
    assert find_place("auto", 0).device == "cpu"


def test_the_gpu_is_found_by_its_identity() -> None:
    machine = probe(FakeNvml([FakeDevice(name="Tesla T4"), FakeDevice()]))
    found = find_local(machine, "GPU-fake-1")
    assert found is not None
    assert found.name == "NVIDIA H200"
    assert find_local(machine, "MIG-1") is None
    assert find_local(None, "GPU-fake-1") is None
