"""Memory of one of several GPUs."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from traces import training_trace

from tonnage.estimate.estimator import Estimator
from tonnage.estimate.parallel import ParallelOptions, Sharding, Unit
from tonnage.estimate.parallel_memory import divide, library_bytes
from tonnage.estimate.parallel_trace import from_trace
from tonnage.estimate.topology import Topology, from_catalogue
from tonnage.hardware import find_gpu
from tonnage.program.trace import Category
from tonnage.units import MIB

H200 = find_gpu("H200")


def units_of(count: int, size: int) -> tuple[Unit, ...]:
    return tuple(Unit(name=f"layers.{i}", parameter_bytes=size, gradient_bytes=size) for i in range(count))


def adam(units: tuple[Unit, ...]) -> dict[str, int]:
    weights = sum(unit.parameter_bytes for unit in units)
    return {"parameters": weights, "gradients": weights, "optimizer_state": 2 * weights, "activations": 7 * MIB}


def needed(units: tuple[Unit, ...], ranks: int, sharding: Sharding, *, views: bool = False) -> dict[str, int]:
    options = ParallelOptions(sharding=sharding, gradient_as_bucket_view=views)
    return divide(units, from_catalogue(H200, ranks), options).categories(adam(units))


@given(count=st.integers(8, 40), size=st.integers(1, 500 * MIB), ranks=st.integers(2, 64), views=st.booleans())
def test_each_stage_of_sharding_needs_no_more_than_the_one_before(
    count: int, size: int, ranks: int, views: bool
) -> None:
    # Of networks with many units: one that is a single unit is gathered whole, and then stage 3 gains nothing.
    totals = [sum(needed(units_of(count, size), ranks, sharding, views=views).values()) for sharding in Sharding]
    rounding = 4  # parts are rounded up
    assert all(later <= earlier + rounding for earlier, later in itertools.pairwise(totals))


@given(count=st.integers(8, 40), size=st.integers(1, 500 * MIB), sharding=st.sampled_from(Sharding))
def test_more_gpus_never_need_more_on_each(count: int, size: int, sharding: Sharding) -> None:
    units = units_of(count, size)
    assert sum(needed(units, 8, sharding).values()) <= sum(needed(units, 4, sharding).values()) + 4


def test_one_gpu_stays_as_it_is() -> None:
    units = units_of(8, MIB)
    single = adam(units)
    shared = divide(units, Topology(ranks=1)).categories(single)
    assert {name: size for name, size in shared.items() if size} == single


def test_ddp_keeps_gradients_twice_unless_they_are_views() -> None:
    units = units_of(8, 10 * MIB)
    assert needed(units, 4, Sharding.NONE)["gradients"] == 160 * MIB
    assert needed(units, 4, Sharding.NONE, views=True)["gradients"] == 80 * MIB


def test_stages_divide_what_they_are_named_after() -> None:
    units = units_of(8, 100 * MIB)
    optimizer, gradients, parameters = (needed(units, 4, s) for s in list(Sharding)[1:])
    assert optimizer["optimizer_state"] == gradients["optimizer_state"] == 1600 // 4 * MIB
    assert gradients["gradients"] == (800 // 4 + 2 * 25) * MIB
    assert parameters["parameters"] == parameters["gradients"] == (800 // 4 + 2 * 100) * MIB
    assert parameters["activations"] == 7 * MIB


def test_buffers_of_the_library_are_outside_the_allocator() -> None:
    eight = needed(units_of(8, MIB), 8, Sharding.NONE)
    assert eight["context"] == library_bytes(from_catalogue(H200, 8)) == 688 * MIB
    assert library_bytes(from_catalogue(H200, 2)) == 544 * MIB
    assert library_bytes(from_catalogue(find_gpu("RTX 4090"), 2)) == 80 * MIB
    assert library_bytes(Topology(ranks=1)) == 0


# -- with a Trace ---------------------------------------------------------------------------------------------------------


def test_categories_of_an_estimate_add_up() -> None:
    trace = training_trace()
    single = Estimator(trace).estimate(H200).categories
    shared = divide(from_trace(trace).units(), from_catalogue(H200, 4)).categories(single)
    # Weights of 8 MiB: gradients are there a second time, and NCCL takes its buffers.
    assert sum(shared.values()) == sum(single.values()) + 8 * MIB + 688 * MIB
    assert set(shared) == set(single)


def test_the_peak_may_move_to_another_moment() -> None:
    """With its state sharded, a program that peaked in the optimizer may peak in backward."""
    table = np.zeros((2, len(Category)), dtype=np.int64)
    table[0, Category.ACTIVATIONS] = 60
    table[1, Category.OPTIMIZER_STATE] = 100
    division = divide((), from_catalogue(H200, 4), ParallelOptions(sharding=Sharding.OPTIMIZER))
    peak = division.peak(table)
    assert (peak["activations"], peak["optimizer_state"]) == (60, 0)


@pytest.mark.parametrize("sharding", Sharding)
def test_the_peak_of_a_run_is_at_least_what_its_rows_say(sharding: Sharding) -> None:
    trace = training_trace()
    estimator = Estimator(trace)
    table = estimator.requests(H200).bytes_by_category
    division = divide(from_trace(trace).units(), from_catalogue(H200, 4), ParallelOptions(sharding=sharding))
    at_old_peak = division.categories(dict(estimator.estimate(H200).categories) | {"context": 0})
    assert sum(division.peak(table).values()) >= sum(at_old_peak.values())
