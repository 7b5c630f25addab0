"""The features of a sample workload, from the formulas of its layers: no torch, no trace."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from math import prod

from tonnage.benchmark.workloads.layer import Layer
from tonnage.benchmark.workloads.point import Point
from tonnage.benchmark.workloads.registry import find_family
from tonnage.estimate.cluster_features import FUSED_HIDDEN, MAPPED_FROM_BYTES, Features, kind_of

# Operators that a layer launches together with what stands beside it (activation, pooling, residual sum), forward and
# backward; then the casts of autocast, forward and backward. Least squares over the operators seen in the measured
# points of the default campaign, where they agree within 3 % (median).
_CALLS = {
    "convolution": (2.2, 2.2, 2, 2),
    "dense": (1.9, 3.8, 2, 1.8),
    "norm": (1.2, 1.1, 0.9, 0.8),
    "attention": (0.5, 3.5, 0, 3),
    "embedding": (1, 1, 0, 0),
    "recurrent": (1, 0.6, 14, 4.4),
}
# Attention whose heads do not fill 16 bytes is padded in low precision, and done operator by operator in float32.
_UNALIGNED_CALLS = {"float32": (18, 8), "bfloat16": (5, 4), "float16": (5, 4)}
_LOSS_CALLS = (3, 2)  # forward and backward
_COPY_CALLS = 3
_TENSORS = {"convolution": 2, "dense": 2, "norm": 2, "embedding": 1, "recurrent": 4, "attention": 0}
# Of each optimizer: foreach calls in a step, tensors read or written for each parameter, tensors of state.
_OPTIMIZERS = {"sgd": (1, 3, 0), "momentum": (3, 8, 1), "adam": (7, 20, 2), "adamw": (8, 22, 2), "": (0, 0, 0)}


def features_of_point(point: Point) -> Features:
    """What one step of the point asks for."""
    family = find_family(point.family)
    layers = family.layers(point.structure)
    parameters = sum(layer.parameters for layer in layers)
    tensors = sum(_TENSORS[layer.kind] for layer in layers)
    calls, touched, states = _OPTIMIZERS[point.optimizer]
    work = {
        f"{kind}_multiply_adds": float(point.batch * _multiply_adds(layers, kind, point.mode == "training"))
        for kind in ("convolution", "dense", "attention", "recurrent")
    }
    counts = work | {
        "layer_bytes": float(point.batch * _element_bytes(point) * sum(layer.output_elements for layer in layers)),
        "parameters": float(parameters),
        "parameter_tensors": float(tensors if point.mode == "training" else 0),
        "state_bytes": 4.0 * states * parameters,
        "optimizer_bytes": 4.0 * touched * parameters,
        "optimizer_tensor_calls": float(calls * tensors),
        "operator_calls": _operator_calls(layers, point) + calls,
        "recurrent_positions": float(_launching_positions(layers, point)),
        **_copies(layers, point),
    }
    return Features(
        kind=kind_of(Counter(layer.kind for layer in layers)),
        mode=point.mode,
        precision=point.precision,
        batch=point.batch,
        counts=counts,
    )


def _element_bytes(point: Point) -> int:
    return 4 if point.precision == "float32" else 2


def _multiply_adds(layers: Sequence[Layer], kind: str, is_training: bool) -> int:
    """Of one sample. Training computes gradients for weights and for inputs, but not for those of the first layer."""
    forward = sum(layer.multiply_adds for layer in layers if layer.kind == kind)
    if not is_training:
        return forward
    first = layers[0]
    is_first = first.kind == kind and kind in ("convolution", "dense")
    return 3 * forward - (first.multiply_adds if is_first else 0)


def _operator_calls(layers: Sequence[Layer], point: Point) -> float:
    training, low = point.mode == "training", point.precision != "float32"
    total = float(_COPY_CALLS + (sum(_LOSS_CALLS) if training else 0))
    for layer in layers:
        forward, backward, cast_forward, cast_backward = _CALLS[layer.kind]
        total += forward + low * cast_forward + training * (backward + low * cast_backward)
        if layer.kind == "attention" and not _is_aligned(layer, point):
            forward, backward = _UNALIGNED_CALLS[point.precision]
            total += forward + training * backward
    return total


def _is_aligned(layer: Layer, point: Point) -> bool:
    heads = point.structure.get("heads", 1)
    return not isinstance(heads, int) or layer.outputs // heads * _element_bytes(point) % 16 == 0


def _launching_positions(layers: Sequence[Layer], point: Point) -> int:
    sequence = point.structure.get("sequence", 0)
    wide = sum(layer.kind == "recurrent" and layer.outputs > FUSED_HIDDEN for layer in layers)
    return wide * sequence if isinstance(sequence, int) else 0


def _copies(layers: Sequence[Layer], point: Point) -> dict[str, float]:
    """Inputs and targets to the GPU; outputs of inference, or the loss, to the host. Tokens and classes are int64."""
    family = find_family(point.family)
    shape = family.input_shape(point.structure)
    if point.family == "transformer":
        sample = 2 * 8 * prod(shape)
    else:
        sample = 4 * prod(shape) + 8 * (prod(shape[1:]) if point.family == "unet" else 1)
    outputs = point.batch * _element_bytes(point) * layers[-1].output_elements if point.mode == "inference" else 4
    return {
        "h2d_bytes": float(point.batch * sample),
        "d2h_bytes": float(outputs),
        "mapped_bytes": float(outputs if outputs > MAPPED_FROM_BYTES else 0),
    }
