"""Operators that were measured with these very shapes: what they took is known, not computed."""

from __future__ import annotations

import hashlib
import json

from tonnage.estimate.kernels.work import Rules
from tonnage.program.trace import Attribute, Operator, TensorSpec

# torch runs one operator under another name on the virtual GPU.
_SAME = {
    "aten::cudnn_batch_norm": "aten::native_batch_norm",
    "aten::cudnn_batch_norm_backward": "aten::native_batch_norm_backward",
}
_TELLING_FLOATS = {"p", "dropout_p"}
_DIGITS = 12
# Operators of which a Trace has the parts, or whose time depends on the values that they meet.
_LEFT_OUT = ("aten::convolution_backward", "aten::_cudnn_rnn_backward", "tonnage::", "aten::index_put", "aten::sort")


def digest(operator: Operator, rules: Rules) -> str | None:
    """Equal for calls that take equal time on one GPU; None for those that cannot be compared."""
    if operator.name.startswith(_LEFT_OUT):
        return None
    inputs = [None if spec is None else _spec(spec) for spec in operator.inputs]
    attributes = {k: _plain(v) for k, v in sorted(operator.attributes.items()) if _tells(k, v)}
    tf32 = rules.matmul_tf32 if "mm" in operator.name else None
    text = json.dumps([_SAME.get(operator.name, operator.name), inputs, attributes, tf32], separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:_DIGITS]


def _spec(spec: TensorSpec) -> list[object]:
    return [list(spec.shape), spec.dtype, spec.layout, list(spec.strides)]


def _plain(value: Attribute) -> object:
    return list(value) if isinstance(value, tuple) else value


def _tells(name: str, value: Attribute) -> bool:
    """Other floating-point arguments change from step to step and cost nothing; names of devices say nothing."""
    if name in ("device", "layout", "pin_memory", "non_blocking", "generator"):
        return False
    values = value if isinstance(value, tuple | list) else (value,)
    return name in _TELLING_FLOATS or not any(isinstance(v, float) for v in values)
