"""Works and GPUs for the tests of the kernel model."""

from dataclasses import replace

from tonnage.estimate.kernels.table import WorkTable
from tonnage.estimate.kernels.work import Work
from tonnage.hardware import Gpu, find_gpu

FLUSHED = 1e12


def product(rows: int, columns: int, depth: int, *, batch: int = 1, arithmetic: str = "fp32", size: int = 4) -> Work:
    return Work(
        kind="product", name="aten::mm", operations=2.0 * rows * columns * depth * batch,
        read_bytes=float(size * batch * depth * (rows + columns)), written_bytes=float(size * batch * rows * columns),
        arithmetic=arithmetic, itemsize=size, rows=rows, columns=columns, depth=depth, batch=batch,
    )  # fmt: skip


def convolution(images: int, side: int, channels: int, filters: int, *, window: int = 9, groups: int = 1) -> Work:
    pixels = images * side * side
    return Work(
        kind="convolution", name="aten::convolution", operations=2.0 * pixels * filters * channels * window / groups,
        read_bytes=4.0 * (pixels * channels + channels * filters * window / groups), written_bytes=4.0 * pixels * filters,
        rows=pixels, columns=filters // groups, depth=channels // groups * window, batch=groups, groups=groups,
        window=window, images=images, side=float(side),
    )  # fmt: skip


def pointwise(elements: int, *, kind: str = "pointwise", depth: int = 1) -> Work:
    size = 4.0 * elements
    return Work(
        kind=kind, name="aten::relu", read_bytes=size, written_bytes=size, rows=max(elements // depth, 1), depth=depth
    )


def attention(batch: int, tokens: int, width: int) -> Work:
    size = 2.0 * batch * tokens * width
    return Work(
        kind="attention", name="aten::_scaled_dot_product_flash_attention", operations=4.0 * batch * tokens**2 * width,
        read_bytes=3 * size, written_bytes=size, arithmetic="bf16", itemsize=2, rows=tokens, columns=tokens, depth=width,
        batch=batch,
    )  # fmt: skip


def table(*works: Work, footprint: float = FLUSHED) -> WorkTable:
    return WorkTable.of(works, footprint)


def every_kind_of_work() -> list[Work]:
    plain = ("pointwise", "movement", "list", "fill", "gather", "scatter", "window")
    by_rows = ("reduction", "softmax", "normalisation", "batch_normalisation", "group_normalisation_backward", "sort")
    return [
        product(512, 512, 512), product(64, 4096, 1024, arithmetic="bf16", size=2), product(64, 64, 64, batch=96),
        product(3, 5, 7), product(1000, 1000, 1000, arithmetic="tf32"), product(256, 256, 256, arithmetic="fp64", size=8),
        convolution(32, 56, 64, 64), convolution(32, 14, 256, 1024, window=1), convolution(8, 56, 64, 64, groups=64),
        replace(convolution(8, 56, 64, 64, groups=8), arithmetic="tf32"), attention(96, 512, 64),
        *(pointwise(1 << 20, kind=kind) for kind in plain),
        *(pointwise(1 << 20, kind=kind, depth=1024) for kind in by_rows),
        Work(kind="recurrent", name="aten::_cudnn_rnn", operations=1e9, read_bytes=1e6, written_bytes=1e6, rows=32,
             columns=1024, depth=256, window=50, groups=2, launches=200.0),
    ]  # fmt: skip


def faster(gpu: Gpu) -> Gpu:
    """The same GPU with twice the bandwidth and twice the arithmetic of each SM."""
    tflops = {name: None if value is None else 2 * value for name, value in gpu.tflops.items()}
    return replace(gpu, tflops=tflops, bandwidth_bytes_second=2 * gpu.bandwidth_bytes_second)


H200 = find_gpu("H200")
