"""Matrix products, attention and recurrent layers: where the arithmetic is."""

from __future__ import annotations

from collections.abc import Mapping

from tonnage.estimate.kernels.work import (
    Rules,
    Work,
    arithmetic,
    counts,
    flag,
    is_transposed,
    itemsize,
    number,
    stored_bytes,
    tensors,
)
from tonnage.program.trace import Attribute, Operator, TensorSpec


def product(
    name: str,
    rows: int,
    columns: int,
    depth: int,
    *,
    like: TensorSpec,
    tf32: bool,
    batch: int = 1,
    repeated: float = 1.0,
) -> Work:
    """A plain product of contiguous matrices, `repeated` times one after the other."""
    size = itemsize(like)
    return Work(
        kind="product", name=name, operations=2.0 * rows * columns * depth * batch * repeated,
        fresh_bytes=float(size * batch * depth * rows) * repeated,
        read_bytes=float(size * batch * depth * (rows + columns)) * repeated,
        written_bytes=float(size * batch * rows * columns) * repeated, arithmetic=arithmetic(like, tf32), itemsize=size,
        rows=rows, columns=columns, depth=depth, batch=batch, launches=repeated,
    )  # fmt: skip


@counts("mm", "addmm", "bmm", "baddbmm", "addmm_", "baddbmm_", "_addmm_activation", "addbmm", "_scaled_mm")
def _products(operator: Operator, rules: Rules) -> tuple[Work, ...]:
    specs = tensors(operator)
    left, right = specs[-2:] if operator.name != "aten::_scaled_mm" else specs[:2]
    batch = left.shape[0] if len(left.shape) == 3 else 1
    added = specs[0] if len(specs) == 3 and "addmm" not in operator.name else None
    return (
        Work(
            kind="product", name=operator.name,
            operations=2.0 * batch * left.shape[-2] * left.shape[-1] * right.shape[-1],
            fresh_bytes=float(stored_bytes(left)),
            read_bytes=float(stored_bytes(left) + stored_bytes(right) + (stored_bytes(added) if added else 0)),
            written_bytes=float(sum(spec.nbytes for spec in operator.outputs)),
            arithmetic=arithmetic(left, rules.matmul_tf32), itemsize=itemsize(left),
            rows=left.shape[-2], columns=right.shape[-1], depth=left.shape[-1], batch=batch,
            first_transposed=is_transposed(left), second_transposed=is_transposed(right),
        ),
    )  # fmt: skip


@counts("mv", "addmv", "dot", "vdot")
def _vector_products(operator: Operator, rules: Rules) -> tuple[Work, ...]:
    left, right = tensors(operator)[-2:]
    rows = left.shape[0] if len(left.shape) == 2 else 1
    return (product(operator.name, rows, 1, right.shape[-1], like=left, tf32=rules.matmul_tf32),)


# -- attention ------------------------------------------------------------------------------------------------------------

_ATTENTION = tuple(f"_scaled_dot_product_{backend}_attention" for backend in ("flash", "efficient", "cudnn"))


@counts(*_ATTENTION, "_flash_attention_forward", "_efficient_attention_forward")
def _attention(operator: Operator, rules: Rules) -> tuple[Work, ...]:  # noqa: ARG001
    query, key, value = tensors(operator)[:3]
    return (_attend(operator, query, key, value, backward=False),)


@counts(*(f"{name}_backward" for name in _ATTENTION), "_flash_attention_backward", "_efficient_attention_backward")
def _attention_backward(operator: Operator, rules: Rules) -> tuple[Work, ...]:  # noqa: ARG001
    query, key, value = tensors(operator)[1:4]
    return (_attend(operator, query, key, value, backward=True),)


def _attend(operator: Operator, query: TensorSpec, key: TensorSpec, value: TensorSpec, *, backward: bool) -> Work:
    batch, heads, rows, width = query.shape
    columns = key.shape[2]
    if "attention_forward" in operator.name or operator.name in ("aten::_flash_attention_backward",):
        heads, rows, columns = rows, heads, key.shape[1]  # these take heads after tokens
    share = 0.5 if flag(operator.attributes, "is_causal") else 1.0
    products = 5 if backward else 2  # two products forward; backward makes the scores again and four gradients
    passes = 2 if backward else 1
    size = itemsize(query)
    tokens = batch * heads * (rows * width + columns * (width + value.shape[-1]))
    return Work(
        kind="attention_backward" if backward else "attention", name=operator.name,
        operations=2.0 * products * share * batch * heads * rows * columns * (width + value.shape[-1]) / 2,
        fresh_bytes=float(size * tokens), read_bytes=float(size * tokens * passes),
        written_bytes=float(size * tokens if backward else query.nbytes),
        arithmetic=arithmetic(query, tf32=True), itemsize=size, rows=rows, columns=columns, depth=width,
        batch=batch * heads, launches=4.0 if backward else 1.0,
        strided=share == 0.5,
    )  # fmt: skip


# -- recurrence -----------------------------------------------------------------------------------------------------------

_GATES = {0: 1, 1: 1, 2: 4, 3: 3}  # cuDNN's numbers: RNN with ReLU, RNN with tanh, LSTM, GRU


@counts("_cudnn_rnn", "_cudnn_rnn_backward", "_thnn_fused_lstm_cell", "_thnn_fused_gru_cell")
def _recurrent(operator: Operator, rules: Rules) -> tuple[Work, ...]:
    """Each layer: one product for the input of all steps, and a small one for each step that waits for the last."""
    attributes, inputs = operator.attributes, tensors(operator)[0]
    hidden, layers = number(attributes, "hidden_size", 1), number(attributes, "num_layers", 1)
    gates = _GATES.get(number(attributes, "mode", 2), 4)
    directions = 2 if flag(attributes, "bidirectional") else 1
    steps, batch = _steps_and_batch(inputs, attributes)
    backward = operator.name.endswith("backward")
    kind = "recurrent_backward" if backward else "recurrent"
    passes = 2.0 if backward else 1.0  # the gradient of the input and of the weights
    operations = 0.0
    width = inputs.shape[-1]
    for _ in range(layers):
        operations += 2.0 * passes * directions * steps * batch * gates * hidden * (width + hidden)
        width = hidden * directions
    weights = itemsize(inputs) * gates * hidden * (hidden + width) * layers * directions
    return (
        Work(
            kind=kind, name=operator.name, operations=operations,
            fresh_bytes=float(inputs.nbytes), read_bytes=float(inputs.nbytes * passes + weights),
            written_bytes=float(sum(spec.nbytes for spec in operator.outputs)),
            arithmetic=arithmetic(inputs, rules.cudnn_tf32), itemsize=itemsize(inputs),
            rows=batch, columns=gates * hidden, depth=hidden, batch=directions,
            launches=_recurrent_launches(inputs, attributes, layers * directions, steps), window=steps,
            groups=layers,
        ),
    )  # fmt: skip


# cuDNN 9 keeps the weights of small layers on the chip and runs all steps in one kernel, but not in bfloat16. Seen on an
# H200 up to these numbers of hidden units (benchmarks/kernels/results).
_PERSISTENT_HIDDEN = {0: 384, 1: 384, 2: 192, 3: 192}


def _recurrent_launches(inputs: TensorSpec, attributes: Mapping[str, Attribute], layers: int, steps: int) -> float:
    """A few kernels for each layer, or two for each step of each layer."""
    most = _PERSISTENT_HIDDEN.get(number(attributes, "mode", 2), 192)
    if inputs.dtype != "bfloat16" and number(attributes, "hidden_size", 1) <= most:
        return 2.0 * layers + 1.0
    return 2.0 * layers * steps + 3.0


def _steps_and_batch(inputs: TensorSpec, attributes: Mapping[str, Attribute]) -> tuple[int, int]:
    if len(inputs.shape) == 3:
        first = flag(attributes, "batch_first")
        return (inputs.shape[1], inputs.shape[0]) if first else (inputs.shape[0], inputs.shape[1])
    sizes = attributes.get("batch_sizes")
    if isinstance(sizes, tuple | list) and sizes:  # packed: the tokens of all sequences, step by step
        return len(sizes), max(inputs.shape[0] // len(sizes), 1)
    return inputs.shape[0], 1
