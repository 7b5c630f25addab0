"""Seconds of works: bounds, monotonicity, and every GPU of the catalogue."""

import time
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kernel_works import (
    H200,
    attention,
    convolution,
    every_kind_of_work,
    faster,
    pointwise,
    product,
    table,
)

from tonnage.estimate.kernels.constants import Constants, KindConstants
from tonnage.estimate.kernels.rates import Library, Rates
from tonnage.estimate.kernels.roofline import seconds
from tonnage.estimate.kernels.work import Work
from tonnage.hardware import Gpu, all_gpus, find_gpu

# Whole tiles, waves and splits: twice the work may be this much faster where it happens to fit better.
TILE_EFFECT = 1.35
SIZES = st.integers(1, 5000)


def on(gpu: Gpu, *works: Work, footprint: float = 1e12) -> np.ndarray:
    return seconds(table(*works, footprint=footprint), Rates.of(gpu), Constants())


@pytest.mark.parametrize("gpu", all_gpus(), ids=lambda gpu: gpu.name)
def test_every_gpu_of_the_catalogue_gives_sensible_seconds(gpu: Gpu) -> None:
    found = on(gpu, *every_kind_of_work())

    assert np.isfinite(found).all()
    assert (found > 1e-7).all()
    assert (found < 1.0).all()


@settings(max_examples=60, deadline=None)
@given(rows=SIZES, columns=SIZES, depth=SIZES, batch=st.integers(1, 64), gpu=st.sampled_from(all_gpus()))
def test_no_product_is_faster_than_the_peak_rate(rows: int, columns: int, depth: int, batch: int, gpu: Gpu) -> None:
    for arithmetic, size in (("fp32", 4), ("bf16", 2)):
        work = product(rows, columns, depth, batch=batch, arithmetic=arithmetic, size=size)

        assert on(gpu, work)[0] >= work.operations / (gpu.peak_tflops(arithmetic) * 1e12)


@settings(max_examples=60, deadline=None)
@given(rows=SIZES, columns=SIZES, depth=SIZES, gpu=st.sampled_from(all_gpus()))
def test_no_work_outside_the_cache_is_faster_than_the_memory(rows: int, columns: int, depth: int, gpu: Gpu) -> None:
    works = (
        product(rows, columns, depth),
        pointwise(rows * columns),
        pointwise(rows * columns, kind="softmax", depth=columns),
    )
    for work in works:
        if work.written_bytes > 4 * gpu.l2_bytes:
            assert on(gpu, work)[0] >= 0.95 * work.bytes / gpu.bandwidth_bytes_second


@settings(max_examples=60, deadline=None)
@given(rows=SIZES, columns=SIZES, depth=SIZES)
def test_more_work_is_never_faster_by_more_than_tiles_allow(rows: int, columns: int, depth: int) -> None:
    small = on(H200, product(rows, columns, depth))[0]
    for larger in (
        product(2 * rows, columns, depth),
        product(rows, 2 * columns, depth),
        product(rows, columns, 2 * depth),
    ):
        assert on(H200, larger)[0] * TILE_EFFECT >= small


@settings(max_examples=60, deadline=None)
@given(images=st.integers(1, 64), side=st.integers(4, 64), channels=st.integers(1, 512), filters=st.integers(1, 512))
def test_more_images_are_never_faster(images: int, side: int, channels: int, filters: int) -> None:
    few, many = (on(H200, convolution(count, side, channels, filters))[0] for count in (images, 2 * images))

    assert many * TILE_EFFECT >= few


@pytest.mark.parametrize("name", ["H200", "A100 SXM 80GB", "T4", "P4", "V100 PCIe 32GB", "MI300X"])
def test_a_faster_gpu_of_the_same_kind_is_never_slower(name: str) -> None:
    gpu = find_gpu(name)
    works = every_kind_of_work()

    assert (on(faster(gpu), *works) <= on(gpu, *works) * 1.0001).all()


def test_what_was_just_written_is_read_from_the_cache() -> None:
    cold = pointwise(1 << 21)
    warm = replace(cold, fresh_bytes=cold.read_bytes)

    assert on(H200, warm)[0] < 0.9 * on(H200, cold)[0]


def test_a_small_program_stays_in_the_cache() -> None:
    work = pointwise(1 << 22)

    assert on(H200, work, footprint=5e6)[0] < on(H200, work, footprint=1e12)[0]


def test_a_gpu_without_tensor_cores_computes_half_precision_in_its_plain_units() -> None:
    work = product(4096, 4096, 4096, arithmetic="fp16", size=2)

    assert on(find_gpu("P4"), work)[0] > 4 * on(find_gpu("T4"), work)[0]


def test_winograd_needs_less_time_than_its_arithmetic_would() -> None:
    work = convolution(64, 56, 256, 256)

    assert on(find_gpu("V100 PCIe 32GB"), work)[0] < work.operations / (
        find_gpu("V100 PCIe 32GB").peak_tflops("fp32") * 1e12
    )


def test_a_deep_product_with_few_tiles_is_split() -> None:
    deep = product(64, 64, 65536)
    one_tile_seconds = 2 * 64 * 64 * 65536 / (H200.peak_tflops("fp32") * 1e12 / H200.sms)

    assert on(H200, deep)[0] < one_tile_seconds / 4


def test_long_rows_of_which_there_are_few_take_as_long_as_one_sm_needs() -> None:
    few, many = (pointwise(1 << 24, kind="batch_normalisation", depth=depth) for depth in (1 << 23, 1 << 12))

    assert on(H200, few)[0] > 2 * on(H200, many)[0]


def test_attention_grows_with_the_square_of_the_tokens() -> None:
    short, long = on(H200, attention(64, 2048, 128), attention(64, 8192, 128))

    assert 12 < long / short < 18


def test_constants_of_a_generation_of_libraries_come_first() -> None:
    constants = Constants(kinds={"softmax": KindConstants(cache=0.3), "softmax@VOLTA": KindConstants(cache=0.2)})

    assert [constants.of("softmax", library).cache for library in (Library.VOLTA, Library.HOPPER)] == [0.2, 0.3]


def test_factors_of_operators_count_for_their_variants() -> None:
    work = pointwise(1 << 26)
    plain = on(H200, work)[0]
    slow = seconds(table(work), Rates.of(H200), Constants(names={"aten::relu": 1.0, "aten::relu 4": 2.0}))[0]

    assert slow / plain == pytest.approx(np.exp(2.0), rel=0.01)


@pytest.mark.slow
def test_150_works_on_one_gpu_take_a_few_milliseconds() -> None:
    works = table(*(every_kind_of_work() * 7)[:150])
    rates, constants = Rates.of(H200), Constants()
    seconds(works, rates, constants)
    took = []
    for _ in range(20):
        began = time.perf_counter()
        seconds(works, rates, constants)
        took.append(time.perf_counter() - began)

    assert min(took) < 10e-3
