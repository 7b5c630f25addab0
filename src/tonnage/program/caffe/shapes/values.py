"""Layers that compute with values and keep shapes, or reduce them: activations, normalisations, products, reductions."""

from __future__ import annotations

from math import prod

from tonnage.program.caffe.layer import Layer, Shape, Shaped, axis_of, needed, shown, size_of


def same(layer: Layer, bottoms: list[Shape]) -> Shaped:
    return Shaped((bottoms[0],))


def clip(layer: Layer, bottoms: list[Shape]) -> Shaped:
    param = layer.param("clip_param")
    if "min" not in param or "max" not in param:
        layer.refuse("does not say its min and max")
    return same(layer, bottoms)


def logarithm(layer: Layer, bottoms: list[Shape]) -> Shaped:
    """Exp and Log take e, or a base above 0."""
    param = layer.param("exp_param" if layer.type == "Exp" else "log_param")
    if param.get("base") != -1 and not param.get("base") > 0:
        layer.refuse(f"has a base of {param.get('base')}", param, "base")
    return same(layer, bottoms)


def softmax(layer: Layer, bottoms: list[Shape]) -> Shaped:
    axis_of(layer, layer.param("softmax_param").get("axis"), bottoms[0])
    return same(layer, bottoms)


def prelu(layer: Layer, bottoms: list[Shape]) -> Shaped:
    channels = _channels(layer, bottoms[0])
    return Shaped((bottoms[0],), (() if layer.param("prelu_param").get("channel_shared") else (channels,),))


def batch_norm(layer: Layer, bottoms: list[Shape]) -> Shaped:
    channels = bottoms[0][1] if len(bottoms[0]) > 1 else 1
    return Shaped((bottoms[0],), ((channels,), (channels,), (1,)))


def bn(layer: Layer, bottoms: list[Shape]) -> Shaped:
    """Slope and bias, and mean and variance unless they are folded into these."""
    channels = _channels(layer, bottoms[0])
    count = 2 if layer.param("bn_param").get("bn_mode") == "INFERENCE" else 4
    return Shaped((bottoms[0],), ((1, channels, 1, 1),) * count)


def normalize(layer: Layer, bottoms: list[Shape]) -> Shaped:
    channels = _channels(layer, bottoms[0])
    return Shaped((bottoms[0],), (() if layer.param("norm_param").get("channel_shared") else (channels,),))


def lrn(layer: Layer, bottoms: list[Shape]) -> Shaped:
    param = layer.param("lrn_param")
    if param.get("local_size") % 2 == 0:
        layer.refuse(f"has an even local_size of {param.get('local_size')}", param, "local_size")
    if len(bottoms[0]) != 4:
        layer.refuse(f"needs a blob of 4 axes, not {shown(bottoms[0])}")
    return same(layer, bottoms)


def mvn(layer: Layer, bottoms: list[Shape]) -> Shaped:
    if len(bottoms[0]) != 4:
        layer.refuse(f"needs a blob of 4 axes, not {shown(bottoms[0])}")
    return same(layer, bottoms)


def covered(layer: Layer, param_name: str, shape: Shape) -> tuple[int, Shape]:
    """The first axis that Scale or Bias acts on, and the shape of the factors that it has of its own."""
    param = layer.param(param_name)
    count = param.get("num_axes")
    axis = axis_of(layer, param.get("axis"), shape) if shape else 0
    if count < -1 or axis + count > len(shape):
        layer.refuse(f"covers {count} axes from axis {axis} of {shown(shape)}", param, "num_axes")
    return axis, shape[axis:] if count == -1 else shape[axis : axis + count]


def scale(layer: Layer, bottoms: list[Shape]) -> Shaped:
    factors, own = _factors(layer, "scale_param", bottoms)
    biased = layer.param("scale_param").get("bias_term")
    return Shaped((bottoms[0],), (factors,) * (int(own) + int(biased)))


def bias(layer: Layer, bottoms: list[Shape]) -> Shaped:
    factors, own = _factors(layer, "bias_param", bottoms)
    return Shaped((bottoms[0],), (factors,) * int(own))


def _factors(layer: Layer, param_name: str, bottoms: list[Shape]) -> tuple[Shape, bool]:
    """The shape of the factors, and whether they are weights."""
    if len(bottoms) == 1:
        return covered(layer, param_name, bottoms[0])[1], True
    shape, factors = bottoms
    axis = axis_of(layer, layer.param(param_name).get("axis"), shape) if factors and shape else 0
    if shape[axis : axis + len(factors)] != factors:
        layer.refuse(f"cannot apply {shown(factors)} to {shown(shape)} from axis {axis} on")
    return factors, False


def inner_product(layer: Layer, bottoms: list[Shape]) -> Shaped:
    param, shape = layer.param("inner_product_param"), bottoms[0]
    outputs, axis = needed(layer, param, "num_output"), axis_of(layer, param.get("axis"), shape)
    inputs = prod(shape[axis:])
    weights = size_of(layer, (inputs, outputs) if param.get("transpose") else (outputs, inputs))
    return Shaped(
        (size_of(layer, (*shape[:axis], outputs)),), (weights, (outputs,)) if param.get("bias_term") else (weights,)
    )


def embed(layer: Layer, bottoms: list[Shape]) -> Shaped:
    param = layer.param("embed_param")
    outputs, words = needed(layer, param, "num_output"), needed(layer, param, "input_dim")
    weights = size_of(layer, (words, outputs))
    return Shaped(
        (size_of(layer, (*bottoms[0], outputs)),), (weights, (outputs,)) if param.get("bias_term") else (weights,)
    )


def eltwise(layer: Layer, bottoms: list[Shape]) -> Shaped:
    param = layer.param("eltwise_param")
    if any(shape != bottoms[0] for shape in bottoms):
        layer.refuse(f"reads blobs of different shapes: {', '.join(shown(shape) for shape in bottoms[:4])}")
    coefficients = param.all("coeff")
    if coefficients and len(coefficients) != len(bottoms):
        layer.refuse(f"has {len(coefficients)} coefficients for {len(bottoms)} bottoms", param, "coeff")
    if coefficients and param.get("operation") == "PROD":
        layer.refuse("has coefficients, which a product does not take", param, "coeff")
    return same(layer, bottoms)


def axpy(layer: Layer, bottoms: list[Shape]) -> Shaped:
    """A factor for each channel, times the second bottom, plus the third."""
    factors, first, second = bottoms
    if first != second or len(first) < 2 or factors[:2] != first[:2] or prod(factors[2:]) != 1:
        layer.refuse(f"cannot scale {shown(first)} by {shown(factors)} and add it to {shown(second)}")
    return Shaped((first,))


def argmax(layer: Layer, bottoms: list[Shape]) -> Shaped:
    param, shape = layer.param("argmax_param"), bottoms[0]
    top_k = needed(layer, param, "top_k")
    axis = axis_of(layer, param.get("axis"), shape) if "axis" in param else None
    choices = prod(shape[1:]) if axis is None else shape[axis]
    if top_k > choices:
        layer.refuse(f"wants the {top_k} largest of {choices}", param, "top_k")
    if axis is not None:
        return Shaped(((*shape[:axis], top_k, *shape[axis + 1 :]),))
    pairs = 2 if param.get("out_max_val") else 1
    return Shaped(((shape[0], pairs, top_k, *(1,) * (len(shape) - 3)),))


def reduction(layer: Layer, bottoms: list[Shape]) -> Shaped:
    axis = axis_of(layer, layer.param("reduction_param").get("axis"), bottoms[0]) if bottoms[0] else 0
    return Shaped((bottoms[0][:axis],))


def _channels(layer: Layer, shape: Shape) -> int:
    if len(shape) < 2:
        layer.refuse(f"needs a blob with channels, not {shown(shape)}")
    return shape[1]
