"""The time of data-parallel steps: limits that hold whatever the figures are."""

import itertools
import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tonnage.errors import UsageError
from tonnage.estimate.collectives import all_gather, all_reduce, reduce_scatter
from tonnage.estimate.data_parallel import buckets, data_parallel
from tonnage.estimate.lanes import Lane
from tonnage.estimate.parallel import Gradient, ParallelOptions, ParallelStep, Sharding, Timeline, Unit
from tonnage.estimate.topology import Fabric, Topology
from tonnage.units import MIB


def timeline_of(layers: int = 8, layer_bytes: int = 40 * MIB, backward_seconds: float = 0.08) -> Timeline:
    """Equal layers, whose gradients come in equal intervals."""
    seconds = backward_seconds / layers
    return Timeline(
        forward_seconds=backward_seconds / 2,
        backward_seconds=backward_seconds,
        optimizer_seconds=0.01,
        gradients=tuple(Gradient(ready_seconds=(i + 1) * seconds, nbytes=layer_bytes) for i in range(layers)),
        units=tuple(
            Unit(
                name=f"layers.{i}",
                parameter_bytes=layer_bytes,
                gradient_bytes=layer_bytes,
                forward_seconds=seconds / 2,
                backward_seconds=seconds,
            )
            for i in range(layers)
        ),
    )


def nodes_of(count: int, bytes_second: float = 10e9) -> Topology:
    network = Fabric(kind="infiniband", bytes_second=bytes_second, latency_seconds=2e-6)
    return Topology(ranks=count, nodes=count, between=network if count > 1 else None)


def network_seconds(step: ParallelStep) -> float:
    return sum(span.end_seconds - span.start_seconds for span in step.spans if span.lane == Lane.NETWORK)


@st.composite
def timelines(draw: st.DrawFn) -> Timeline:
    return timeline_of(draw(st.integers(1, 12)), draw(st.integers(1, 200 * MIB)), draw(st.floats(1e-4, 1.0)))


@st.composite
def all_options(draw: st.DrawFn) -> ParallelOptions:
    return ParallelOptions(
        sharding=draw(st.sampled_from(Sharding)),
        overlap=draw(st.booleans()),
        bucket_bytes=draw(st.integers(1, 100)) * MIB,
        accumulation_steps=draw(st.integers(1, 3)),
        communication_dtype=draw(st.sampled_from([None, "bfloat16"])),
        contention=draw(st.floats(0, 1)),
    )


any_nodes = st.builds(nodes_of, st.integers(2, 64), st.floats(1e8, 1e12))


# -- limits ---------------------------------------------------------------------------------------------------------------


@given(timeline=timelines(), options=all_options(), topology=any_nodes)
def test_a_step_is_that_of_one_gpu_with_waiting_and_slowing_and_without_what_is_saved(
    timeline: Timeline, options: ParallelOptions, topology: Topology
) -> None:
    step = data_parallel(timeline, topology, options)
    slowed = sum(step.slowed_seconds.values())
    assert step.waiting_seconds + slowed == pytest.approx(step.exposed_seconds)
    assert step.single_seconds + step.exposed_seconds - step.saved_seconds == pytest.approx(step.step_seconds)


@given(timeline=timelines(), options=all_options())
def test_one_gpu_is_as_quick_as_without_any_of_this(timeline: Timeline, options: ParallelOptions) -> None:
    step = data_parallel(timeline, nodes_of(1), options)
    assert step.step_seconds == pytest.approx(step.single_seconds)
    assert step.exposed_seconds == pytest.approx(0, abs=1e-9)
    assert (step.sent_bytes, step.communication_seconds) == (0, 0)


@given(timeline=timelines(), topology=any_nodes, options=all_options())
def test_a_step_lies_between_the_longer_of_its_parts_and_their_sum(
    timeline: Timeline, topology: Topology, options: ParallelOptions
) -> None:
    step = data_parallel(timeline, topology, options)
    computing = step.step_seconds - step.exposed_seconds
    assert step.step_seconds >= max(computing, step.communication_seconds) * (1 - 1e-9)
    assert step.step_seconds <= (computing + step.communication_seconds) * (1 + 1e-9)
    assert network_seconds(step) == pytest.approx(step.communication_seconds)


@given(timeline=timelines(), topology=any_nodes, options=all_options())
def test_overlap_never_costs_time(timeline: Timeline, topology: Topology, options: ParallelOptions) -> None:
    together = data_parallel(timeline, topology, replace(options, overlap=True))
    apart = data_parallel(timeline, topology, replace(options, overlap=False))
    assert together.step_seconds <= apart.step_seconds * (1 + 1e-9)


@given(timeline=timelines(), count=st.integers(2, 64), rate=st.floats(1e8, 1e12), options=all_options())
def test_more_bandwidth_is_never_slower(timeline: Timeline, count: int, rate: float, options: ParallelOptions) -> None:
    # Without contention: where kernels compete, sending sooner can slow down a backward pass that all wait for.
    options = replace(options, contention=0.0)
    slow = data_parallel(timeline, nodes_of(count, rate), options)
    quick = data_parallel(timeline, nodes_of(count, 2 * rate), options)
    assert quick.step_seconds <= slow.step_seconds * (1 + 1e-9)


@given(timeline=timelines(), topology=any_nodes, options=all_options())
def test_spans_of_a_lane_follow_one_another(timeline: Timeline, topology: Topology, options: ParallelOptions) -> None:
    for lane in Lane:
        spans = [span for span in data_parallel(timeline, topology, options).spans if span.lane == lane]
        assert all(a.end_seconds <= b.start_seconds + 1e-12 for a, b in itertools.pairwise(spans))


# -- buckets --------------------------------------------------------------------------------------------------------------


def test_the_first_bucket_is_small_and_a_gradient_closes_the_bucket_it_fills() -> None:
    sizes = [512 * 1024, 600 * 1024, 20 * MIB, 10 * MIB, 1 * MIB]
    filled = buckets([Gradient(ready_seconds=0, nbytes=size) for size in sizes], 1 * MIB, 25 * MIB)
    assert [[gradient.nbytes for gradient in bucket] for bucket in filled] == [sizes[:2], sizes[2:4], sizes[4:]]


@given(st.lists(st.integers(1, 60 * MIB), max_size=30))
def test_buckets_hold_every_gradient_once_in_order(sizes: list[int]) -> None:
    filled = buckets([Gradient(ready_seconds=0, nbytes=size) for size in sizes], 1 * MIB, 25 * MIB)
    assert [gradient.nbytes for bucket in filled for gradient in bucket] == sizes
    assert all(filled)


def test_a_bucket_starts_when_its_last_gradient_is_ready_and_the_one_before_is_done() -> None:
    step = data_parallel(timeline_of(layers=2), nodes_of(2, 100e9), ParallelOptions(contention=0.0))
    first, second = (span for span in step.spans if span.lane == Lane.NETWORK)
    assert first.start_seconds == pytest.approx(0.04 + 0.04)
    assert second.start_seconds == pytest.approx(0.04 + 0.08)
    assert step.step_seconds == pytest.approx(second.end_seconds + 0.01)


def test_the_optimizer_waits_for_the_last_bucket() -> None:
    step = data_parallel(timeline_of(), nodes_of(4, 1e9))
    optimizer = next(span for span in step.spans if span.name == "optimizer")
    last = [span for span in step.spans if span.lane == Lane.NETWORK][-1]
    assert optimizer.start_seconds == last.end_seconds


def test_kernels_are_slower_while_a_collective_runs() -> None:
    timeline, topology = timeline_of(), nodes_of(4, 100e9)
    free = data_parallel(timeline, topology, ParallelOptions(contention=0.0))
    crowded = data_parallel(timeline, topology, ParallelOptions(contention=0.5))
    assert crowded.step_seconds > free.step_seconds


# -- options --------------------------------------------------------------------------------------------------------------


def test_halved_gradients_send_half_as_much() -> None:
    full = data_parallel(timeline_of(), nodes_of(4))
    half = data_parallel(timeline_of(), nodes_of(4), ParallelOptions(communication_dtype="bfloat16"))
    assert half.sent_bytes == pytest.approx(full.sent_bytes / 2)


def test_accumulated_steps_exchange_once() -> None:
    timeline, topology = timeline_of(), nodes_of(4)
    once = data_parallel(timeline, topology)
    thrice = data_parallel(timeline, topology, ParallelOptions(accumulation_steps=3))
    assert thrice.sent_bytes == once.sent_bytes
    assert thrice.step_seconds == pytest.approx(once.step_seconds + 2 * (0.04 + 0.08))
    sharded = data_parallel(timeline, topology, ParallelOptions(accumulation_steps=3, sharding=Sharding.GRADIENTS))
    assert sharded.sent_bytes > once.sent_bytes


def test_zero_1_and_2_send_as_much_as_ddp_and_zero_3_half_as_much_again() -> None:
    sent = {
        sharding: data_parallel(timeline_of(), nodes_of(4, 1e9), ParallelOptions(sharding=sharding)).sent_bytes
        for sharding in Sharding
    }
    ring = 2 * 3 / 4 * 8 * 40 * MIB
    assert sent[Sharding.OPTIMIZER] == sent[Sharding.GRADIENTS] == pytest.approx(ring)
    assert sent[Sharding.PARAMETERS] == pytest.approx(1.5 * ring)


def test_gathering_of_one_unit_hides_behind_the_unit_before() -> None:
    timeline, topology = timeline_of(), nodes_of(2, 200e9)
    step = data_parallel(timeline, topology, ParallelOptions(sharding=Sharding.PARAMETERS, contention=0.0))
    gather = all_gather(40 * MIB, topology).seconds
    scatter = reduce_scatter(40 * MIB, topology).seconds
    assert step.exposed_seconds == pytest.approx(gather + scatter)  # the first and the last have nothing to hide behind


def test_without_overlap_sharded_parameters_add_up() -> None:
    options = ParallelOptions(sharding=Sharding.PARAMETERS, overlap=False)
    step = data_parallel(timeline_of(), nodes_of(4), options)
    assert step.exposed_seconds == pytest.approx(step.communication_seconds)


def test_a_model_without_units_is_gathered_as_a_whole() -> None:
    timeline = replace(timeline_of(), units=())
    step = data_parallel(timeline, nodes_of(4), ParallelOptions(sharding=Sharding.PARAMETERS))
    assert [span.name for span in step.spans if span.lane == Lane.NETWORK] == [
        "gather model", "gather model", "scatter model",
    ]  # fmt: skip


def test_impossible_options_are_refused() -> None:
    with pytest.raises(UsageError, match="no dtype 'float12'"):
        ParallelOptions(communication_dtype="float12")
    with pytest.raises(UsageError, match="positive"):
        ParallelOptions(accumulation_steps=0)


# -- what is told ---------------------------------------------------------------------------------------------------------


def test_an_epoch_is_shared_by_all_gpus() -> None:
    step = data_parallel(timeline_of(), nodes_of(4))
    assert step.epoch_seconds(1000) == pytest.approx(step.step_seconds * 250)
    assert step.speedup == pytest.approx(4 * step.efficiency)
    assert 0 < step.efficiency < 1


def test_the_chosen_algorithms_are_named() -> None:
    step = data_parallel(timeline_of(), nodes_of(4))
    assert step.algorithms == ("ring Simple",)
    assert all_reduce(40 * MIB, nodes_of(4)).protocol == "Simple"


def test_a_step_can_be_written_as_json() -> None:
    step = data_parallel(timeline_of(), nodes_of(4))
    plain = json.loads(json.dumps(step.as_dict()))
    assert (plain["gpus"], plain["nodes"], plain["step_seconds"]) == (4, 4, step.step_seconds)
    assert plain["links"] == "4 GPUs, 4 nodes by infiniband of 10 GB/s"
