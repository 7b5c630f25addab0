"""How each type of layer is said in ONNX."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from onnx import TensorProto

from tonnage.program.caffe import onnx_arrangement as arranged
from tonnage.program.caffe.layer import Layer, axis_of
from tonnage.program.caffe.normalisation import batch_norm_factors, uses_stored
from tonnage.program.caffe.onnx_export import Writer
from tonnage.program.caffe.shapes.values import covered
from tonnage.program.caffe.shapes.windows import convolution_window, groups_of, pooling_of
from tonnage.program.caffe.weights import Array

_USUAL_BETA = 0.75  # of AlexNet and all that followed


def _one(op: str, **attributes: Any) -> Callable[[Writer, Layer], None]:
    return lambda writer, layer: writer.end(layer, op, *writer.bottoms(layer), **attributes)


# -- windows ----------------------------------------------------------------------------------------------------------


def _convolution(writer: Writer, layer: Layer) -> None:
    shape = writer.shapes(layer)[0]
    if len(layer.makes) > 1:
        layer.refuse("has several tops, which the export to ONNX does not know")
    window = convolution_window(layer, len(shape) - 2)
    writer.end(
        layer, "ConvTranspose" if layer.type == "Deconvolution" else "Conv",
        writer.bottoms(layer)[0], *(writer.constant(each) for each in writer.weights(layer)),
        kernel_shape=window.kernel, strides=window.stride, pads=[*window.pad, *window.pad],
        dilations=window.dilation, group=groups_of(layer, shape[1]),
    )  # fmt: skip


def _pooling(writer: Writer, layer: Layer) -> None:
    """Padding is written out on all sides, so that no reader needs to know how to round."""
    shape = writer.shapes(layer)[0]
    pool, mean = pooling_of(layer, shape), layer.param("pooling_param").get("pool") == "AVE"
    if len(layer.makes) > 1:
        layer.refuse("tells where its maxima were, which the export to ONNX does not know")
    sizes = list(zip(pool.size, pool.stride, pool.kernel, shape[2:], pool.pad, strict=True))
    ends = [max(0, (count - 1) * stride + kernel - size - pad) for count, stride, kernel, size, pad in sizes]
    if any(end >= kernel for end, kernel in zip(ends, pool.kernel, strict=True)):
        layer.refuse("has windows behind the image, which ONNX cannot express")
    settings = {"kernel_shape": pool.kernel, "strides": pool.stride, "pads": [*pool.pad, *ends]}
    if not mean:
        writer.end(layer, "MaxPool", writer.bottoms(layer)[0], **settings)
        return
    clipped = [np.minimum(np.arange(c) * s - p + k, n + p) - (np.arange(c) * s - p) for c, s, k, n, p in sizes]
    factors = math.prod(pool.kernel) / np.outer(*clipped)
    if (factors == 1).all():
        writer.end(layer, "AveragePool", writer.bottoms(layer)[0], count_include_pad=1, **settings)
        return
    means = writer.add("AveragePool", writer.bottoms(layer)[0], count_include_pad=1, **settings)
    writer.end(layer, "Mul", means, writer.constant(factors[None, None]))


# -- values -----------------------------------------------------------------------------------------------------------


def _relu(writer: Writer, layer: Layer) -> None:
    slope = layer.param("relu_param").get("negative_slope")
    bottom = writer.bottoms(layer)[0]
    writer.end(layer, "LeakyRelu", bottom, alpha=slope) if slope else writer.end(layer, "Relu", bottom)


def _prelu(writer: Writer, layer: Layer) -> None:
    """For speed as `a x + (1 - a) max(x, 0)`: onnxruntime runs PRelu number by number, between two changes of order."""
    shape, bottom = writer.shapes(layer)[0], writer.bottoms(layer)[0]
    slope = np.broadcast_to(writer.weights(layer)[0].reshape(-1), shape[1])
    if len(shape) < 3 or not writer.for_speed:
        writer.end(layer, "PRelu", bottom, writer.constant(slope.reshape(-1, *(1,) * (len(shape) - 2))))
        return
    both = writer.add("Relu", bottom)
    writer.end(layer, "Add", _by_channel(writer, bottom, slope), _by_channel(writer, both, 1 - slope))


def _by_channel(writer: Writer, bottom: str, factor: Array) -> str:
    """As a normalisation, which keeps onnxruntime's own order of channels."""
    nothing, one = writer.constant(np.zeros(len(factor))), writer.constant(np.ones(len(factor)))
    return writer.add("BatchNormalization", bottom, writer.constant(factor), nothing, nothing, one, epsilon=0.0)


def _linear(writer: Writer, bottom: str, scale: float, shift: float) -> str:
    scaled = writer.add("Mul", bottom, writer.constant(scale)) if scale != 1 else bottom
    return writer.add("Add", scaled, writer.constant(shift)) if shift != 0 else scaled


def _power(writer: Writer, layer: Layer) -> None:
    param = layer.param("power_param")
    made = _linear(writer, writer.bottoms(layer)[0], param.get("scale"), param.get("shift"))
    writer.end(layer, "Pow", made, writer.constant(param.get("power")))


def _exponential(writer: Writer, layer: Layer) -> None:
    param = layer.param("exp_param")
    log = 1.0 if param.get("base") == -1 else math.log(param.get("base"))
    writer.end(
        layer, "Exp", _linear(writer, writer.bottoms(layer)[0], log * param.get("scale"), log * param.get("shift"))
    )


def _logarithm(writer: Writer, layer: Layer) -> None:
    param = layer.param("log_param")
    log = 1.0 if param.get("base") in (-1, 1) else math.log(param.get("base"))
    made = writer.add("Log", _linear(writer, writer.bottoms(layer)[0], param.get("scale"), param.get("shift")))
    writer.end(layer, "Div", made, writer.constant(log))


def _threshold(writer: Writer, layer: Layer) -> None:
    limit = writer.constant(layer.param("threshold_param").get("threshold"))
    writer.end(layer, "Cast", writer.add("Greater", writer.bottoms(layer)[0], limit), to=TensorProto.FLOAT)


def _clip(writer: Writer, layer: Layer) -> None:
    param = layer.param("clip_param")
    least, most = (0.0, 6.0) if layer.type == "ReLU6" else (param.get("min"), param.get("max"))
    writer.end(layer, "Clip", writer.bottoms(layer)[0], writer.constant(least), writer.constant(most))


def _swish(writer: Writer, layer: Layer) -> None:
    bottom = writer.bottoms(layer)[0]
    writer.end(
        layer, "Mul", bottom, writer.add("Sigmoid", _linear(writer, bottom, layer.param("swish_param").get("beta"), 0))
    )


def _softmax(writer: Writer, layer: Layer) -> None:
    writer.end(layer, layer.type, writer.bottoms(layer)[0], axis=layer.param("softmax_param").get("axis"))


def _eltwise(writer: Writer, layer: Layer) -> None:
    param = layer.param("eltwise_param")
    op = {"SUM": "Add", "PROD": "Mul", "MAX": "Max"}[param.get("operation")]
    terms = writer.bottoms(layer)
    if op == "Add":
        coefficients = param.all("coeff") or [1.0] * len(terms)
        terms = [_linear(writer, term, c, 0) for term, c in zip(terms, coefficients, strict=True)]
    made = terms[0]
    for term in terms[1:-1]:
        made = writer.add(op, made, term)
    writer.end(layer, op, made, terms[-1])


def _axpy(writer: Writer, layer: Layer) -> None:
    factors, first, second = writer.bottoms(layer)
    shape = writer.shapes(layer)
    spread = writer.add("Reshape", factors, writer.sizes(*shape[1][:2], *(1,) * (len(shape[1]) - 2)))
    writer.end(layer, "Add", writer.add("Mul", spread, first), second)


# -- weights ----------------------------------------------------------------------------------------------------------


def _batch_norm(writer: Writer, layer: Layer) -> None:
    shape, bottom = writer.shapes(layer)[0], writer.bottoms(layer)[0]
    if uses_stored(layer):
        spread = (-1, *(1,) * (len(shape) - 2))
        factor, summand = batch_norm_factors(layer, writer.weights(layer))
        made = writer.add("Mul", bottom, writer.constant(factor.reshape(spread)))
        writer.end(layer, "Add", made, writer.constant(summand.reshape(spread)))
        return
    axes = [axis for axis in range(len(shape)) if axis != 1]
    centred, variance = _centred(writer, bottom, axes)
    epsilon = writer.constant(layer.param("batch_norm_param").get("eps"))
    writer.end(layer, "Div", centred, writer.add("Sqrt", writer.add("Add", variance, epsilon)))


def _affine(writer: Writer, layer: Layer) -> None:
    """Of `folding`. As a normalisation, which runtimes know how to join to what is before and behind it."""
    factor, summand = writer.weights(layer)
    channels = writer.shapes(layer)[0][1]
    mean, variance = writer.constant(np.zeros(channels)), writer.constant(np.ones(channels))
    scale, bias = (writer.constant(np.broadcast_to(each, channels)) for each in (factor, summand))
    writer.end(layer, "BatchNormalization", writer.bottoms(layer)[0], scale, bias, mean, variance, epsilon=0.0)


def _centred(writer: Writer, bottom: str, axes: list[int]) -> tuple[str, str]:
    """Differences from the mean, and their mean square."""
    centred = writer.add("Sub", bottom, writer.add("ReduceMean", bottom, axes=axes))
    return centred, writer.add("ReduceMean", writer.add("Mul", centred, centred), axes=axes)


def _mvn(writer: Writer, layer: Layer) -> None:
    param = layer.param("mvn_param")
    centred, variance = _centred(
        writer, writer.bottoms(layer)[0], [1, 2, 3] if param.get("across_channels") else [2, 3]
    )
    if not param.get("normalize_variance"):
        writer.end(layer, "Identity", centred)
        return
    deviation = writer.add("Add", writer.add("Sqrt", variance), writer.constant(param.get("eps")))
    writer.end(layer, "Div", centred, deviation)


def _scale(writer: Writer, layer: Layer) -> None:
    name = "scale_param" if layer.type == "Scale" else "bias_param"
    shapes, bottoms, weights = writer.shapes(layer), writer.bottoms(layer), list(writer.weights(layer))
    own = len(shapes) == 1
    axis = covered(layer, name, shapes[0])[0] if own else axis_of(layer, layer.param(name).get("axis"), shapes[0])
    factors = weights[0].shape if own else shapes[1]
    spread = (*factors, *(1,) * (len(shapes[0]) - axis - len(factors)))
    sizes = writer.integers if own or axis else writer.sizes
    first = writer.constant(weights.pop(0).reshape(spread)) if own else writer.add(
        "Reshape", bottoms[1], sizes(*spread))  # fmt: skip
    op = "Mul" if layer.type == "Scale" else "Add"
    if weights:
        made = writer.add(op, bottoms[0], first)
        writer.end(layer, "Add", made, writer.constant(weights[0].reshape(spread)))
    else:
        writer.end(layer, op, bottoms[0], first)


def _inner_product(writer: Writer, layer: Layer) -> None:
    param, weights = layer.param("inner_product_param"), writer.weights(layer)
    inputs = weights[0].shape[0 if param.get("transpose") else 1]
    rows = writer.bottoms(layer)[0]
    if len(writer.shapes(layer)[0]) != 2:
        rows = writer.add("Reshape", rows, writer.integers(-1, inputs))
    constants, turned = [writer.constant(each) for each in weights], 0 if param.get("transpose") else 1
    if len(writer.made(layer)) == 2:
        writer.end(layer, "Gemm", rows, *constants, transB=turned)
        return
    writer.end(layer, "Reshape", writer.add("Gemm", rows, *constants, transB=turned), writer.sizes(*writer.made(layer)))


def _embed(writer: Writer, layer: Layer) -> None:
    weights = writer.weights(layer)
    numbers = writer.add("Cast", writer.bottoms(layer)[0], to=TensorProto.INT64)
    rows = writer.add("Gather", writer.constant(weights[0]), numbers)
    writer.end(layer, "Add", rows, writer.constant(weights[1] if len(weights) > 1 else 0.0))


def _normalize(writer: Writer, layer: Layer) -> None:
    param, bottom, axes = layer.param("norm_param"), writer.bottoms(layer)[0], len(writer.shapes(layer)[0])
    reduced = writer.integers(*range(1, axes)) if param.get("across_spatial") else writer.integers(1)
    squares = writer.add("ReduceSum", writer.add("Mul", bottom, bottom), reduced)
    length = writer.add("Sqrt", writer.add("Add", squares, writer.constant(param.get("eps"))))
    factor = writer.weights(layer)[0].reshape(-1, *(1,) * (axes - 2))
    writer.end(layer, "Mul", writer.add("Div", bottom, length), writer.constant(factor))


def _lrn(writer: Writer, layer: Layer) -> None:
    param, bottom = layer.param("lrn_param"), writer.bottoms(layer)[0]
    size, alpha, beta = param.get("local_size"), param.get("alpha"), param.get("beta")
    if param.get("norm_region") == "ACROSS_CHANNELS":
        if beta == _USUAL_BETA and writer.for_speed:
            _lrn_by_products(writer, layer, size, alpha, param.get("k"))
            return
        writer.end(layer, "LRN", bottom, size=size, alpha=alpha, beta=beta, bias=param.get("k"))
        return
    means = writer.add(
        "AveragePool", writer.add("Mul", bottom, bottom), kernel_shape=[size, size], strides=[1, 1],
        pads=[size // 2] * 4, count_include_pad=1,
    )  # fmt: skip
    divisor = writer.add("Pow", _linear(writer, means, alpha, 1), writer.constant(-beta))
    writer.end(layer, "Mul", bottom, divisor)


def _lrn_by_products(writer: Writer, layer: Layer, size: int, alpha: float, k: float) -> None:
    """Sums of neighbours as a convolution, and roots instead of a power: onnxruntime's LRN does neither."""
    bottom, channels = writer.bottoms(layer)[0], writer.shapes(layer)[0][1]
    distance = np.abs(np.arange(channels)[:, None] - np.arange(channels))
    band = np.where(distance <= size // 2, alpha / size, 0)[:, :, None, None]
    bias = writer.constant(np.full(channels, k))
    total = writer.add("Conv", writer.add("Mul", bottom, bottom), writer.constant(band), bias, kernel_shape=[1, 1])
    root = writer.add("Sqrt", total)
    writer.end(layer, "Div", bottom, writer.add("Mul", root, writer.add("Sqrt", root)))


WRITERS: Mapping[str, Callable[[Writer, Layer], None]] = {
    "Convolution": _convolution, "DepthwiseConvolution": _convolution, "ConvolutionDepthwise": _convolution,
    "Deconvolution": _convolution, "Pooling": _pooling, "ReLU": _relu, "PReLU": _prelu, "ReLU6": _clip, "Clip": _clip,
    "ELU": lambda writer, layer: writer.end(
        layer, "Elu", *writer.bottoms(layer), alpha=layer.param("elu_param").get("alpha")),
    "Sigmoid": _one("Sigmoid"), "TanH": _one("Tanh"), "AbsVal": _one("Abs"), "BNLL": _one("Softplus"),
    "Dropout": _one("Identity"), "Power": _power, "Exp": _exponential, "Log": _logarithm, "Threshold": _threshold,
    "Swish": _swish, "Softmax": _softmax, "LogSoftmax": _softmax, "Eltwise": _eltwise, "Axpy": _axpy,
    "Affine": _affine, "BatchNorm": _batch_norm, "BN": _batch_norm, "MVN": _mvn, "Scale": _scale, "Bias": _scale,
    "InnerProduct": _inner_product, "Embed": _embed, "Normalize": _normalize, "LRN": _lrn, "Split": arranged.split,
    "Silence": lambda writer, layer: None,
    "Concat": arranged.concat, "Slice": arranged.slice_, "Flatten": arranged.reshape, "Reshape": arranged.reshape,
    "Permute": arranged.permute, "Crop": arranged.crop,
    "Tile": arranged.tile, "ShuffleChannel": arranged.shuffle, "Interp": arranged.interp, "Upsample": arranged.upsample,
    "ArgMax": arranged.argmax,
    "Reduction": arranged.reduction, "PriorBox": arranged.prior_box,
}  # fmt: skip
