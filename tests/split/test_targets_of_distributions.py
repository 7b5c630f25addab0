"""Distributions for each target, fronts, re-plans, and what does not fit."""

from dataclasses import replace
from math import inf

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pipelines import MB, chain, star

from tonnage.errors import DoesNotFit, UsageError
from tonnage.split.cluster_problem import Training
from tonnage.split.devices import Fabric, Lane, Way
from tonnage.split.distributing import best_for, front
from tonnage.split.metrics import Evaluation
from tonnage.split.network import Network
from tonnage.split.pool import make_pool
from tonnage.split.replanning import replan
from tonnage.split.targets import Target, value_of


def test_faster_devices_get_more() -> None:
    pool = make_pool(chain([1.0] * 7), star([4.0, 2.0, 1.0]))
    found = best_for(pool, Target.THROUGHPUT)
    assert found.value == 1.0
    assert found.proven_optimal
    assert sorted(list(found.assignment.values()).count(device) for device in found.stages) == [1, 2, 4]


def test_one_sample_alone_is_fastest_on_the_fastest_device() -> None:
    found = best_for(make_pool(chain([1.0] * 6), star([4.0, 2.0, 1.0])), Target.LATENCY)
    assert found.value == 1.5
    assert found.proven_optimal
    assert found.stages == ("n0",)


def test_memory_forces_a_split() -> None:
    pool = make_pool(chain([1.0] * 6), star([1.0, 1.0, 1.0], memory_bytes=35 * MB))
    assert best_for(pool, Target.NODES).value == 2.0
    assert best_for(pool, Target.LATENCY).metrics is not None
    assert all(metrics.memory_share <= 1 for metrics in pool.fitting().values())


def test_what_does_not_fit_says_what_would() -> None:
    with pytest.raises(DoesNotFit, match="hold 2") as error:
        make_pool(chain([1.0] * 6), star([1.0], memory_bytes=30 * MB))
    assert "more such as" in error.value.hint


def test_energy_prefers_devices_that_draw_less() -> None:
    fabric = star([1.0, 1.0])
    thrifty = replace(fabric.devices[1], active_watts=20.0, idle_watts=1.0)
    pool = make_pool(chain([1.0] * 4), replace(fabric, devices=(fabric.devices[0], thrifty)))
    found = best_for(pool, Target.ENERGY)
    assert found.stages == ("n1",)
    assert found.value == pytest.approx(80.0)
    assert found.proven_optimal


def test_a_step_is_asked_of_training_alone() -> None:
    with pytest.raises(UsageError, match="training"):
        best_for(make_pool(chain([1.0] * 3), star([1.0])), Target.STEP)


def test_a_training_step_is_at_least_its_slowest_part_for_every_micro_batch() -> None:
    pool = make_pool(chain([1.0] * 4, backward=2.0), star([1.0, 1.0]), training=Training(micro_batches=6))
    found = best_for(pool, Target.STEP)
    assert found.bound == pytest.approx(6 * 6.0)
    assert found.value == pytest.approx(7 * 6.0, rel=1e-2)


def test_micro_batches_in_flight_count_against_memory() -> None:
    """Six of 10 MB weights and 2 MB stash: the first of three stages keeps three micro-batches."""
    network = chain([1.0] * 6, backward=1.0)
    pool = make_pool(network, star([1.0] * 3, memory_bytes=34 * MB), training=Training(micro_batches=8))
    found = best_for(pool, Target.THROUGHPUT)
    assert found.metrics is not None
    assert found.metrics.memory_share <= 1


def test_nothing_on_a_front_is_beaten() -> None:
    pool = make_pool(chain([1.0, 0.5, 2.0, 1.5, 1.0, 0.7]), star([2.0, 1.0, 1.0]))
    axes = [Target.LATENCY, Target.THROUGHPUT, Target.ENERGY]
    found = front(pool, axes)
    assert len(found) > 1
    points = [[value_of(axis, each.metrics) for axis in axes] for each in found if each.metrics]
    for one in points:
        assert not any(all(a <= b for a, b in zip(other, one, strict=True)) for other in points if other is not one)


@settings(max_examples=40, deadline=None)
@given(st.lists(st.sampled_from([0.5, 1.0, 2.0]), min_size=2, max_size=7), st.sampled_from([1e6, 1e7, 1e9]))
def test_metrics_are_those_of_the_assignment_and_never_below_the_bound(seconds: list[float], rate: float) -> None:
    network, fabric = chain(seconds), star([2.0, 1.0, 1.0], rate=rate)
    pool = make_pool(network, fabric)
    position = {device.name: place for place, device in enumerate(fabric.devices)}
    for target in (Target.THROUGHPUT, Target.LATENCY, Target.ENERGY, Target.NODES, Target.MEMORY):
        found = best_for(pool, target)
        places = [position[found.assignment[operation.id]] for operation in network.operations]
        assert found.metrics == Evaluation(network, fabric, places).metrics()
        assert found.value >= found.bound


def pairs_of_machines() -> Fabric:
    """Four equal devices in two machines: fast inside, slow between."""
    quick, slow = Lane(name="inside", bytes_second=1e10), Lane(name="between", bytes_second=1e7)
    ways = {(a, b): Way(lanes=(0 if a // 2 == b // 2 else 1,)) for a in range(4) for b in range(4) if a != b}
    devices = tuple(replace(device, node=f"m{index // 2}") for index, device in enumerate(star([1.0] * 4).devices))
    return Fabric(devices=devices, lanes=(quick, slow), ways=ways)


def test_slow_links_are_crossed_where_little_is_moved() -> None:
    """Outputs of 1 MB take 0.1 s between machines, which is more than an operation: only one cut may be there."""
    network = chain([0.05] * 8)
    small = replace(network.operations[3], output_bytes=1000)
    network = replace(network, operations=(*network.operations[:3], small, *network.operations[4:]))
    found = best_for(make_pool(network, pairs_of_machines()), Target.THROUGHPUT)
    assert found.value == pytest.approx(0.1)
    assert len(found.stages) == 4


def test_a_device_with_a_wide_lane_receives_from_two_others_at_once() -> None:
    """Each of the first two sends 1 MB in a second; the third receives both in a fifth of it."""
    fabric = star([1.0] * 3, rate=1e6)
    wide = tuple(replace(lane, bytes_second=1e7) if lane.name.startswith("switch->") else lane for lane in fabric.lanes)
    network = replace(chain([1.0] * 3), edges=((0, 2), (1, 2)))
    found = best_for(make_pool(network, replace(fabric, lanes=wide)), Target.THROUGHPUT)
    assert found.value == found.bound == pytest.approx(1.0)


def test_a_straggler_gives_work_away() -> None:
    network, fabric = chain([1.0] * 12), star([1.0, 1.0, 1.0])
    first = best_for(make_pool(network, fabric), Target.THROUGHPUT)
    slow = replace(fabric.devices[1], speed=1 / 3)
    found = replan(network, replace(fabric, devices=(fabric.devices[0], slow, fabric.devices[2])), first.assignment)
    assert found.old_period_seconds == pytest.approx(12.0)
    assert found.distribution.value == pytest.approx(6.0)
    assert found.pays
    assert found.migration.total_bytes > 0


def test_a_lost_device_is_replaced_and_its_weights_come_from_one_that_is_left() -> None:
    network, fabric = chain([1.0] * 6), star([1.0, 1.0, 1.0])
    first = best_for(make_pool(network, fabric), Target.THROUGHPUT)
    left = star([1.0, 1.0])  # n0 and n1
    found = replan(network, left, first.assignment)
    assert {source for source, _ in found.migration.moved_bytes} <= {"n0", "n1"}
    assert found.distribution.value == 3.0
    assert set(found.distribution.stages) == {"n0", "n1"}
    assert found.pays


def test_where_nothing_changed_nothing_moves() -> None:
    network, fabric = chain([1.0, 2.0, 1.5, 0.5]), star([1.0, 2.0])
    first = best_for(make_pool(network, fabric), Target.THROUGHPUT)
    found = replan(network, fabric, first.assignment)
    assert not found.pays
    assert found.distribution.value == first.value
    assert found.distribution.assignment == first.assignment
    assert found.migration.total_bytes == 0


def test_the_only_device_in_use_may_be_lost() -> None:
    network = chain([1.0] * 2)
    found = replan(network, star([1.0, 1.0]), {"op0": "gone", "op1": "gone"})
    assert found.old_period_seconds == inf
    assert found.distribution.value == 1.0


def test_another_networks_distribution_is_refused() -> None:
    with pytest.raises(UsageError, match="op0"):
        replan(chain([1.0]), star([1.0]), {"other": "n0"})


def pinned(network: Network, position: int, where: str) -> Network:
    operations = list(network.operations)
    operations[position] = replace(operations[position], pinned=where)
    return replace(network, operations=tuple(operations))


def test_an_operation_stays_where_it_is_pinned() -> None:
    found = best_for(make_pool(pinned(chain([1.0] * 4), 3, "n2"), star([1.0] * 3)), Target.LATENCY)
    assert found.assignment["op3"] == "n2"
    assert found.stages == ("n2",)


def test_an_operation_that_is_pinned_to_a_node_runs_on_a_device_of_it() -> None:
    """Equal devices of two machines are of one class, but not for it."""
    pool = make_pool(pinned(chain([0.05] * 8), 7, "m1"), pairs_of_machines())
    for layout in pool.found:
        assert pool.fabric.devices[layout.places[7]].node == "m1"
    assert best_for(pool, Target.THROUGHPUT).proven_optimal


@pytest.mark.parametrize(("where", "hint"), [("n-1", "did you mean n1?"), ("elsewhere", "for example n0")])
def test_an_operation_that_is_pinned_to_nothing_is_named(where: str, hint: str) -> None:
    with pytest.raises(
        UsageError, match=f"operation op1 is pinned to '{where}', which is not in the cluster"
    ) as caught:
        make_pool(pinned(chain([1.0] * 2), 1, where), star([1.0, 1.0]))
    assert caught.value.hint == hint
