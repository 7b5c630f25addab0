"""The seconds of a step and its parts."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from steps import Call, copy_to_gpu, copy_to_host, product, relu, step_with, training_calls

from tonnage.estimate.estimate import Interval, TimeEstimate
from tonnage.estimate.host_time import HostModel
from tonnage.estimate.step import Step
from tonnage.estimate.step_time import StepTime, StepTimer, time_step
from tonnage.estimate.time_estimate import describe_time, estimate_time
from tonnage.estimate.time_model import Spreads, TimeModel
from tonnage.hardware import Gpu, all_gpus, find_gpu
from tonnage.program.trace import Phase

H200, L4 = find_gpu("H200"), find_gpu("L4")
PARTS = ("forward_seconds", "backward_seconds", "optimizer_seconds", "h2d_seconds", "d2h_seconds")
KINDS = (
    product(64),
    product(2048),
    relu(64),
    relu(4096),
    copy_to_gpu(4 << 20),
    copy_to_gpu(64, waits=False),
    copy_to_host(4),
)
PHASES = (Phase.FORWARD, Phase.BACKWARD, Phase.OPTIMIZER, Phase.COPY)


def parts_of(times: StepTime) -> float:
    return sum(getattr(times, name) for name in PARTS)


@settings(max_examples=100, deadline=None)
@given(st.lists(st.tuples(st.sampled_from(KINDS), st.sampled_from(PHASES)), min_size=1, max_size=30))
def test_phases_add_up_to_the_step(calls: list[Call]) -> None:
    times = time_step(step_with(*calls), H200, TimeModel())
    assert parts_of(times) == pytest.approx(times.step_seconds, rel=1e-6)
    assert all(getattr(times, name) >= 0 for name in PARTS)
    assert times.busy_seconds <= times.step_seconds * (1 + 1e-9)


def test_every_phase_has_its_time() -> None:
    times = time_step(step_with(*training_calls()), H200, TimeModel())
    assert all(getattr(times, name) > 0 for name in PARTS)
    assert times.backward_seconds > times.forward_seconds  # two products against one


@pytest.mark.parametrize("gpu", all_gpus(), ids=lambda gpu: gpu.name)
def test_every_gpu_of_the_catalogue_can_be_timed(gpu: Gpu) -> None:
    times = time_step(step_with(*training_calls()), gpu, TimeModel())
    assert 1e-5 < times.step_seconds < 60
    assert 0 < times.power_watts <= gpu.tdp_watts * (1 + 1e-9)


def test_all_gpus_at_once_take_what_each_takes_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tonnage.estimate.step_time._MOST_VALUES", 100)  # several, but not all at once
    timer = StepTimer(step_with(*training_calls()), TimeModel())
    together = [times.step_seconds for times in timer.on_each(all_gpus())]
    assert together == [timer.on(gpu).step_seconds for gpu in all_gpus()]


def test_a_faster_host_shortens_a_step_of_small_kernels() -> None:
    step = step_with(*[(relu(8), Phase.FORWARD)] * 50)
    slow, fast = (time_step(step, H200, TimeModel(host=HostModel(speed=speed))).step_seconds for speed in (1.0, 2.0))
    assert fast == pytest.approx(slow / 2, rel=0.05)


def test_a_faster_host_does_nothing_for_large_kernels() -> None:
    step = step_with(*[(product(8192), Phase.FORWARD)] * 5)
    slow, fast = (time_step(step, H200, TimeModel(host=HostModel(speed=speed))).step_seconds for speed in (1.0, 2.0))
    assert fast == pytest.approx(slow, rel=0.01)


# -- as an estimate -------------------------------------------------------------------------------------------------------


def estimate(step: Step, gpu: Gpu, epoch_steps: int = 0) -> TimeEstimate | None:
    return estimate_time(StepTimer(step, TimeModel()), gpu, epoch_steps=epoch_steps)


def test_what_bounds_a_step_is_named() -> None:
    small = estimate(step_with(*[(relu(8), Phase.FORWARD)] * 50), H200)
    large = estimate(step_with(*[(product(8192), Phase.FORWARD)] * 5), H200)
    copied = estimate(step_with((copy_to_gpu(1 << 30), Phase.COPY), (relu(8), Phase.FORWARD)), H200)
    assert [time.bound_by for time in (small, large, copied) if time] == ["host", "GPU", "copies"]


def test_a_step_of_nothing_has_no_time() -> None:
    assert estimate(step_with(), H200) is None


def test_bounds_are_those_of_the_basis() -> None:
    model = TimeModel(spreads=Spreads(factors={"specification": {"step_seconds": 0.5}}))
    times = time_step(step_with(*training_calls()), L4, model)
    step = describe_time(times, L4, model).step_seconds
    assert step.low < step.value < step.high
    assert step.high / step.value == pytest.approx(step.value / step.low)


def test_power_is_never_said_to_exceed_the_boards() -> None:
    time = estimate(step_with(*[(product(8192), Phase.FORWARD)] * 5), L4)
    assert time is not None
    assert time.power_watts.high <= L4.tdp_watts


def test_an_epoch_is_as_many_steps() -> None:
    step = step_with(*training_calls())
    time = estimate(step, H200, epoch_steps=100)
    assert time is not None
    assert time.epoch_seconds is not None
    assert time.epoch_seconds.value == pytest.approx(100 * time.step_seconds.value)


def test_cost_is_the_price_of_the_gpu_where_one_is_known() -> None:
    step = step_with(*training_calls())
    priced, unknown = (estimate(step, gpu) for gpu in (L4, H200))
    assert priced is not None
    assert unknown is not None
    assert priced.cost_usd_hour == Interval(*[L4.price_usd_hour] * 3)
    assert unknown.cost_usd_hour is None


@pytest.mark.parametrize("gpu", [H200, L4], ids=lambda gpu: gpu.name)
def test_kernels_that_only_move_bytes_take_more_of_the_bandwidth(gpu: Gpu) -> None:
    """And none of them more than the time in which they run."""
    computing, moving, tiny = (
        describe_time(time_step(step_with(*[(call, Phase.FORWARD)] * 20), gpu, TimeModel()), gpu, TimeModel())
        for call in (product(4096), relu(8192), relu(64))
    )
    assert computing.bandwidth_share < moving.bandwidth_share
    assert all(0.0 < time.bandwidth_share <= time.utilisation for time in (computing, moving, tiny))
