"""One program on several GPUs of a kind."""

import pytest
from steps import copy_to_gpu, copy_to_host, product, relu
from traces import recorder_with, training_trace

from tonnage.estimate.estimate import Estimate, TimeEstimate
from tonnage.estimate.estimator import estimate_trace
from tonnage.estimate.parallel import ParallelOptions, Sharding
from tonnage.estimate.time_model import TimeModel
from tonnage.hardware import find_gpu
from tonnage.program.trace import Category, Origin, Phase, Trace
from tonnage.units import GIB, MIB

GPUS = [find_gpu(name) for name in ("L4", "H200", "MI300X")]
COUNTS = (1, 2, 4, 8, 16)


def inference_trace() -> Trace:
    recorder = recorder_with(product(512))
    for _ in range(3):
        recorder.call(0, 0, Phase.FORWARD)
        recorder.free(recorder.allocate(MIB, 0, Phase.FORWARD))
        recorder.end_step()
    return recorder.trace(Origin(program="x", mode="inference", steps=3))


def busy_trace() -> Trace:
    """A step with copies before and after its phases, and calls of different length in each."""
    recorder = recorder_with(copy_to_gpu(MIB), copy_to_host(4), product(512), product(2048), relu(4096))
    module = recorder.module("Net.layers.0")
    recorder.tag(recorder.allocate(64 * MIB, 0, Phase.SETUP), Category.PARAMETERS)
    for _ in range(4):
        recorder.call(0, 0, Phase.COPY)
        recorder.call(2, module, Phase.FORWARD)
        recorder.call(3, 0, Phase.FORWARD)
        gradient = recorder.allocate(64 * MIB, module, Phase.BACKWARD)
        recorder.tag(gradient, Category.GRADIENTS)
        recorder.call(3, module, Phase.BACKWARD)
        recorder.call(3, module, Phase.BACKWARD)
        recorder.call(4, 0, Phase.OPTIMIZER)
        recorder.call(1, 0, Phase.COPY)
        recorder.free(gradient)
        recorder.end_step()
    return recorder.trace(Origin(program="x", steps=4))


def estimates(trace: Trace, sharding: Sharding = Sharding.NONE, epoch_steps: int = 1600) -> list[list[Estimate]]:
    """For each GPU, one estimate for each count."""
    report = estimate_trace(
        trace, GPUS, time_model=TimeModel(), epoch_steps=epoch_steps, counts=COUNTS,
        parallel=ParallelOptions(sharding=sharding),
    )  # fmt: skip
    found = iter(report.estimates)
    return [[next(found) for _ in COUNTS] for _ in GPUS]


def time_of(estimate: Estimate) -> TimeEstimate:
    assert estimate.time is not None
    return estimate.time


@pytest.fixture(scope="module")
def trained() -> list[list[Estimate]]:
    return estimates(training_trace(operator=product(2048)))


def test_there_is_an_estimate_for_every_gpu_and_count(trained: list[list[Estimate]]) -> None:
    assert [[e.gpu_count for e in row] for row in trained] == [list(COUNTS)] * len(GPUS)
    assert [row[0].gpu for row in trained] == [gpu.name for gpu in GPUS]


def test_an_epoch_gets_shorter_and_no_faster_than_the_count(trained: list[list[Estimate]]) -> None:
    for row in trained:
        epochs = [time.epoch_seconds.value for e in row if (time := time_of(e)).epoch_seconds]
        assert epochs == sorted(epochs, reverse=True)
        assert epochs[-1] >= epochs[0] / COUNTS[-1]


def test_a_step_gets_no_shorter_when_gradients_are_exchanged(trained: list[list[Estimate]]) -> None:
    for row in trained:
        alone = time_of(row[0]).step_seconds.value
        assert all(time_of(e).step_seconds.value >= alone for e in row[1:])
        assert all(time_of(e).network_seconds >= 0 for e in row[1:])


@pytest.mark.parametrize("sharding", list(Sharding))
@pytest.mark.parametrize(
    "trace", [training_trace(operator=product(2048)), training_trace(weights=512 * MIB), busy_trace()]
)
def test_the_parts_of_a_step_add_up_to_it(sharding: Sharding, trace: Trace) -> None:
    for estimate in (e for row in estimates(trace, sharding) for e in row):
        time = time_of(estimate)
        parts = (
            time.forward_seconds, time.backward_seconds, time.optimizer_seconds, time.h2d_seconds, time.d2h_seconds,
        )  # fmt: skip
        assert sum(part.value for part in parts) + time.network_seconds == pytest.approx(time.step_seconds.value)
        assert all(0 <= part.low <= part.value <= part.high for part in parts)
        assert time.network_seconds >= 0


@pytest.mark.parametrize("sharding", list(Sharding))
def test_each_gpu_takes_its_part_of_a_sharded_optimizer_and_of_nothing_else(sharding: Sharding) -> None:
    for row in estimates(busy_trace(), sharding):
        alone, *others = [time_of(e) for e in row]
        for count, time in zip(COUNTS[1:], others, strict=True):
            parts = 1 if sharding is Sharding.NONE else count
            assert time.optimizer_seconds.value == pytest.approx(alone.optimizer_seconds.value / parts)
            assert time.d2h_seconds == alone.d2h_seconds
            assert time.backward_seconds.value >= alone.backward_seconds.value


def test_power_and_energy_of_a_step_grow_with_the_count(trained: list[list[Estimate]]) -> None:
    for row in trained:
        power = [time_of(e).power_watts.value for e in row]
        energy = [time_of(e).energy_joules_step.value for e in row]
        assert power == sorted(power)
        assert energy == sorted(energy)
        assert power[-1] <= COUNTS[-1] * find_gpu(row[0].gpu).tdp_watts * (1 + 1e-9)


def test_the_price_of_an_hour_is_that_of_all_gpus(trained: list[list[Estimate]]) -> None:
    prices = [cost.value for e in trained[0] if (cost := time_of(e).cost_usd_hour)]
    assert prices == pytest.approx([count * prices[0] for count in COUNTS])


def test_sharded_state_never_needs_more_memory_than_copies_of_it(trained: list[list[Estimate]]) -> None:
    sharded = estimates(training_trace(operator=product(2048)), Sharding.PARAMETERS)
    for copies, shards in zip(trained, sharded, strict=True):
        for one, other in zip(copies[1:], shards[1:], strict=True):
            assert other.device_bytes.value <= one.device_bytes.value
            assert other.categories["optimizer_state"] < one.categories["optimizer_state"]


def test_more_gpus_hold_less_of_sharded_state_each() -> None:
    for row in estimates(training_trace(weights=256 * MIB), Sharding.PARAMETERS):
        states = [e.categories["optimizer_state"] for e in row]
        assert states == sorted(states, reverse=True)


def test_a_program_that_is_too_large_for_one_gpu_may_fit_on_several() -> None:
    trace = training_trace(weights=6 * GIB)
    alone, *_, sixteen = estimates(trace, Sharding.PARAMETERS)[0]
    assert not alone.fits
    assert alone.out_of_memory is not None
    assert sixteen.fits
    assert sixteen.out_of_memory is None


def test_intervals_hold_their_value(trained: list[list[Estimate]]) -> None:
    for estimate in (e for row in trained for e in row):
        time = time_of(estimate)
        for bounds in (estimate.device_bytes, estimate.peak_reserved_bytes, time.step_seconds, time.power_watts):
            assert 0 <= bounds.low <= bounds.value <= bounds.high


def test_copies_of_an_inference_program_do_not_talk_to_each_other() -> None:
    for row in estimates(inference_trace()):
        alone = row[0]
        for several in row[1:]:
            assert time_of(several).step_seconds == time_of(alone).step_seconds
            assert time_of(several).network_seconds == 0.0
            assert several.device_bytes == alone.device_bytes


def test_without_an_epoch_nothing_is_said_about_one() -> None:
    assert time_of(estimates(training_trace(operator=relu(64)), epoch_steps=0)[0][1]).epoch_seconds is None
