"""Convolutions as the products that they are: forward, gradient of the data, gradient of the weights."""

from __future__ import annotations

from math import prod

from tonnage.estimate.kernels.work import Rules, Work, arithmetic, counts, flag, itemsize, number, numbers
from tonnage.program.trace import Operator, TensorSpec


@counts("convolution", "cudnn_convolution", "_convolution", "cudnn_convolution_transpose")
def _forward(operator: Operator, rules: Rules) -> tuple[Work, ...]:
    data, weight = _required(operator, 0), _required(operator, 1)
    works = [_work("convolution", operator, data, weight, operator.outputs[0], rules)]
    if len(operator.inputs) > 2 and operator.inputs[2] is not None:
        works.append(_bias(operator.outputs[0]))
    return tuple(works)


@counts("convolution_backward")
def _backward(operator: Operator, rules: Rules) -> tuple[Work, ...]:
    result, data, weight = (_required(operator, position) for position in range(3))
    wanted = operator.attributes.get("output_mask")
    of_data, of_weight, of_bias = wanted if isinstance(wanted, tuple | list) else (True, True, False)
    works = []
    if of_data:
        works.append(_work("convolution_data", operator, data, weight, result, rules))
    if of_weight:
        works.append(_work("convolution_weight", operator, data, weight, result, rules))
    if of_bias:
        works.append(_bias_gradient(result))
    return tuple(works)


def _required(operator: Operator, position: int) -> TensorSpec:
    spec = operator.inputs[position]
    if spec is None:
        raise ValueError(f"{operator.name} has no tensor in position {position}")
    return spec


def _work(
    kind: str, operator: Operator, data: TensorSpec, weight: TensorSpec, result: TensorSpec, rules: Rules
) -> Work:
    """As a product. A transposed convolution is the gradient of a plain one, so its parts change places."""
    groups = max(number(operator.attributes, "groups", 1), 1)
    window = prod(weight.shape[2:])
    transposed = flag(operator.attributes, "transposed")
    image, other = (result, data) if transposed else (data, result)
    pixels = other.shape[0] * prod(other.shape[2:])  # where the window is applied
    channels, filters = image.shape[1] // groups, other.shape[1] // groups
    image_pixels = image.shape[0] * prod(image.shape[2:])
    role = _ROLES[kind, transposed]
    rows, columns, depth = {
        "convolution": (pixels, filters, channels * window),
        "convolution_data": (image_pixels, channels, filters * window),
        "convolution_weight": (filters, channels * window, pixels),
    }[role]
    size = itemsize(data)
    image_bytes, other_bytes, weight_bytes = image.nbytes, other.nbytes, weight.nbytes
    read, written = {
        "convolution": (image_bytes + weight_bytes, other_bytes),
        "convolution_data": (other_bytes + weight_bytes, image_bytes),
        "convolution_weight": (other_bytes + image_bytes, weight_bytes),
    }[role]
    return Work(
        kind=role, name=operator.name, operations=2.0 * pixels * filters * channels * window * groups,
        fresh_bytes=float(data.nbytes if kind == "convolution" else result.nbytes),
        read_bytes=float(read), written_bytes=float(written), arithmetic=arithmetic(data, rules.cudnn_tf32), itemsize=size,
        rows=rows, columns=columns, depth=depth, batch=groups, window=window, groups=groups,
        stride=max(numbers(operator.attributes.get("stride"), 1)),
        channels_last=data.layout == "channels_last" or weight.layout == "channels_last",
        strided=max(numbers(operator.attributes.get("dilation"), 1)) > 1,
        first_transposed=len(data.shape) != 4, images=other.shape[0],
        side=_side(image if role == "convolution_data" else other),
    )  # fmt: skip


def _side(spec: TensorSpec) -> float:
    """Of a square image with as many pixels; 0 where it is no image."""
    return float(prod(spec.shape[2:])) ** 0.5 if len(spec.shape) == 4 else 0.0


_ROLES = {
    ("convolution", False): "convolution",
    ("convolution_data", False): "convolution_data",
    ("convolution_weight", False): "convolution_weight",
    ("convolution", True): "convolution_data",
    ("convolution_data", True): "convolution",
    ("convolution_weight", True): "convolution_weight",
}


def _bias(result: TensorSpec) -> Work:
    return Work(
        kind="pointwise", name="aten::add_", fresh_bytes=float(result.nbytes), read_bytes=float(result.nbytes),
        written_bytes=float(result.nbytes),
        itemsize=itemsize(result), rows=result.numel,
    )  # fmt: skip


def _bias_gradient(result: TensorSpec) -> Work:
    channels = result.shape[1]
    return Work(
        kind="reduction", name="aten::sum", fresh_bytes=float(result.nbytes), read_bytes=float(result.nbytes),
        written_bytes=float(channels * itemsize(result)), itemsize=itemsize(result), rows=channels,
        depth=max(result.numel // max(channels, 1), 1), strided=True,
    )  # fmt: skip
