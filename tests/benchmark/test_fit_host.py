"""A host with known costs is found again from steps that it was simulated to take."""

import pytest
from observed import H200, TRUTH, all_measured

from tonnage.benchmark.fit_host import fit_host
from tonnage.benchmark.observed_steps import observed_step
from tonnage.benchmark.step_samples import StepSample
from tonnage.errors import UsageError
from tonnage.estimate.host_time import HostModel
from tonnage.estimate.step_time import time_step
from tonnage.estimate.time_model import TimeModel
from tonnage.store.rows import HostRow, Measurement

OPERATORS = {"aten::mm": 20e-6, "aten::relu": 20e-6, "aten::threshold_backward": 20e-6, "aten::add_": 20e-6}


def sample_of(measurement: Measurement, hosts: list[HostRow]) -> StepSample:
    assert measurement.step_seconds is not None
    assert measurement.forward_seconds is not None
    assert measurement.backward_seconds is not None
    return StepSample(
        name=measurement.key, family="mlp", gpu=H200, step=observed_step(measurement, hosts),
        step_seconds=measurement.step_seconds.mean, forward_seconds=measurement.forward_seconds.mean,
        backward_seconds=measurement.backward_seconds.mean,
    )  # fmt: skip


@pytest.fixture(scope="module")
def samples() -> list[StepSample]:
    return [sample_of(measurement, hosts) for measurement, _, hosts in all_measured(60)]


@pytest.fixture(scope="module")
def found(samples: list[StepSample]) -> HostModel:
    return fit_host(samples, TRUTH.kernels, HostModel(), OPERATORS)


def errors(samples: list[StepSample], host: HostModel) -> list[float]:
    model = TimeModel(kernels=TRUTH.kernels, host=host)
    return [abs(time_step(s.step, s.gpu, model).step_seconds / s.step_seconds - 1) for s in samples]


def test_steps_are_as_long_as_they_were(samples: list[StepSample], found: HostModel) -> None:
    assert sorted(errors(samples, found))[len(samples) * 9 // 10] < 0.05


def test_the_fit_is_better_than_its_start(samples: list[StepSample], found: HostModel) -> None:
    assert max(errors(samples, found)) < max(errors(samples, HostModel()))


def test_what_a_call_costs_is_found_again(found: HostModel) -> None:
    operator = found.operators["aten::mm"]
    truth = TRUTH.host.operator * TRUTH.host.backward + TRUTH.host.backward_call
    assert operator * found.backward + found.backward_call == pytest.approx(truth, rel=0.1)


def test_costs_that_the_steps_say_nothing_about_stay(found: HostModel) -> None:
    assert found.random_number == pytest.approx(HostModel().random_number, rel=1e-3)
    assert found.speed == 1.0


def test_a_few_steps_are_too_few(samples: list[StepSample]) -> None:
    with pytest.raises(UsageError, match="3 measured steps are too few") as error:
        fit_host(samples[:3], TRUTH.kernels, HostModel(), OPERATORS)
    assert "tonnage bench run" in error.value.hint
