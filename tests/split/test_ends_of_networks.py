"""Inputs come from a node and outputs end at a node: what that costs, by hand and beside every other distribution."""

from collections.abc import Iterator
from dataclasses import replace
from itertools import product
from math import inf

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pipelines import MB, chain

from tonnage.split.cluster_problem import Training
from tonnage.split.devices import HERE, Device, End, Fabric, Lane, Way
from tonnage.split.distributing import best_for
from tonnage.split.layout import Layout
from tonnage.split.metrics import Evaluation, Metrics
from tonnage.split.network import Input, Network, Operation
from tonnage.split.page_summary import facts
from tonnage.split.pool import make_pool, measure
from tonnage.split.targets import Target, value_of

A, B = 0, 1
TARGETS = (Target.THROUGHPUT, Target.LATENCY, Target.ENERGY, Target.MEMORY, Target.NODES)


def two(speeds: tuple[float, float] = (1.0, 4.0), rates: tuple[float, float] = (1e6, 1e6), **ends: str) -> Fabric:
    """The nodes a and b with a lane there and one back, and ends at them."""
    devices = tuple(
        Device(name=name, node=name, kind="cpu", speed=speed, active_watts=10.0, idle_watts=1.0)
        for name, speed in zip("ab", speeds, strict=True)
    )
    lanes = (Lane(name="a->b", bytes_second=rates[0]), Lane(name="b->a", bytes_second=rates[1]))
    there, back = Way(lanes=(0,), latency_seconds=0.1), Way(lanes=(1,), latency_seconds=0.1)
    into = {"a": {A: HERE, B: there}, "b": {A: back, B: HERE}}
    out = {"a": {A: HERE, B: back}, "b": {A: there, B: HERE}}
    return Fabric(
        devices=devices,
        lanes=lanes,
        ways={(A, B): there, (B, A): back},
        inputs=End(node=ends["inputs"], ways=into[ends["inputs"]]) if "inputs" in ends else None,
        outputs=End(node=ends["outputs"], ways=out[ends["outputs"]]) if "outputs" in ends else None,
    )


def photograph(nbytes: int = 3 * MB, *, backward: float = 0.0) -> Network:
    """Two operations of a second each; the first reads 3 MB, the second makes 1 MB."""
    inputs = (Input(name="photograph", nbytes=nbytes, readers=(0,)),)
    return replace(chain([1.0, 1.0], backward=backward), inputs=inputs, outputs=(1,))


def metrics(network: Network, fabric: Fabric, *places: int) -> Metrics:
    return Evaluation(network, fabric, places).metrics()


# -- what a distribution brings -------------------------------------------------------------------------------------------


def test_nothing_counts_where_nobody_says_where_the_ends_are() -> None:
    assert metrics(photograph(), two(), B, B) == metrics(chain([1.0, 1.0]), two(), B, B)


def test_an_input_takes_its_lane_and_its_time() -> None:
    found = metrics(photograph(), two(inputs="a"), B, B)
    assert found.lane_seconds == {"a->b": pytest.approx(3.0)}
    assert (found.period_seconds, found.bottleneck) == (pytest.approx(3.0), "a->b")
    assert found.latency_seconds == pytest.approx(0.1 + 3.0 + 0.5)
    assert found.moved_bytes == 3 * MB


def test_an_output_takes_its_lane_and_its_time() -> None:
    found = metrics(photograph(), two(outputs="a"), B, B)
    assert found.lane_seconds == {"b->a": pytest.approx(1.0)}
    assert found.latency_seconds == pytest.approx(0.5 + 0.1 + 1.0)
    assert found.moved_bytes == 1 * MB


def test_the_ends_cost_nothing_on_their_own_node() -> None:
    assert metrics(photograph(), two(inputs="a", outputs="a"), A, A) == metrics(photograph(), two(), A, A)


def test_inputs_share_a_lane_with_tensors() -> None:
    """3 MB of input to b, and the 1 MB between the operations back to a; then everything once more the other way."""
    found = metrics(photograph(), two(inputs="a"), B, A)
    assert found.lane_seconds == {"a->b": pytest.approx(3.0), "b->a": pytest.approx(1.0)}
    found = metrics(photograph(), two(inputs="b", outputs="b"), A, B)
    assert found.lane_seconds == {"b->a": pytest.approx(3.0), "a->b": pytest.approx(1.0)}
    assert found.latency_seconds == pytest.approx(3.1 + 1.0 + 1.1 + 0.25)


def three(inputs: dict[int, Way]) -> Fabric:
    """Devices behind a switch, and the node of the inputs, which has no device, behind it as well."""
    names = ("n0", "n1", "n2", "store")
    lanes = [Lane(name=f"{name}->s", bytes_second=1e6) for name in names]
    lanes += [Lane(name=f"s->{name}", bytes_second=1e6) for name in names]
    ways = {(i, j): Way(lanes=(i, 4 + j)) for i in range(3) for j in range(3) if i != j}
    devices = tuple(Device(name=name, node=name, kind="cpu") for name in names[:3])
    return Fabric(devices=devices, lanes=tuple(lanes), ways=ways, inputs=End(node="store", ways=inputs))


def fan(nbytes: int) -> Network:
    """Three operations that all read one input."""
    operations = tuple(Operation(id=each, seconds={"any": 1.0}) for each in range(3))
    inputs = (Input(name="words", nbytes=nbytes, readers=(0, 1, 2)),)
    return Network(name="fan", operations=operations, edges=(), inputs=inputs)


def test_an_input_goes_once_to_the_first_that_reads_it_and_from_each_to_the_next() -> None:
    found = metrics(fan(MB), three({place: Way(lanes=(3, 4 + place)) for place in range(3)}), 0, 1, 2)
    assert found.lane_seconds == pytest.approx(
        {"store->s": 1.0, "s->n0": 1.0, "n0->s": 1.0, "s->n1": 1.0, "n1->s": 1.0, "s->n2": 1.0}
    )
    assert found.moved_bytes == 3 * MB
    assert found.latency_seconds == pytest.approx(3.0 + 1.0)


def test_a_device_that_is_the_inputs_node_gets_them_from_nobody() -> None:
    """The node is n1's: n0 and n2 get the input from there, though n0 comes first."""
    found = metrics(fan(MB), three({0: Way(lanes=(1, 4)), 1: HERE, 2: Way(lanes=(1, 6))}), 0, 1, 2)
    assert found.lane_seconds == pytest.approx({"n1->s": 1.0, "s->n0": 1.0, "n0->s": 1.0, "s->n2": 1.0})


def test_inputs_leave_one_after_the_other() -> None:
    network = photograph()
    both = replace(network, inputs=(*network.inputs, Input(name="mask", nbytes=2 * MB, readers=(1,))))
    assert metrics(both, two(inputs="a"), B, B).latency_seconds == pytest.approx(0.1 + 3.0 + 2.0 + 0.5)


def test_ends_of_unknown_size_do_not_count() -> None:
    network = replace(chain([1.0, 1.0], output_bytes=0), inputs=photograph(nbytes=0).inputs, outputs=(1,))
    assert metrics(network, two(inputs="a", outputs="a"), B, B) == metrics(network, two(), B, B)


def test_where_no_way_is_left_there_is_no_period() -> None:
    lost = replace(two(), inputs=End(node="a", ways={A: HERE}), outputs=End(node="a", ways={A: HERE}))
    assert metrics(photograph(), lost, B, B).period_seconds == inf
    assert metrics(photograph(), lost, B, B).latency_seconds == inf
    assert metrics(photograph(), lost, A, A).period_seconds == 2.0


def test_replicas_have_their_share_of_the_ends() -> None:
    """Samples go by turns to n0 and n1 and back to the node of the inputs."""
    into = {place: Way(lanes=(3, 4 + place)) for place in range(3)}
    out = {place: Way(lanes=(place, 7)) for place in range(3)}
    network = replace(
        chain([1.0], output_bytes=2 * MB), inputs=(Input(name="x", nbytes=3 * MB, readers=(0,)),), outputs=(0,)
    )
    fabric = replace(three(into), outputs=End(node="store", ways=out))
    evaluation = Evaluation(network, fabric, [0], replicas=[(0, 1)])
    found = evaluation.metrics()
    assert found.lane_seconds == pytest.approx(
        {"store->s": 3.0, "s->n0": 1.5, "s->n1": 1.5, "n0->s": 1.0, "n1->s": 1.0, "s->store": 2.0}
    )
    assert (found.moved_bytes, found.latency_seconds) == (5 * MB, pytest.approx(3.0 + 1.0 + 2.0))
    assert [evaluation.ends.begin([0], sample) for sample in range(3)] == pytest.approx([3.0, 6.0, 9.0])


def test_in_training_inputs_come_in_for_each_micro_batch_and_have_no_gradients() -> None:
    """On b a micro-batch takes 0.5 s forward and 1 s backward. The input of the last of four is there after 12.1 s."""
    network, training = photograph(backward=2.0), Training(micro_batches=4)
    found = measure(network, two(inputs="a", outputs="a"), Layout((B, B)), training)
    assert found.lane_seconds == {"a->b": pytest.approx(3.0), "b->a": pytest.approx(1.0)}
    assert found.latency_seconds == pytest.approx(3.1 + 1.5 + 1.1)
    assert found.step_seconds == pytest.approx(12.1 + 0.5 + 1.1)  # the loss arrives after the last backward is done
    assert measure(network, two(), Layout((B, B)), training).step_seconds == pytest.approx(4 * 1.5)


# -- what is found --------------------------------------------------------------------------------------------------------


def test_the_best_latency_moves_to_the_inputs() -> None:
    free = best_for(make_pool(photograph(), two()), Target.LATENCY)
    assert (free.stages, free.value, free.proven_optimal) == (("b",), pytest.approx(0.5), True)
    pinned = best_for(make_pool(photograph(), two(inputs="a")), Target.LATENCY)
    assert (pinned.stages, pinned.value, pinned.proven_optimal) == (("a",), pytest.approx(2.0), True)


def test_the_best_period_keeps_what_is_large_near_the_inputs() -> None:
    """All on b is quicker but for the input: with it, a does the first operation and sends 1 MB."""
    assert best_for(make_pool(photograph(), two()), Target.THROUGHPUT).value == pytest.approx(0.5)
    found = best_for(make_pool(photograph(), two(inputs="a")), Target.THROUGHPUT)
    assert found.assignment == {"op0": "a", "op1": "b"}
    assert found.value == pytest.approx(1.0)


def test_a_sample_is_made_small_before_it_goes_to_the_faster_device() -> None:
    small = replace(photograph().operations[0], output_bytes=1000)
    network = photograph()
    network = replace(network, operations=(small, replace(network.operations[1], seconds={"any": 20.0})))
    found = best_for(make_pool(network, two(inputs="a")), Target.LATENCY)
    assert found.assignment == {"op0": "a", "op1": "b"}
    assert found.value == pytest.approx(1.0 + 0.1 + 0.001 + 5.0)
    assert found.proven_optimal


def test_of_equal_devices_those_near_the_ends_are_taken() -> None:
    """Four equal devices in a row of slow links; large inputs at the last, large outputs at the first."""
    devices = tuple(Device(name=f"n{place}", node=f"n{place}", kind="cpu") for place in range(4))
    steps = [(place, place + 1) for place in range(3)] + [(place + 1, place) for place in range(3)]
    lanes = tuple(Lane(name=f"n{i}->n{j}", bytes_second=4e6) for i, j in steps)

    def way(i: int, j: int) -> Way:
        towards = 1 if j > i else -1
        return Way(lanes=tuple(steps.index((at, at + towards)) for at in range(i, j, towards)))

    ways = {(i, j): way(i, j) for i, j in product(range(4), repeat=2) if i != j}
    ends = {
        "inputs": End(node="n3", ways={place: way(3, place) for place in range(4)}),
        "outputs": End(node="n0", ways={place: way(place, 0) for place in range(4)}),
    }
    network = replace(chain([1.0] * 4), inputs=(Input(name="x", nbytes=5 * MB, readers=(0,)),), outputs=(3,))
    large = replace(network.operations[3], output_bytes=5 * MB)
    network = replace(network, operations=(*network.operations[:3], large))
    found = best_for(make_pool(network, Fabric(devices=devices, lanes=lanes, ways=ways, **ends)), Target.THROUGHPUT)
    assert found.value == pytest.approx(1.0)
    assert (found.stages[0], found.stages[-1], len(found.stages)) == ("n3", "n0", 4)


# -- beside all distributions ---------------------------------------------------------------------------------------------


@st.composite
def tiny(draw: st.DrawFn) -> tuple[Network, Fabric]:
    count = draw(st.integers(1, 4))
    trains = draw(st.booleans())
    operations = tuple(
        Operation(
            id=each,
            seconds={"any": draw(st.sampled_from([0.5, 1.0, 3.0]))},
            backward_seconds={"any": 1.0} if trains else {},
            output_bytes=draw(st.sampled_from([0, MB, 3 * MB])),
        )
        for each in range(count)
    )
    edges = tuple((i, j) for j in range(count) for i in range(j) if draw(st.booleans()))
    some = st.sets(st.integers(0, count - 1), min_size=1).map(lambda each: tuple(sorted(each)))
    inputs = tuple(
        Input(name=name, nbytes=draw(st.sampled_from([0, MB, 4 * MB])), readers=draw(some))
        for name in "xy"[: draw(st.integers(0, 2))]
    )
    network = Network(
        name="tiny", operations=operations, edges=edges, is_training=trains, inputs=inputs, outputs=draw(some)
    )
    return network, draw(switched())


@st.composite
def switched(draw: st.DrawFn) -> Fabric:
    """Three devices and a node without any around a switch; ends at any of them."""
    rates, latencies = st.sampled_from([3e5, 1e6, 1e7]), st.sampled_from([0.0, 0.05, 0.3])
    lanes = tuple(Lane(name=f"lane {number}", bytes_second=draw(rates)) for number in range(8))
    latency = [draw(latencies) for _ in range(4)]

    def way(i: int, j: int) -> Way:
        return HERE if i == j else Way(lanes=(i, 4 + j), latency_seconds=latency[i] + latency[j])

    devices = tuple(
        Device(
            name=f"n{place}", node=f"n{place}", kind="cpu", speed=draw(st.sampled_from([1.0, 4.0])), active_watts=5.0
        )
        for place in range(3)
    )
    first, last = draw(st.none() | st.integers(0, 3)), draw(st.none() | st.integers(0, 3))
    return Fabric(
        devices=devices,
        lanes=lanes,
        ways={(i, j): way(i, j) for i, j in product(range(3), repeat=2) if i != j},
        inputs=None if first is None else End(node=f"n{first}", ways={each: way(first, each) for each in range(3)}),
        outputs=None if last is None else End(node=f"n{last}", ways={each: way(each, last) for each in range(3)}),
    )


def distributions(network: Network, fabric: Fabric) -> Iterator[tuple[int, ...]]:
    """All contiguous ones: every device has one segment."""
    for places in product(range(3), repeat=len(network.operations)):
        if len(Evaluation(network, fabric, places).segments) == len(set(places)):
            yield places


@settings(max_examples=60, deadline=None)
@given(tiny(), st.booleans())
def test_ends_never_make_a_distribution_better(case: tuple[Network, Fabric], recompute: bool) -> None:
    network, fabric = case
    training = Training(micro_batches=3, recompute=recompute) if network.is_training else None
    for places in distributions(network, fabric):
        counted = measure(network, fabric, Layout(places), training)
        free = measure(network, replace(fabric, inputs=None, outputs=None), Layout(places), training)
        for target in (*TARGETS, Target.STEP):
            assert value_of(target, counted) >= value_of(target, free) * (1 - 1e-12)
        assert counted.moved_bytes >= free.moved_bytes


@settings(max_examples=100, deadline=None)
@given(tiny())
def test_no_bound_is_above_the_best_of_all_distributions(case: tuple[Network, Fabric]) -> None:
    network, fabric = case
    training = Training(micro_batches=3) if network.is_training else None
    every = [measure(network, fabric, Layout(places), training) for places in distributions(network, fabric)]
    pool = make_pool(network, fabric, training=training)
    for target in (*TARGETS, Target.STEP) if training else TARGETS:
        least = min(value_of(target, each) for each in every)
        found = best_for(pool, target)
        assert found.bound <= least * (1 + 1e-9)
        assert found.value >= least * (1 - 1e-9)


def test_the_page_names_the_ends() -> None:
    text = facts(make_pool(photograph(), two(inputs="a", outputs="b")))
    assert "<dt>inputs come from</dt><dd>a <small>" in text
    assert "<dt>outputs end at</dt><dd>b <small>" in text
    assert "inputs come from" not in facts(make_pool(photograph(), two()))
