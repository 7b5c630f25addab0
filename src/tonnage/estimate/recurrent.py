"""Temporary memory inside cuDNN's recurrent networks.

The structure was read off benchmarks/workspace (H200, cuDNN 9.19): 8 MiB for each layer and direction, a copy of the
weight matrices, and some multiples of the sequence. In training one workspace must serve forward and backward, so it is
the larger of the two. torch asks cuDNN for persistent kernels where the hidden size is small
(`use_rnn_persist_small_h` in aten/src/ATen/native/cudnn/RNN.cpp); they need several times as much.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from tonnage.hardware import Gpu
from tonnage.program.trace import DTYPE_BYTES, Operator, TensorSpec
from tonnage.units import MIB

LSTM, GRU = 2, 3  # numbers of cudnnRNNMode_t; 0 and 1 are plain networks
_GATES = {0: 1, 1: 1, LSTM: 4, GRU: 3}
# The largest hidden size for persistent kernels: forward and backward, of gated and of plain networks.
_SMALL_HIDDEN = {(True, True): 192, (True, False): 384, (False, True): 128, (False, False): 256}


@dataclass(frozen=True, slots=True)
class _Network:
    """What the size of the workspace depends on."""

    mode: int
    itemsize: int
    inputs: int
    hidden: int
    output: int
    layers: int
    directions: int
    rows: int
    batch: int
    drops: bool
    is_small: bool
    is_packed: bool

    @property
    def gates(self) -> int:
        return _GATES[self.mode]


def recurrent_workspace(operator: Operator, gpu: Gpu) -> tuple[int, ...]:  # noqa: ARG001  (the same on all measured GPUs)
    """Sizes of the blocks that `_cudnn_rnn` or `_cudnn_rnn_backward` takes beside what it returns."""
    workspace = _workspace_bytes(_network(operator), training=operator.attributes.get("train") is True)
    blocks = [_copied_bytes(operator, _spec(operator, 0)), workspace]
    if operator.name == "aten::_cudnn_rnn_backward":
        blocks = [*_backward_blocks(operator), *blocks]
    return tuple(blocks)


def _network(operator: Operator) -> _Network:
    attributes, tensor = operator.attributes, _spec(operator, 0)
    batch = tensor.shape[0 if _is_batch_first(operator) else 1]
    match attributes.get("batch_sizes"):
        case (int(first), *_):  # of packed sequences; the first step has them all
            is_packed, batch = True, first
        case _:
            is_packed = False
    hidden, projection = _integer(operator, "hidden_size"), _integer(operator, "proj_size")
    mode = _integer(operator, "mode")
    is_forward = operator.name == "aten::_cudnn_rnn"
    has_persistent = tensor.dtype in ("float16", "float32") and not projection and not is_packed
    return _Network(
        mode=mode,
        itemsize=DTYPE_BYTES[tensor.dtype],
        inputs=tensor.shape[-1],
        hidden=hidden,
        output=projection or hidden,
        layers=_integer(operator, "num_layers"),
        directions=2 if attributes.get("bidirectional") is True else 1,
        rows=prod(tensor.shape[:-1]),
        batch=batch,
        drops=attributes.get("train") is True and bool(attributes.get("dropout")),
        is_small=has_persistent and hidden <= _SMALL_HIDDEN[is_forward, mode in (LSTM, GRU)],
        is_packed=is_packed,
    )


def _is_batch_first(operator: Operator) -> bool:
    return operator.attributes.get("batch_first") is True and not operator.attributes.get("batch_sizes")


def _integer(operator: Operator, name: str) -> int:
    value = operator.attributes[name]
    if not isinstance(value, int):
        raise TypeError(f"{operator.name}: {name} is {value!r}, not an integer")
    return value


def _spec(operator: Operator, position: int) -> TensorSpec:
    spec = operator.inputs[position]
    if spec is None:
        raise ValueError(f"{operator.name} has no tensor in position {position}")
    return spec


# -- the workspace -----------------------------------------------------------------------------------------------------


def _workspace_bytes(network: _Network, *, training: bool) -> int:
    forward, backward = (
        (_packed_forward_elements, _packed_backward_elements)
        if network.is_packed
        else (_forward_elements, _backward_elements)
    )
    elements = forward(network)
    if training:
        elements = max(elements, backward(network))
    branches = network.layers * network.directions
    return branches * 8 * MIB + network.itemsize * (_matrix_elements(network) + elements) + 768


def _matrix_elements(network: _Network) -> int:
    """All weights without the biases."""
    first = network.inputs + network.output
    later = (network.layers - 1) * (network.output * network.directions + network.output)
    return network.directions * network.gates * network.hidden * (first + later)


def _forward_elements(network: _Network) -> int:
    per_row = _forward_values(network) * network.hidden
    if network.is_small:
        per_row += 4 * network.gates * network.hidden
    if network.drops and network.layers > 1 and network.directions == 1:
        per_row += network.hidden
    per_batch = _FORWARD_STATES[network.is_small, network.mode, network.directions]
    return network.rows * (per_row + network.inputs) + network.batch * network.hidden * network.layers * per_batch


def _forward_values(network: _Network) -> int:
    return network.gates + 1 if network.directions == 1 else 2 * network.gates + 6


def _backward_elements(network: _Network) -> int:
    wider = max(network.inputs - network.hidden, 0)
    is_deep = network.layers > 1
    if network.is_small:
        per_row = _GATE_GRADIENTS[network.mode] * network.hidden
        if network.directions == 1:
            per_row += (13 if is_deep else 12) * network.hidden + wider
        else:
            per_row += (20 if is_deep else 18) * network.hidden + 4 * wider
        elements = network.rows * per_row
    elif network.directions == 2:
        elements = network.rows * ((12 if is_deep else 10) * network.hidden + 4 * wider)
    else:
        chunk = _chunk_rows(network) if is_deep else network.rows
        elements = (3 * network.rows + chunk) * network.hidden + network.rows * wider
    per_batch = _BACKWARD_STATES[network.is_small, network.mode == LSTM, network.directions]
    return elements + 2 * network.rows * network.inputs + network.batch * network.hidden * network.layers * per_batch


def _packed_forward_elements(network: _Network) -> int:
    """Packed sequences need no copy of the input and one state less in each direction.

    One direction was measured by itself, two only within packed-gru-b64 and packed-lstm-b256 of benchmarks/accuracy.
    """
    states = 6 if network.mode == LSTM else 3
    per_row = _forward_values(network) - network.directions
    return network.hidden * (network.rows * per_row + network.directions * states * network.batch * network.layers)


def _packed_backward_elements(network: _Network) -> int:
    states = 11 if network.mode == LSTM else 9
    wide = max(network.inputs, network.directions * network.output if network.layers > 1 else 0)
    return network.rows * wide + network.directions * network.hidden * states * network.batch * network.layers


def _chunk_rows(network: _Network) -> int:
    """Deep networks go through the sequence in pieces; two batch sizes were measured, 8 and 64."""
    steps = 4 * (network.layers + 2) if network.batch > 22 else 16 * (network.layers + 1)
    return min(network.rows, steps * network.batch)


_GATE_GRADIENTS = {0: 1, 1: 1, LSTM: 4, GRU: 6}
# Multiples of batch x hidden x layers, by (small, mode, directions).
_FORWARD_STATES = {
    (True, 0, 1): 4, (True, 1, 1): 4, (True, LSTM, 1): 8, (True, GRU, 1): 4,
    (True, 0, 2): 10, (True, 1, 2): 10, (True, LSTM, 2): 18, (True, GRU, 2): 10,
    (False, 0, 1): 3, (False, 1, 1): 3, (False, LSTM, 1): 10, (False, GRU, 1): 5,
    (False, 0, 2): 10, (False, 1, 2): 10, (False, LSTM, 2): 24, (False, GRU, 2): 14,
}  # fmt: skip
# The same by (small, is an LSTM, directions).
_BACKWARD_STATES = {
    (True, False, 1): 6, (True, True, 1): 12, (True, False, 2): 14, (True, True, 2): 26,
    (False, False, 1): 5, (False, True, 1): 10, (False, False, 2): 14, (False, True, 2): 24,
}  # fmt: skip


# -- beside the workspace ----------------------------------------------------------------------------------------------


def _backward_blocks(operator: Operator) -> tuple[int, ...]:
    """Zeros for missing gradients; then, for input and states, a contiguous gradient of the output; or, for weights
    without biases, the buffer that they are copied from."""
    branches = _integer(operator, "num_layers") * (2 if operator.attributes.get("bidirectional") is True else 1)
    per_branch = _integer(operator, "weight_stride0")
    buffer, hx, cx, output, *gradients = operator.inputs[1 + per_branch * branches :][:7]
    states = zip((output, hx, cx), gradients, strict=True)
    zeros = tuple(state.nbytes for state, gradient in states if state is not None and gradient is None)
    mask = operator.attributes.get("output_mask")
    if not isinstance(mask, tuple) or not mask[3]:
        return (*zeros, _copied_bytes(operator, gradients[0]))
    return (*zeros, buffer.nbytes if buffer is not None and per_branch in (2, 3) else 0)


def _copied_bytes(operator: Operator, spec: TensorSpec | None) -> int:
    """cuDNN wants contiguous tensors with time first."""
    if spec is None:
        return 0
    is_turned = _is_batch_first(operator) and min(spec.shape[:2]) > 1
    return spec.nbytes if is_turned or spec.layout != "contiguous" else 0
