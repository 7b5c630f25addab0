"""Workspaces of convolutions: calls measured on an H200 (torch 2.11, cuDNN 9.19), and what holds for any call."""

from math import prod

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tonnage.estimate.convolution import convolution_trial, convolution_workspace
from tonnage.hardware.catalogue import find_gpu
from tonnage.program.trace import Attribute, Operator, TensorSpec
from tonnage.units import MIB

H200 = find_gpu("H200")
LAST = "channels_last"


def convolution(
    source: tuple[int, ...],
    weight: tuple[int, ...],
    *,
    dtype: str = "float32",
    layout: str = "contiguous",
    stride: int = 1,
    padding: int = 0,
    transposed: bool = False,
    groups: int = 1,
    mask: tuple[bool, bool, bool] | None = None,
    gradient_layout: str | None = None,
) -> Operator:
    """A forward call, or with `mask` a backward one."""
    sides = zip(source[2:], weight[2:], strict=True)
    if transposed:
        sizes = [(size - 1) * stride + kernel - 2 * padding for size, kernel in sides]
    else:
        sizes = [(size + 2 * padding - kernel) // stride + 1 for size, kernel in sides]
    channels = weight[1] * groups if transposed else weight[0]
    x, w = (
        TensorSpec(source, dtype, layout),
        TensorSpec(weight, dtype, layout if prod(weight[2:]) > 1 else "contiguous"),
    )
    y = TensorSpec((source[0], channels, *sizes), dtype, gradient_layout or layout)
    dims = len(sizes)
    attributes: dict[str, Attribute] = {
        "stride": (stride,) * dims, "padding": (padding,) * dims, "dilation": (1,) * dims,
        "transposed": transposed, "output_padding": (0,) * dims, "groups": groups,
    }  # fmt: skip
    if mask is None:
        return Operator("aten::convolution", (x, w, None), (y,), attributes)
    return Operator("aten::convolution_backward", (y, x, w), (), {**attributes, "output_mask": mask})


BOTH, ALL, WEIGHT = (True, True, False), (True, True, True), (False, True, False)

# Measured: ResNet-50 with a batch of 512, U-Net, ResNet with automatic mixed precision, and rows of
# benchmarks/workspace/results/h200-2026-11-15.jsonl.gz. Measured bytes hold up to 1 MiB of the allocator's rounding.
MEASURED = [
    (convolution((512, 64, 56, 56), (64, 64, 3, 3), padding=1), 822231552),
    (convolution((512, 3, 224, 224), (64, 3, 7, 7), stride=2, padding=3), 1952486400),
    (convolution((512, 256, 56, 56), (64, 256, 1, 1)), 512),
    (convolution((512, 512, 7, 7), (2048, 512, 1, 1)), 256901632),
    (convolution((512, 256, 56, 56), (512, 256, 1, 1), stride=2), 1644691968),
    (convolution((512, 128, 28, 28), (128, 128, 3, 3), padding=1, mask=BOTH), 419890176),
    (convolution((512, 512, 28, 28), (256, 512, 1, 1), mask=BOTH), 268435456),
    (convolution((512, 3, 224, 224), (64, 3, 7, 7), stride=2, padding=3, mask=WEIGHT), 2061280768),
    (convolution((8, 64, 256, 256), (128, 64, 3, 3), padding=1), 134513152),
    (convolution((8, 128, 512, 512), (64, 128, 3, 3), padding=1, mask=ALL), 1615168000),
    (convolution((8, 64, 512, 512), (21, 64, 1, 1), mask=ALL), 738965504),
    (convolution((8, 256, 128, 128), (256, 128, 2, 2), stride=2, transposed=True), 403177984),
    (convolution((16, 64, 256, 256), (64, 64, 3, 3), padding=1, dtype="bfloat16"), 268509696),
    (convolution((16, 3, 256, 256), (64, 3, 3, 3), padding=1, dtype="bfloat16"), 0),
    (convolution((96, 3, 224, 224), (64, 3, 7, 7), stride=2, padding=3, dtype="float16", layout=LAST), 38560768),
    (convolution((96, 256, 56, 56), (512, 256, 1, 1), stride=2, dtype="float16", layout=LAST), 512),
    (convolution((256, 64, 56, 56), (64, 64, 3, 3), padding=1, dtype="float16", mask=BOTH), 207618048),
    (convolution((128, 96, 56, 56), (96, 1, 7, 7), padding=3, groups=96, layout=LAST, mask=WEIGHT), 1243611136),
    (convolution((4, 320, 224, 224), (320, 80, 3, 3), padding=1, groups=4), 824443392),
]


@pytest.mark.parametrize(("operator", "measured"), MEASURED)
def test_large_calls_are_within_five_percent_of_what_was_measured(operator: Operator, measured: int) -> None:
    assert sum(convolution_workspace(operator, H200)) == pytest.approx(measured, rel=0.05, abs=MIB)


def test_a_gradient_with_odd_strides_is_copied_first() -> None:
    operator = convolution(
        (8, 256, 128, 128), (256, 128, 2, 2), stride=2, transposed=True, mask=ALL, gradient_layout="strided"
    )
    copy, workspace = convolution_workspace(operator, H200)
    assert copy == 8 * 128 * 256 * 256 * 4
    assert copy + workspace == pytest.approx(680002048, rel=0.05)  # measured in a U-Net


DATA = (True, False, False)


@pytest.mark.parametrize(
    ("operator", "measured"),
    [
        (convolution((64, 256, 56, 56), (128, 256, 1, 1)), 1661075456),
        (convolution((64, 512, 7, 7), (2048, 512, 1, 1)), 2495610880),
        (convolution((64, 512, 28, 28), (256, 512, 1, 1), mask=BOTH), 1193279488),
        (convolution((64, 512, 14, 14), (512, 512, 3, 3), stride=2, padding=1, mask=BOTH), 5317853696),
        (convolution((32, 256, 128, 128), (256, 256, 3, 3), padding=1, mask=WEIGHT), 1034 * MIB),
        # DCGAN with a batch of 256 and of 64: data gradients, the forward pass of its transposed convolutions
        (convolution((256, 512, 8, 8), (1024, 512, 4, 4), stride=2, padding=1, mask=DATA), 12088 * MIB),
        (convolution((64, 1024, 4, 4), (1024, 512, 4, 4), stride=2, padding=1, transposed=True), 9604 * MIB),
        (convolution((256, 256, 16, 16), (256, 128, 4, 4), stride=2, padding=1, transposed=True), 1632122880),
        (convolution((256, 64, 64, 64), (128, 64, 4, 4), stride=2, padding=1, mask=DATA), 1402079478),
        (convolution((256, 64, 64, 64), (128, 64, 4, 4), stride=2, padding=1), 407371776),
        (convolution((256, 1024, 4, 4), (1, 1024, 4, 4)), 606402314),
        (convolution((256, 100, 1, 1), (100, 1024, 4, 4), transposed=True), 1697906688),
    ],
)
def test_the_first_call_with_benchmark_tries_much_larger_kernels(operator: Operator, measured: int) -> None:
    trial = convolution_trial(operator, H200)
    assert trial is not None
    assert trial.nbytes == pytest.approx(measured, rel=0.05)
    assert sum(convolution_workspace(operator, H200, benchmark=True)) <= trial.nbytes


def test_a_trial_is_shared_by_a_data_gradient_and_a_transposed_convolution() -> None:
    gradient = convolution((8, 64, 32, 32), (128, 64, 4, 4), stride=2, padding=1, mask=DATA)
    transposed = convolution((8, 128, 16, 16), (128, 64, 4, 4), stride=2, padding=1, transposed=True)
    other = convolution((4, 128, 16, 16), (128, 64, 4, 4), stride=2, padding=1, transposed=True)
    first, second, third = (convolution_trial(operator, H200) for operator in (gradient, transposed, other))
    assert first is not None
    assert first == second
    assert third is not None
    assert third.key != first.key


def test_nothing_is_tried_where_torch_does_not_ask_cudnn() -> None:
    assert convolution_trial(convolution((0, 64, 56, 56), (64, 64, 3, 3)), H200) is None
    assert convolution_trial(convolution((8, 96, 56, 56), (96, 1, 3, 3), groups=96), H200) is None


@pytest.mark.parametrize(
    ("operator", "measured"),
    [
        (convolution((64, 64, 56, 56), (64, 64, 3, 3), padding=1, mask=WEIGHT), 104972967),
        (convolution((64, 128, 112, 112), (128, 128, 3, 3), padding=1, mask=WEIGHT), 830931623),
        (convolution((64, 512, 14, 14), (512, 512, 3, 3), padding=1, mask=WEIGHT), 69468911),
        (convolution((128, 256, 28, 28), (512, 256, 3, 3), padding=1, mask=WEIGHT), 317326063),
        (convolution((16, 128, 128, 128), (128, 128, 3, 3), padding=1, dtype="bfloat16", mask=WEIGHT), 142181031),
        (convolution((2, 256, 64, 64), (256, 256, 3, 3), padding=1, mask=WEIGHT), 47185920),
        (convolution((2, 128, 64, 64), (256, 128, 3, 3), padding=1, mask=WEIGHT), 33030144),
        (convolution((512, 256, 56, 56), (512, 256, 1, 1), stride=2, mask=WEIGHT), 2474640015),
        (convolution((1024, 256, 8, 8), (512, 256, 4, 4), stride=2, padding=1, mask=WEIGHT), 109051920),
    ],
)
def test_weight_gradients_of_real_networks_are_exact_to_a_kibibyte(operator: Operator, measured: int) -> None:
    assert sum(convolution_workspace(operator, H200)) == pytest.approx(measured, abs=1024)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("kernel", [3, 5, 7])
def test_depthwise_convolutions_need_nothing(dtype: str, kernel: int) -> None:
    for mask in (None, BOTH):
        operator = convolution(
            (64, 96, 56, 56), (96, 1, kernel, kernel), padding=kernel // 2, groups=96, dtype=dtype, mask=mask
        )
        assert convolution_workspace(operator, H200) == ()


@pytest.mark.parametrize(
    ("operator", "measured"),
    [
        (convolution((64, 128, 128, 128), (128, 1, 2, 2), stride=2, groups=128, layout=LAST, mask=WEIGHT), 0),
        (convolution((128, 32, 112, 112), (32, 1, 3, 3), padding=1, groups=32, layout=LAST, mask=WEIGHT), 272384),
        (convolution((64, 2048, 32, 32), (2048, 1, 5, 5), padding=2, groups=2048, dtype="float16", layout=LAST,
                     mask=WEIGHT), 100 * MIB),
        (convolution((128, 96, 56, 56), (96, 1, 7, 7), padding=3, groups=96, dtype="bfloat16", layout=LAST,
                     mask=WEIGHT), 19267584),
        (convolution((27, 384, 112, 112), (384, 1, 3, 3), padding=1, groups=384, dtype="float16", mask=WEIGHT), 0),
    ],
)  # fmt: skip
def test_weight_gradients_of_depthwise_convolutions(operator: Operator, measured: int) -> None:
    assert sum(convolution_workspace(operator, H200)) == pytest.approx(measured, rel=0.01, abs=MIB)


def test_without_tensor_cores_nothing_is_converted() -> None:
    fp32 = convolution((64, 64, 56, 56), (64, 64, 3, 3), padding=1)
    half = convolution((64, 64, 56, 56), (64, 64, 3, 3), padding=1, dtype="float16")
    assert convolution_workspace(fp32, H200, allow_tf32=False) == ()
    assert convolution_workspace(fp32, find_gpu("A100-SXM4-80GB")) != ()
    assert convolution_workspace(fp32, find_gpu("T4")) == ()
    assert convolution_workspace(half, find_gpu("T4")) != ()
    assert convolution_workspace(half, find_gpu("P100-PCIE-16GB")) == ()


def test_an_empty_batch_needs_nothing() -> None:
    assert convolution_workspace(convolution((0, 64, 56, 56), (64, 64, 3, 3)), H200) == ()


CHANNELS = st.sampled_from([1, 3, 4, 8, 12, 16, 24, 32, 64, 96, 128, 256, 320])


@st.composite
def convolutions(draw: st.DrawFn) -> Operator:
    dims = draw(st.integers(1, 3))
    transposed = draw(st.booleans())
    kernel = draw(st.integers(1, 7))
    channels = (draw(CHANNELS), draw(CHANNELS))
    source = (
        draw(st.integers(1, 64)),
        channels[1] if not transposed else channels[0],
        *[draw(st.integers(8, 40))] * dims,
    )
    return convolution(
        source, (*channels, *[kernel] * dims),
        transposed=transposed, stride=draw(st.integers(1, 3)), padding=kernel // 2,
        dtype=draw(st.sampled_from(["float32", "float16", "bfloat16", "float64"])),
        layout=draw(st.sampled_from(["contiguous", LAST] if dims > 1 else ["contiguous"])),
        mask=draw(st.sampled_from([None, BOTH, ALL, WEIGHT, (True, False, False)])),
    )  # fmt: skip


@given(
    operator=convolutions(),
    gpu=st.sampled_from(["H200", "A100-SXM4-80GB", "T4", "P100-PCIE-16GB"]),
    benchmark=st.booleans(),
)
def test_sizes_are_positive_integers(operator: Operator, gpu: str, benchmark: bool) -> None:
    sizes = convolution_workspace(operator, find_gpu(gpu), benchmark=benchmark)
    assert all(isinstance(size, int) and size > 0 for size in sizes)


@given(
    batch=st.integers(2, 256),
    channels=st.sampled_from([16, 64, 128, 512]),
    dtype=st.sampled_from(["float32", "float16", "bfloat16"]),
    mask=st.sampled_from([None, DATA]),
)
def test_a_larger_batch_needs_more(batch: int, channels: int, dtype: str, mask: tuple[bool, bool, bool] | None) -> None:
    def workspace(count: int) -> int:
        shape = (count, channels, 28, 28)
        operator = convolution(shape, (channels, channels, 3, 3), padding=1, dtype=dtype, mask=mask)
        return sum(convolution_workspace(operator, H200))

    assert workspace(batch) > workspace(batch // 2)
