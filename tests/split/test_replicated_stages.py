"""Stages that several devices hold and take turns with: counted by hand, chosen against all possibilities."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pipelines import MB, chain, star

from tonnage.split.bounds import load_bound
from tonnage.split.cluster_problem import Training, cluster_problem
from tonnage.split.devices import Fabric
from tonnage.split.distributing import best_for, front
from tonnage.split.layout import Layout
from tonnage.split.metrics import Evaluation
from tonnage.split.network import Network
from tonnage.split.pipeline import training_step
from tonnage.split.pool import make_pool, measure
from tonnage.split.prices import best_prices
from tonnage.split.targets import Target


def with_state(network: Network, *, weight_bytes: int = 10 * MB) -> Network:
    """Every weight is trained."""
    operations = [replace(each, weight_bytes=weight_bytes, state_bytes=weight_bytes) for each in network.operations]
    return replace(network, operations=tuple(operations))


def without_latency(fabric: Fabric) -> Fabric:
    return replace(fabric, ways={pair: replace(way, latency_seconds=0.0) for pair, way in fabric.ways.items()})


# -- counted --------------------------------------------------------------------------------------------------------------


def test_each_replica_has_its_share_of_computing_and_all_of_the_memory() -> None:
    network, fabric = chain([1.0, 4.0]), star([1.0, 1.0, 1.0])
    metrics = Evaluation(network, fabric, [0, 1], replicas=[(1, 2)]).metrics()
    assert metrics.busy_seconds == {"n0": 1.0, "n1": 2.0, "n2": 2.0}
    assert metrics.period_seconds == 2.0
    assert metrics.devices == 3
    assert metrics.memory_bytes["n1"] == metrics.memory_bytes["n2"] == 12 * MB  # with an input and an output


def test_one_sample_alone_gains_nothing_from_replicas() -> None:
    network, fabric = chain([1.0, 4.0]), star([1.0, 1.0, 1.0])
    alone = Evaluation(network, fabric, [0, 1]).metrics()
    assert Evaluation(network, fabric, [0, 1], replicas=[(1, 2)]).metrics().latency_seconds == alone.latency_seconds


def test_all_replicas_draw_power() -> None:
    """10 W of each for a period of 1.5 s, and 90 W more for 4 s of work."""
    metrics = Evaluation(chain([1.0, 3.0]), star([1.0, 1.0, 1.0]), [0, 1], replicas=[(1, 2)]).metrics()
    assert metrics.energy_joules == pytest.approx(90 * 4 + 3 * 10 * 1.5)


def test_samples_take_the_ways_of_their_numbers() -> None:
    """Two devices send to three: in six samples each pair meets once."""
    evaluation = Evaluation(chain([1.0, 1.0]), star([1.0] * 5), [0, 2], replicas=[(0, 1), (2, 3, 4)])
    assert sorted(evaluation.traffic) == [(a, b, MB / 6) for a in (0, 1) for b in (2, 3, 4)]
    lanes = evaluation.metrics().lane_seconds
    assert lanes["n0->switch"] == pytest.approx(0.001 / 2)
    assert lanes["switch->n4"] == pytest.approx(0.001 / 3)
    assert evaluation.metrics().moved_bytes == MB


def test_as_many_replicas_meet_in_pairs() -> None:
    evaluation = Evaluation(chain([1.0, 1.0]), star([1.0] * 4), [0, 2], replicas=[(0, 1), (2, 3)])
    assert sorted(evaluation.traffic) == [(0, 2, MB / 2), (1, 3, MB / 2)]


def test_gradients_of_replicas_go_from_each_to_each_other_once_a_step() -> None:
    network = with_state(chain([1.0, 1.0], output_bytes=0, backward=1.0))
    evaluation = Evaluation(network, star([1.0] * 4), [0, 1], replicas=[(1, 2, 3)], micro_batches=5)
    exchanged = [each for each in evaluation.traffic if each[2]]
    assert sorted(exchanged) == [(a, b, 2.0 * MB) for a in (1, 2, 3) for b in (1, 2, 3) if a != b]


def test_weights_that_are_not_trained_are_not_exchanged() -> None:
    network = chain([1.0, 1.0], output_bytes=0, backward=1.0)  # without state
    evaluation = Evaluation(network, star([1.0] * 3), [0, 1], replicas=[(1, 2)])
    assert not any(nbytes for _, _, nbytes in evaluation.traffic)


def test_a_training_step_with_replicas() -> None:
    """Stage 0 takes 1 s there and 1 s back, stage 1 takes 2 s and 2 s and is on two devices.

    Stage 0: F0 0-1, F1 1-2, F2 2-3, B0 5-6, F3 6-7, B1 7-8, B2 9-10, B3 11-12.
    Stage 1: F0 1-3, B0 3-5, F2 5-7, B2 7-9 on one device, F1 2-4, B1 4-6, F3 7-9, B3 9-11 on the other.
    """
    network = with_state(chain([1.0, 2.0], output_bytes=0, backward=1.0))
    fabric = without_latency(star([1.0] * 3))
    schedule = training_step(Evaluation(network, fabric, [0, 1], replicas=[(1, 2)]), micro_batches=4)
    assert schedule.step_seconds == pytest.approx(12.0)
    assert schedule.in_flight == {0: 3, 1: 1, 2: 1}
    assert {slot.micro_batch for slot in schedule.slots if slot.device == 2} == {1, 3}
    assert len(schedule.slots) == 2 * 2 * 4


def test_the_exchange_of_gradients_ends_the_step() -> None:
    """2 GB over 1 GB/s after the last backward of stage 1, at 11 s."""
    network = with_state(chain([1.0, 2.0], output_bytes=0, backward=1.0), weight_bytes=2000 * MB)
    fabric = without_latency(star([1.0] * 3))
    schedule = training_step(Evaluation(network, fabric, [0, 1], replicas=[(1, 2)]), micro_batches=4)
    assert schedule.step_seconds == pytest.approx(13.0)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(1, 4), min_size=1, max_size=4), st.integers(1, 9))
def test_every_micro_batch_is_done_by_whoever_has_its_turn(sizes: list[int], count: int) -> None:
    firsts = [sum(sizes[:stage]) for stage in range(len(sizes))]
    replicas = [tuple(range(first, first + size)) for first, size in zip(firsts, sizes, strict=True)]
    network = chain([1.0] * len(sizes), backward=1.0)
    evaluation = Evaluation(network, star([1.0] * sum(sizes)), firsts, replicas=replicas)
    schedule = training_step(evaluation, count)
    done = sorted((slot.device, slot.micro_batch, slot.is_backward) for slot in schedule.slots)
    expected = [
        (holders[m % len(holders)], m, back) for holders in replicas for m in range(count) for back in (False, True)
    ]
    assert done == sorted(expected)


# -- chosen ---------------------------------------------------------------------------------------------------------------


def test_two_devices_for_the_heavy_operation_halve_the_period() -> None:
    """No device holds two of the operations."""
    network, fabric = chain([1.0, 4.0, 1.0]), star([1.0] * 4, memory_bytes=15 * MB)
    assert best_for(make_pool(network, fabric), Target.THROUGHPUT).value == 4.0
    found = best_for(make_pool(network, fabric, replicas=True), Target.THROUGHPUT)
    assert (found.value, found.bound, found.proven_optimal) == (2.0, 2.0, True)
    (heavy,) = found.replicas
    assert found.assignment["op1"] == heavy
    assert len(found.devices) == len(set(found.devices)) == 4
    assert found.as_dict()["replicas"] == {heavy: list(found.replicas[heavy])}


def test_nothing_is_said_of_replicas_where_there_are_none() -> None:
    found = best_for(make_pool(chain([1.0, 1.0]), star([1.0, 2.0]), replicas=True), Target.THROUGHPUT)
    assert found.replicas == {}
    assert "replicas" not in found.as_dict()


def test_an_operation_whose_buffers_change_stays_on_one_device() -> None:
    network = chain([1.0, 4.0, 1.0])
    changing = replace(network.operations[1], changes_weights=True)
    network = replace(network, operations=(network.operations[0], changing, network.operations[2]))
    found = best_for(make_pool(network, star([1.0] * 4), replicas=True), Target.THROUGHPUT)
    assert (found.value, found.bound) == (4.0, 4.0)
    assert found.assignment["op1"] not in found.replicas


def test_an_operation_that_stays_on_one_device_keeps_no_other_there() -> None:
    """It takes no time, and would otherwise go with the one before it."""
    network = chain([4.0, 0.0])
    changing = replace(network.operations[1], changes_weights=True)
    network = replace(network, operations=(network.operations[0], changing))
    found = best_for(make_pool(network, star([1.0] * 3), replicas=True), Target.THROUGHPUT)
    assert (found.value, found.bound) == (2.0, 2.0)


def test_the_largest_operation_is_no_bound_where_it_may_be_shared() -> None:
    network = chain([1.0, 8.0, 1.0])
    shared = cluster_problem(network, star([1.0] * 4))
    assert load_bound(shared, best_prices(shared), most_replicas=1) == 8.0
    assert load_bound(shared, best_prices(shared), most_replicas=3) == pytest.approx(8 / 3)
    changing = replace(network.operations[1], changes_weights=True)
    network = replace(network, operations=(network.operations[0], changing, network.operations[2]))
    alone = cluster_problem(network, star([1.0] * 4))
    assert load_bound(alone, best_prices(alone), most_replicas=3) == 8.0


def test_a_slow_exchange_of_gradients_is_avoided() -> None:
    """Shared by two, the whole network would take 4 s and 10 s of exchange; cut in the middle, 4 s."""
    network = with_state(chain([1.0] * 4, output_bytes=1000, backward=1.0), weight_bytes=10 * MB)
    fabric = star([1.0, 1.0], rate=1e6)
    pool = make_pool(network, fabric, training=Training(micro_batches=4), replicas=True)
    found = best_for(pool, Target.THROUGHPUT)
    assert found.replicas == {}
    assert found.value == 4.0


def test_a_front_holds_both_kinds() -> None:
    pool = make_pool(chain([1.0, 4.0, 1.0]), star([1.0] * 4, memory_bytes=15 * MB), replicas=True)
    found = front(pool, [Target.THROUGHPUT, Target.NODES])
    assert [(each.value, len(each.devices)) for each in found] == [(2.0, 4), (4.0, 3)]
    assert [bool(each.replicas) for each in found] == [True, False]


def layouts(network: Network, fabric: Fabric) -> Iterator[Layout]:
    """Every contiguous cut, with every choice of devices of one speed for each stage."""
    size = len(network.operations)
    for stages in product(range(size), repeat=size):
        if set(stages) == set(range(max(stages) + 1)) and all(stages[a] <= stages[b] for a, b in network.edges):
            yield from _replicated(stages, fabric)


def _replicated(stages: Sequence[int], fabric: Fabric) -> Iterator[Layout]:
    speeds = [device.speed for device in fabric.devices]
    wanted = [(speed, count) for speed in set(speeds) for count in range(1, speeds.count(speed) + 1)]
    for chosen in product(wanted, repeat=max(stages) + 1):
        free = {speed: [place for place, each in enumerate(speeds) if each == speed] for speed in speeds}
        if any(sum(n for each, n in chosen if each == speed) > len(places) for speed, places in free.items()):
            continue
        replicas = [tuple(free[speed].pop(0) for _ in range(count)) for speed, count in chosen]
        yield Layout(
            tuple(replicas[stage][0] for stage in stages), tuple(holders for holders in replicas if len(holders) > 1)
        )


def least_period(network: Network, fabric: Fabric, training: Training | None = None) -> float:
    return min(measure(network, fabric, layout, training).period_seconds for layout in layouts(network, fabric))


@settings(max_examples=40, deadline=None)
@given(
    st.lists(st.sampled_from([0.5, 1.0, 2.0, 4.0]), min_size=1, max_size=4),
    st.sampled_from([[1.0, 1.0, 1.0], [2.0, 1.0, 1.0], [1.0, 1.0, 1.0, 1.0]]),
    st.sampled_from([1e6, 3e6, 1e9]),
)
def test_no_chain_with_replicas_is_better(seconds: list[float], speeds: list[float], rate: float) -> None:
    network, fabric = chain(seconds), star(speeds, rate=rate)
    found = best_for(make_pool(network, fabric, replicas=True), Target.THROUGHPUT)
    assert found.value == pytest.approx(least_period(network, fabric))
    assert found.proven_optimal


@st.composite
def branching(draw: st.DrawFn) -> Network:
    size = draw(st.integers(2, 4))
    network = chain(
        [draw(st.sampled_from([0.5, 1.0, 4.0])) for _ in range(size)], backward=draw(st.sampled_from([0, 1]))
    )
    pairs = [(a, b) for a in range(size) for b in range(a + 1, size) if draw(st.booleans())]
    weights = draw(st.sampled_from([MB, 10 * MB]))
    return with_state(replace(network, edges=tuple(pairs)), weight_bytes=weights)


@settings(max_examples=40, deadline=None)
@given(branching(), st.sampled_from([1e6, 1e7, 1e9]))
def test_the_bound_holds_for_all_layouts(network: Network, rate: float) -> None:
    fabric = star([2.0, 1.0, 1.0], rate=rate)
    training = Training(micro_batches=2) if network.is_training else None
    least = least_period(network, fabric, training)
    pool = make_pool(network, fabric, training=training, replicas=True)
    assert pool.answer.bound <= least * (1 + 1e-9)
    best = min(metrics.period_seconds for metrics in pool.found.values())
    assert best >= least * (1 - 1e-9)
