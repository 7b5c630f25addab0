"""The largest batch that fits: checked against its neighbours, and against trying all of them."""

from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from traces import training_trace

from tonnage.estimate.batches import LARGEST_SEARCHED, BatchSearch
from tonnage.estimate.estimator import Estimator
from tonnage.estimate.memory import context_bytes
from tonnage.hardware import Gpu, find_gpu
from tonnage.program.trace import Trace
from tonnage.units import KIB, MIB

H200 = find_gpu("H200")


def growing_by(sample_bytes: int, weights: int = 8 * MIB) -> Callable[[int], Trace]:
    return lambda batch: training_trace(weights=weights, activations=sample_bytes * batch, steps=2, batch=batch)


def gpu_with_room_for(room_bytes: int) -> Gpu:
    return replace(H200, usable_bytes=context_bytes(training_trace(), H200) + room_bytes)


@pytest.mark.parametrize("name", ["T4", "L4", "A100 SXM 80GB", "H200", "MI300X"])
@pytest.mark.parametrize("sample_bytes", [100 * KIB, 3 * MIB + 17, 700 * MIB])
def test_the_largest_batch_fits_and_one_more_does_not(name: str, sample_bytes: int) -> None:
    trace_at, gpu = growing_by(sample_bytes), find_gpu(name)
    largest = BatchSearch(trace_at).largest(gpu)
    assert Estimator(trace_at(largest)).fits(gpu)
    assert not Estimator(trace_at(largest + 1)).fits(gpu)


@settings(max_examples=25, deadline=None)
@given(sample_bytes=st.integers(100_000, 40_000_000), room=st.integers(40, 600), weights=st.integers(1, 20_000_000))
def test_the_search_finds_what_trying_all_batches_finds(sample_bytes: int, room: int, weights: int) -> None:
    trace_at, gpu = growing_by(sample_bytes, weights), gpu_with_room_for(room * MIB)
    found = BatchSearch(trace_at).largest(gpu)
    assert found == 0 or Estimator(trace_at(found)).fits(gpu)
    assert not Estimator(trace_at(found + 1)).fits(gpu)


def test_where_not_even_one_sample_fits_the_answer_is_zero() -> None:
    assert BatchSearch(growing_by(100 * MIB)).largest(gpu_with_room_for(40 * MIB)) == 0


def test_where_exactly_one_sample_fits_the_answer_is_one() -> None:
    assert BatchSearch(growing_by(100 * MIB)).largest(gpu_with_room_for(240 * MIB)) == 1


def test_a_program_that_does_not_grow_has_no_largest_batch() -> None:
    assert BatchSearch(growing_by(0)).largest(H200) == LARGEST_SEARCHED


def test_gpus_share_what_was_evaluated() -> None:
    asked: list[int] = []

    def trace_at(batch: int) -> Trace:
        asked.append(batch)
        return growing_by(MIB)(batch)

    search = BatchSearch(trace_at)
    search.largest(find_gpu("T4"))
    search.largest(find_gpu("T4"))
    assert len(asked) == len(set(asked))
