"""The kinds of layers: how often each is drawn, and how each of its numbers is. What they do is in `scenes`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tonnage.benchmark.layers.draw import (
    Sampler,
    always,
    batch,
    chance,
    channels,
    features,
    image_side,
    log,
    one_of,
    power,
    width,
)

FLOATS = ("float32", "bfloat16", "float16")
# An optimizer that goes through its tensors one by one calls ten operators for each: more of them teach nothing.
LOOPED_TENSORS = 20

UNARY = (
    "relu", "gelu", "gelu_tanh", "silu", "tanh", "sigmoid", "leaky_relu", "exp", "square", "hardswish", "scale", "shift",
    "negate", "elu", "sqrt", "dropout", "clamp", "mish", "softplus", "power", "cos", "relu_",
)  # fmt: skip
BINARY = (
    "add", "multiply", "subtract", "divide", "maximum", "greater", "where", "lerp", "addcmul", "swiglu", "mse", "l1",
    "smooth_l1", "bce",
)  # fmt: skip
REDUCTIONS = ("sum", "mean", "largest", "norm", "variance", "argmax", "cumulative", "logsumexp")
OPTIMIZERS = (
    "sgd", "momentum", "adam", "adamw", "fused_adamw", "adamw_loop", "rmsprop", "adagrad", "clip", "adamax", "nadam",
)  # fmt: skip
FILLS = ("zeros", "randn", "rand", "full", "arange", "randint", "tril")


@dataclass(frozen=True, slots=True)
class Kind:
    """How often a kind of layer is drawn, how its numbers are drawn, and which dtypes it may have."""

    weight: float
    numbers: Mapping[str, Sampler]
    dtypes: tuple[str, ...] = FLOATS


# Rows of a product: samples, or tokens of all samples.
_PRODUCT_ROWS = one_of(log(1, 512), power(64, 65536), log(64, 40000))
_LENGTH = one_of(log(1, 4096), power(16, 2048))
_ELEMENTS = log(64, 1 << 27)
_FILTERS = one_of(channels(8, 2048), channels(16, 512))

_PRODUCTS = {
    "linear": Kind(14, {
        "rows": _PRODUCT_ROWS, "depth": features(8, 16384), "columns": features(2, 51200), "bias": chance(0.7),
        "tf32": chance(0.3),
    }),
    "bmm": Kind(6, {
        "batch": log(2, 2048), "rows": _LENGTH, "depth": one_of(32, 64, 80, 96, 128, log(4, 2048)), "columns": _LENGTH,
        "transpose": one_of("nn", "nt", "tn"), "tf32": chance(0.2),
    }),
    "attention": Kind(6, {
        "batch": batch(256), "heads": one_of(1, 4, 6, 8, 12, 16, 32), "rows": one_of(log(16, 4096), power(64, 4096)),
        "head": one_of(32, 64, 80, 96, 128, 256, weights=(2, 6, 1, 1, 4, 0.5)), "causal": chance(0.5),
        "mask": chance(0.15), "dropout": one_of(0.0, 0.1, weights=(4, 1)),
    }),
    "recurrent": Kind(3, {
        "batch": batch(256), "rows": log(4, 256), "depth": features(16, 1536), "columns": features(16, 1536),
        "layers": one_of(1, 2, 3), "cell": one_of("LSTM", "GRU", "RNN"), "bidirectional": chance(0.25),
    }),
}  # fmt: skip

_CONVOLUTIONS = {
    "conv2d": Kind(16, {
        "batch": batch(256), "channels": one_of(3, channels(8, 2048), channels(16, 512), weights=(1, 4, 4)),
        "filters": _FILTERS, "kernel": one_of(1, 3, 5, 7, 4, weights=(4, 7, 1, 1, 0.5)),
        "stride": one_of(1, 2, weights=(4, 1)), "size": image_side(), "groups": one_of(1, 32, 8, weights=(16, 1, 1)),
        "dilation": one_of(1, 2, weights=(12, 1)), "channels_last": chance(0.35), "bias": chance(0.4),
    }),
    "depthwise": Kind(5, {
        "batch": batch(256), "channels": channels(16, 2048), "kernel": one_of(3, 5, 7),
        "stride": one_of(1, 2, weights=(3, 1)), "size": image_side(), "channels_last": chance(0.35),
    }),
    "conv_transpose2d": Kind(2, {
        "batch": batch(128), "channels": channels(8, 1024), "filters": channels(8, 512), "kernel": one_of(2, 3, 4),
        "stride": one_of(1, 2, weights=(1, 3)), "size": log(4, 96),
    }),
    "conv1d": Kind(3, {
        "batch": batch(128), "channels": channels(8, 1024), "filters": channels(8, 1024), "dims": always(1),
        "kernel": one_of(1, 3, 5, 9), "dilation": one_of(1, 2, 8), "size": log(32, 16000),
    }),
    "conv3d": Kind(1.5, {
        "batch": batch(32), "channels": one_of(3, width(8, 512)), "filters": channels(8, 512), "dims": always(3),
        "kernel": one_of(1, 3), "stride": one_of(1, 2), "size": log(4, 64),
    }),
}  # fmt: skip

_IMAGES = {
    "batch_norm": Kind(5, {
        "batch": batch(512), "channels": channels(8, 2048), "size": image_side(), "channels_last": chance(0.3),
        "training": chance(0.85),
    }),
    "group_norm": Kind(2, {
        "batch": batch(128), "channels": lambda draw: 32 * draw.log(1, 40), "size": image_side(),
        "parts": one_of(1, 8, 32),
    }),
    "pooling": Kind(4, {
        "batch": batch(256), "channels": channels(8, 1024), "size": image_side(), "channels_last": chance(0.25),
        "function": one_of("max2", "max3", "average2", "global", "adaptive7"),
    }),
    "upsample": Kind(2, {
        "batch": batch(64), "channels": channels(8, 512), "size": log(4, 128),
        "mode": one_of("nearest", "bilinear", "bicubic"),
    }),
    "channel_broadcast": Kind(2, {
        "batch": batch(128), "channels": channels(8, 1024), "size": image_side(), "function": one_of("add", "multiply"),
    }),
    "concatenate": Kind(3, {
        "batch": batch(64), "channels": channels(8, 512), "size": image_side(), "parts": one_of(2, 3, 4, 8),
        "along": one_of(0, 1),
    }),
    "memory_format": Kind(2, {
        "batch": batch(64), "channels": channels(8, 512), "size": image_side(), "channels_last": chance(0.5),
    }),
    "rearrange": Kind(2, {
        "batch": batch(64), "channels": channels(4, 256), "size": image_side(),
        "function": one_of("pad", "reflect", "roll", "slice", "flip", "shuffle"),
    }),
}  # fmt: skip

_VECTORS = {
    "layer_norm": Kind(5, {"rows": log(1, 65536), "columns": features(32, 8192), "rms": chance(0.3)}),
    "softmax": Kind(4, {
        "rows": log(1, 65536), "columns": one_of(log(2, 4096), width(64, 50304)), "log": chance(0.3),
    }),
    "unary": Kind(6, {"rows": _ELEMENTS, "function": one_of(*UNARY)}),
    "binary": Kind(5, {"rows": _ELEMENTS, "function": one_of(*BINARY)}),
    "broadcast": Kind(4, {
        "rows": log(1, 65536), "columns": width(4, 8192), "side": one_of("row", "column", "scalar"),
        "function": one_of("add", "multiply", "divide", "subtract"),
    }),
    "cast": Kind(3, {"rows": _ELEMENTS, "target": one_of("float32", "bfloat16", "float16", "int64", "bool")}),
    "transpose": Kind(4, {
        "batch": batch(256), "rows": log(4, 2048), "columns": log(4, 1024), "order": one_of("swap", "last", "heads"),
    }),
    "embedding": Kind(4, {
        "rows": one_of(1000, 10000, 30522, 50304, log(16, 200000)), "columns": features(8, 2048), "tokens": log(1, 65536),
    }),
    "gather": Kind(4, {
        "rows": log(16, 100000), "columns": log(1, 512), "places": log(16, 1_000_000),
        "function": one_of("select", "gather", "scatter_add", "index_add", "index_put", "mask"),
    }),
    "reduction": Kind(5, {
        "rows": log(1, 65536), "columns": log(1, 16384), "along": one_of(0, 1), "function": one_of(*REDUCTIONS),
    }),
    "total": Kind(2, {"rows": _ELEMENTS, "function": one_of("sum", "mean", "norm", "largest")}),
    "ranking": Kind(1.5, {"rows": log(1, 4096), "columns": log(2, 32768), "function": one_of("topk", "sort")}),
    "cross_entropy": Kind(3, {"rows": log(1, 65536), "columns": one_of(2, 10, 100, 1000, 30522, 50257)}),
    "fill": Kind(2, {"rows": _ELEMENTS, "function": one_of(*FILLS)}),
}  # fmt: skip

_SINGLE = {
    "optimizer": Kind(
        4, {"rows": log(1, 400), "columns": log(64, 4_000_000), "function": one_of(*OPTIMIZERS)}, ("float32",)
    ),
    "copy": Kind(3, {"rows": _ELEMENTS, "direction": one_of("h2d", "d2h"), "pinned": chance(0.5)}, ("float32",)),
}

KINDS: Mapping[str, Kind] = _PRODUCTS | _CONVOLUTIONS | _IMAGES | _VECTORS | _SINGLE
