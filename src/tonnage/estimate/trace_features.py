"""The features of a Trace: what its last complete step computes, moves and launches."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from math import prod

import numpy as np

from tonnage.estimate.cluster_features import COUNTS, FUSED_HIDDEN, MAPPED_FROM_BYTES, Features, kind_of
from tonnage.program.trace import D2H, H2D, Attribute, Category, Event, Operator, Phase, TensorSpec, Trace

_NORMS = ("aten::native_batch_norm", "aten::cudnn_batch_norm", "aten::native_layer_norm", "aten::native_group_norm")
_PRODUCTS = {"aten::mm": "dense", "aten::addmm": "dense", "aten::bmm": "attention", "aten::baddbmm": "attention"}
_LISTS = {"_foreach_lerp": 2, "_foreach_addc": 3, "_fused_adam": 5, "_fused_sgd": 2}
_UNLAUNCHED = ("aten::empty", "aten::empty_like", H2D)  # no kernel, or counted as the copy that goes along
_LOW = ("bfloat16", "float16")


def features_of_trace(trace: Trace) -> Features:
    """The same numbers that describe a sample workload, from the operators of a program."""
    counts = dict.fromkeys(COUNTS, 0.0)
    layers: dict[str, float] = {}
    calls = _calls_of_a_step(trace)
    for operator, phase, times in calls:
        counts["operator_calls"] += times * (operator.name not in _UNLAUNCHED)
        if operator.name == D2H and _touched_bytes(operator) > MAPPED_FROM_BYTES:
            counts["mapped_bytes"] += times * _touched_bytes(operator)
        kind = _kind(operator.name)
        if kind in ("convolution", "dense", "attention", "recurrent"):
            counts[f"{kind}_multiply_adds"] += times * multiply_adds(operator)
        if kind and phase == Phase.FORWARD:
            layers[kind] = layers.get(kind, 0) + times
            counts["layer_bytes"] += times * _layer_bytes(operator)
        if kind == "recurrent":
            counts["recurrent_positions"] += times * _launching_positions(operator) * (phase == Phase.FORWARD)
        if phase == Phase.OPTIMIZER:
            counts["optimizer_bytes"] += times * _touched_bytes(operator)
            counts["optimizer_tensor_calls"] += times * _tensors(operator)
            counts["parameter_tensors"] = max(counts["parameter_tensors"], _tensors(operator))
    counts |= _of_parameters(trace)
    return Features(
        kind=kind_of(layers),
        mode=trace.origin.mode,
        precision=_precision([operator for operator, _, _ in calls]),
        batch=trace.origin.batch or 1,
        counts=counts,
    )


def _calls_of_a_step(trace: Trace) -> list[tuple[Operator, Phase, int]]:
    """Each operator of the last complete step, with its phase and how often it was called."""
    ends = np.flatnonzero(trace.event_kind == Event.STEP)
    last = int(ends[-1]) if len(ends) else len(trace.event_kind)
    first = int(ends[-2]) if len(ends) > 1 else 0
    called = trace.event_subject[first:last][trace.event_kind[first:last] == Event.CALL]
    pairs = np.stack([trace.call_operator[called], trace.call_phase[called]], axis=1)
    different, times = np.unique(pairs, axis=0, return_counts=True)
    return [
        (trace.operators[operator], Phase(phase), int(count))
        for (operator, phase), count in zip(different.tolist(), times.tolist(), strict=True)
    ]


def _kind(name: str) -> str:
    """The kind of layer that an operator is the work of; empty for operators that only go along with layers."""
    if name in _PRODUCTS:
        return _PRODUCTS[name]
    if name in _NORMS:
        return "norm"
    for part, kind in (("convolution", "convolution"), ("scaled_dot_product", "attention"), ("cudnn_rnn", "recurrent")):
        if part in name and "flatten" not in name:
            return kind
    return "embedding" if name == "aten::embedding" else ""


def multiply_adds(operator: Operator) -> float:
    """Multiplications with addition of one call of a convolution, product, attention or recurrent network."""
    inputs = [spec for spec in operator.inputs if spec is not None]
    rules: Mapping[str, Callable[[Operator, list[TensorSpec]], float]] = {
        "aten::convolution": partial(_convolution, passes=1),
        "aten::convolution_backward": _convolution_backward,
        "aten::_cudnn_rnn": _recurrent,
        "aten::_cudnn_rnn_backward": _recurrent,
    }
    if operator.name in _PRODUCTS:
        left = inputs[-2]
        return float(prod(left.shape[:-1]) * prod(inputs[-1].shape[-2:]))
    if operator.name in rules:
        return rules[operator.name](operator, inputs)
    return _attention(operator, inputs)


def _convolution(operator: Operator, inputs: list[TensorSpec], passes: int, backward: bool = False) -> float:
    image, weight = (inputs[1], inputs[2]) if backward else (inputs[0], inputs[1])
    result = inputs[0] if backward else operator.outputs[0]
    positions = image.numel if operator.attributes.get("transposed") else result.numel
    return float(passes * positions * prod(weight.shape[1:]))


def _convolution_backward(operator: Operator, inputs: list[TensorSpec]) -> float:
    mask = operator.attributes.get("output_mask")
    passes = sum(map(bool, mask[:2])) if isinstance(mask, tuple | list) else 2
    return _convolution(operator, inputs, passes, backward=True)


def _recurrent(operator: Operator, inputs: list[TensorSpec]) -> float:
    """Every weight meets every position once; backward, torch calls once for the data and once for the weights."""
    matrices = {spec: inputs.count(spec) for spec in inputs[1:] if len(spec.shape) == 2}
    # Gradients and states have three dims, weights two.
    weights = sum(spec.numel * times for spec, times in matrices.items())
    return float(prod(inputs[0].shape[:-1]) * weights) if operator.outputs else 0.0


def _attention(operator: Operator, inputs: list[TensorSpec]) -> float:
    backward = "backward" in operator.name
    query, key = (inputs[1], inputs[2]) if backward else (inputs[0], inputs[1])
    forward = 2 * query.numel * key.shape[-2]
    return float(2 * forward if backward else forward)


def _layer_bytes(operator: Operator) -> int:
    if "cudnn_rnn" in operator.name:
        return _number(operator.attributes, "num_layers") * operator.outputs[0].nbytes
    return operator.outputs[0].nbytes if operator.outputs else 0


def _launching_positions(operator: Operator) -> int:
    if _number(operator.attributes, "hidden_size") <= FUSED_HIDDEN:
        return 0
    sequence = next(spec for spec in operator.inputs if spec is not None)
    length = sequence.shape[1 if operator.attributes.get("batch_first") else 0]
    return length * _number(operator.attributes, "num_layers")


def _number(attributes: Mapping[str, Attribute], name: str) -> int:
    value = attributes.get(name)
    return value if isinstance(value, int) else 0


def _specs(operator: Operator) -> Iterator[TensorSpec]:
    yield from (spec for spec in operator.inputs if spec is not None)
    yield from operator.outputs


def _touched_bytes(operator: Operator) -> int:
    """Read and written; an operator whose name ends in `_` writes its first list of tensors again."""
    touched = sum(spec.nbytes for spec in _specs(operator))
    return touched + touched // _lists(operator) if operator.name.endswith("_") else touched


def _lists(operator: Operator) -> int:
    """How many lists of tensors an operator of an optimizer takes, each with one for every parameter."""
    if operator.name == "aten::_foreach_add_" and "scalar" not in operator.attributes:
        return 2
    return next((lists for part, lists in _LISTS.items() if part in operator.name), 1)


def _tensors(operator: Operator) -> int:
    return max(len(operator.inputs) // _lists(operator), 1)


def _of_parameters(trace: Trace) -> dict[str, float]:
    state = trace.block_bytes[trace.block_category == Category.OPTIMIZER_STATE].sum()
    return {
        "parameters": float(trace.origin.parameter_count),
        "state_bytes": float(state),
        "h2d_bytes": float(trace.bytes_per_step(H2D)),
        "d2h_bytes": float(trace.bytes_per_step(D2H)),
    }


def _precision(operators: list[Operator]) -> str:
    """That of the layers which multiply most; with autocast, weights of recurrent layers may still be float32."""
    work = dict.fromkeys(("float32", *_LOW), 0.0)
    for operator in operators:
        if _kind(operator.name) in ("convolution", "dense", "attention", "recurrent"):
            dtypes = {spec.dtype for spec in _specs(operator)}
            work[next((dtype for dtype in _LOW if dtype in dtypes), "float32")] += multiply_adds(operator)
    return max(work, key=lambda dtype: work[dtype])
