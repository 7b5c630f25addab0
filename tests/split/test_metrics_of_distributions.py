"""What a distribution brings, by hand."""

from dataclasses import replace
from math import inf

import pytest
from pipelines import MB, chain, star

from tonnage.split.metrics import Evaluation
from tonnage.split.network import Network, Operation
from tonnage.split.pipeline import training_step


def test_the_slowest_device_sets_the_period() -> None:
    metrics = Evaluation(chain([1.0, 2.0, 3.0]), star([1.0, 2.0]), [0, 0, 1]).metrics()
    assert metrics.period_seconds == 3.0
    assert metrics.bottleneck == "n0"
    assert metrics.busy_seconds == {"n0": 3.0, "n1": 1.5}


def test_the_slowest_lane_sets_the_period() -> None:
    metrics = Evaluation(chain([0.001, 0.001]), star([1.0, 1.0], rate=1e8), [0, 1]).metrics()
    assert metrics.period_seconds == pytest.approx(0.01)
    assert metrics.bottleneck == "n0->switch"


def test_a_tensor_goes_from_each_reader_to_the_next() -> None:
    operations = tuple(Operation(id=each, seconds={"any": 1e-6}, output_bytes=MB) for each in range(4))
    network = Network(name="fan", operations=operations, edges=((0, 1), (0, 2), (0, 3)))
    metrics = Evaluation(network, star([1.0, 1.0, 1.0]), [0, 1, 1, 2]).metrics()
    assert metrics.lane_seconds["n0->switch"] == pytest.approx(MB / 1e9)
    assert metrics.lane_seconds["n1->switch"] == pytest.approx(MB / 1e9)
    assert metrics.moved_bytes == 2 * MB


def test_gradients_go_straight_back() -> None:
    operations = tuple(
        Operation(id=each, seconds={"any": 1e-6}, backward_seconds={"any": 1e-6}, output_bytes=MB) for each in range(3)
    )
    network = Network(name="fan", operations=operations, edges=((0, 1), (0, 2)), is_training=True)
    metrics = Evaluation(network, star([1.0, 1.0, 1.0]), [0, 1, 2]).metrics()
    assert metrics.lane_seconds["switch->n0"] == pytest.approx(2 * MB / 1e9)
    assert metrics.lane_seconds["n0->switch"] == pytest.approx(MB / 1e9)


def test_latency_is_computing_and_moving_one_after_the_other() -> None:
    metrics = Evaluation(chain([1.0, 2.0]), star([1.0, 1.0]), [0, 1]).metrics()
    assert metrics.latency_seconds == pytest.approx(3.0 + 1e-4 + MB / 1e9)


def test_branches_on_two_devices_run_at_once() -> None:
    operations = tuple(Operation(id=each, seconds={"any": 1.0}) for each in range(4))
    network = Network(name="diamond", operations=operations, edges=((0, 1), (0, 2), (1, 3), (2, 3)))
    apart = Evaluation(network, star([1.0, 1.0, 1.0]), [0, 0, 1, 2]).metrics()
    assert apart.latency_seconds == pytest.approx(4.0 + 2e-4)  # a device begins when all it waits for is there
    assert apart.devices == 3


def test_a_device_that_waits_for_its_own_results_works_in_segments() -> None:
    evaluation = Evaluation(chain([1.0, 1.0, 1.0]), star([1.0, 1.0]), [0, 1, 0])
    assert evaluation.segments == ((0, (0,)), (1, (1,)), (0, (2,)))
    assert evaluation.metrics().latency_seconds == pytest.approx(3.0 + 2 * (1e-4 + MB / 1e9))


def test_idle_devices_draw_power_too() -> None:
    metrics = Evaluation(chain([1.0, 3.0]), star([1.0, 1.0]), [0, 1]).metrics()
    assert metrics.energy_joules == pytest.approx(2 * 3.0 * 10.0 + (1.0 + 3.0) * 90.0)


def test_a_weight_that_two_operations_read_counts_once_a_device() -> None:
    operations = tuple(
        Operation(id=each, seconds={"any": 1.0}, weights=("table",), weight_bytes=5 * MB) for each in range(2)
    )
    network = Network(name="tied", operations=operations, edges=((0, 1),), weight_bytes={"table": 5 * MB})
    assert Evaluation(network, star([1.0, 1.0]), [0, 0]).weight_bytes == {0: 5 * MB}
    assert Evaluation(network, star([1.0, 1.0]), [0, 1]).weight_bytes == {0: 5 * MB, 1: 5 * MB}


def test_outputs_are_released_after_their_last_use() -> None:
    evaluation = Evaluation(chain([1.0] * 5), star([1.0]), [0] * 5)
    assert evaluation.activation_bytes == {0: 2 * MB}


def test_without_a_way_there_is_no_period() -> None:
    fabric = replace(star([1.0, 1.0]), ways={})
    assert Evaluation(chain([1.0, 1.0]), fabric, [0, 1]).metrics().period_seconds == inf
    assert Evaluation(chain([1.0, 1.0]), fabric, [0, 0]).metrics().period_seconds == 2.0


def test_equal_stages_take_the_time_of_a_full_pipeline() -> None:
    """(M + K - 1) times forward and backward, with links that take no time."""
    network = chain([1.0] * 4, output_bytes=0, backward=2.0)
    fabric = star([1.0] * 4)
    quick = replace(fabric, ways={pair: replace(way, latency_seconds=0.0) for pair, way in fabric.ways.items()})
    schedule = training_step(Evaluation(network, quick, [0, 1, 2, 3]), micro_batches=8)
    assert schedule.step_seconds == pytest.approx((8 + 4 - 1) * 3.0)
    assert schedule.in_flight == {0: 4, 1: 3, 2: 2, 3: 1}


def test_no_device_does_two_things_at_once_and_none_begins_too_early() -> None:
    network = chain([1.0, 2.0, 0.5], backward=1.5)
    schedule = training_step(Evaluation(network, star([1.0, 1.0, 1.0]), [0, 1, 2]), micro_batches=5)
    by_device: dict[int, list[tuple[float, float]]] = {}
    forward = {(slot.device, slot.micro_batch): slot for slot in schedule.slots if not slot.is_backward}
    for slot in schedule.slots:
        by_device.setdefault(slot.device, []).append((slot.begin_seconds, slot.end_seconds))
        if slot.is_backward:
            assert slot.begin_seconds >= forward[slot.device, slot.micro_batch].end_seconds
        elif slot.device:
            assert slot.begin_seconds > forward[slot.device - 1, slot.micro_batch].end_seconds
    for slots in by_device.values():
        assert all(late[0] >= early[1] for early, late in zip(sorted(slots), sorted(slots)[1:], strict=False))
    assert len(schedule.slots) == 2 * 3 * 5


def test_recomputing_costs_a_forward_and_saves_the_stash() -> None:
    network = chain([1.0, 1.0], backward=1.0)
    fabric, places = star([1.0, 1.0]), [0, 1]
    plain = Evaluation(network, fabric, places).metrics({0: 2, 1: 1})
    again = Evaluation(network, fabric, places, recompute=True).metrics({0: 2, 1: 1})
    assert again.period_seconds == 1.5 * plain.period_seconds
    assert again.memory_bytes["n0"] == plain.memory_bytes["n0"] - 2 * MB
