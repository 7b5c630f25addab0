"""The clock says how long a step is, the profiler what it is made of, the driver what it draws."""

from dataclasses import replace

import pytest

from tonnage.errors import InvalidFile
from tonnage.hardware.fake_nvml import FakeNvml
from tonnage.profile.combine import Parts, mean_parts
from tonnage.profile.hints import hint_for
from tonnage.profile.indicators import Indicators
from tonnage.profile.report import ClockedStep, TracedStep
from tonnage.profile.sampler import GpuSample, Sampler, Samples

TRACED = TracedStep(
    step_seconds=0.020, forward_seconds=0.003, backward_seconds=0.004, optimizer_seconds=0.001, h2d_seconds=0.001,
    data_wait_seconds=0.002, idle_seconds=0.009, loader_seconds=0.004,
)  # fmt: skip
INDICATORS = Indicators(
    program="train.py",
    program_digest="",
    basis="measured",
    device="cuda",
    steps=5,
    step_seconds=0.01,
    forward_seconds=0.01,
)


def whole(parts: Parts) -> float:
    return sum(getattr(parts, name) for name in Parts.__dataclass_fields__ if name != "step_seconds")


def test_on_a_gpu_kernels_keep_their_time_and_the_rest_shrinks() -> None:
    parts = mean_parts([TRACED], [ClockedStep(step_seconds=0.012, loader_seconds=0.002)], on_gpu=True)
    assert (parts.forward_seconds, parts.backward_seconds) == (0.003, 0.004)
    assert parts.data_wait_seconds == pytest.approx(0.001)  # half of the wait is hidden, as under the profiler
    assert parts.idle_seconds == pytest.approx(0.002)
    assert whole(parts) == pytest.approx(0.012)


def test_kernels_never_take_longer_than_the_step() -> None:
    parts = mean_parts([TRACED], [ClockedStep(step_seconds=0.006)], on_gpu=True)
    assert (parts.idle_seconds, whole(parts)) == (0, pytest.approx(0.006))


def test_on_a_cpu_the_clock_tells_the_phases_and_the_trace_shares_out_the_rest() -> None:
    row = ClockedStep(
        step_seconds=0.010, backward_span_seconds=0.004, optimizer_span_seconds=0.001, loader_seconds=0.001
    )
    parts = mean_parts([TRACED], [row], on_gpu=False)
    assert (parts.backward_seconds, parts.optimizer_seconds, parts.data_wait_seconds) == (0.004, 0.001, 0.001)
    seen = TRACED.forward_seconds + TRACED.idle_seconds
    assert parts.forward_seconds == pytest.approx(0.004 * TRACED.forward_seconds / seen)
    assert whole(parts) == pytest.approx(0.010)


def test_without_a_clock_the_trace_speaks_alone() -> None:
    assert mean_parts([TRACED, TRACED], [], on_gpu=True).step_seconds == pytest.approx(0.020)


def test_power_is_read_between_updates_of_the_counter() -> None:
    energies = [0, 0, 1000, 1000, 2000, 3000, 3000]
    samples = Samples(gpus={"GPU-0": [GpuSample(n * 0.05, energy, 0) for n, energy in enumerate(energies)]})
    assert samples.watts("GPU-0", 0, 1) == pytest.approx(2.0 / 0.15)
    assert samples.watts("GPU-0", 0, 0.12) is None
    assert samples.watts("GPU-1", 0, 1) is None


def test_gpu_memory_is_what_the_device_lost() -> None:
    samples = Samples(gpus={"GPU-0": [GpuSample(n, None, used) for n, used in enumerate([100, 700, 300])]})
    assert samples.gpu_bytes("GPU-0") == 600


def test_the_sampler_asks_the_driver_and_lets_it_go() -> None:
    import os

    nvml = FakeNvml()
    samples = Sampler(os.getpid(), nvml).close()
    assert samples.gpus["GPU-fake-0"][0].energy_millijoules is not None
    assert samples.peak_host_bytes > 1_000_000
    assert nvml.shut_down


def test_the_sampler_does_without_a_driver() -> None:
    import os

    assert Sampler(os.getpid(), FakeNvml(has_driver=False)).close().gpus == {}


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"data_wait_seconds": 0.002, "loader_workers": 0}, "give it num_workers"),
        ({"data_wait_seconds": 0.002, "loader_workers": 4}, "4 loader workers are too few"),
        ({"h2d_seconds": 0.002, "pinned_share": 0.0}, "pageable"),
        ({"h2d_seconds": 0.002, "pinned_share": 1.0}, "nothing hides"),
        ({"idle_seconds": 0.004}, "host is too slow"),
    ],
)
def test_the_hint_names_what_costs_most(changes: dict[str, float], words: str) -> None:
    assert words in hint_for(replace(INDICATORS, **changes))  # type: ignore[arg-type]


def test_a_program_that_wastes_nothing_gets_no_hint() -> None:
    assert hint_for(INDICATORS) == ""


def test_bandwidth_counts_hidden_copies() -> None:
    found = replace(INDICATORS, forward_seconds=0.009, h2d_seconds=0.001, h2d_busy_seconds=0.004, h2d_bytes=8_000_000)
    assert found.h2d_bytes_second == pytest.approx(2e9)
    assert Indicators.from_dict(found.as_dict()) == found


def test_indicators_that_cannot_be_are_refused() -> None:
    with pytest.raises(InvalidFile):
        Indicators.from_dict(INDICATORS.as_dict() | {"idle_seconds": -1.0})
