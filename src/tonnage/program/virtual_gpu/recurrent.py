"""Recurrent networks as cuDNN runs them: one operator per `nn.LSTM`, `nn.GRU` or `nn.RNN`, weights in one buffer.

torch's own decomposition for other devices makes thousands of small operators out of a sequence, and keeps other things
for backward than cuDNN does. The overrides follow what torch does on CUDA (aten/src/ATen/native/cudnn/RNN.cpp).
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from math import prod
from typing import Any

import torch

from tonnage.program.virtual_gpu.composites import override
from tonnage.program.virtual_gpu.rules import aten, rule

RELU, TANH, LSTM, GRU = range(4)  # the numbers of cudnnRNNMode_t
_MODES = {"RNN_RELU": RELU, "RNN_TANH": TANH, "LSTM": LSTM, "GRU": GRU}
_GATES = {RELU: 1, TANH: 1, LSTM: 4, GRU: 3}
# Values of the hidden size that cuDNN keeps per time step for backward (benchmarks/workspace, cuDNN 9.19).
_KEPT = {RELU: 1, TANH: 1, LSTM: 5, GRU: 6}
_CUDNN_DTYPES = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
# State of cuDNN's random numbers, one per process: on an H200 24 bytes for each of 2048 threads on 132 multiprocessors.
# Fitted to the peaks of lstm-b20 and lstm-b128-tied in benchmarks/accuracy; GPUs with fewer multiprocessors need less.
_DROPOUT_STATE_BYTES = 132 * 2048 * 24
_dropout_state: list[torch.Tensor] = []


def recurrent_reserve_bytes(
    *,
    mode: int,
    itemsize: int,
    rows: int,
    hidden: int,
    layers: int,
    directions: int,
    dropout: float = 0.0,
    projection: int = 0,
) -> int:
    """What cuDNN keeps between forward and backward. `rows` is sequence length times batch."""
    output = projection or hidden
    values = _KEPT[mode] * layers * hidden + (layers - 1) * output
    if projection:
        values += layers * output
    mask = 0
    if dropout > 0:
        # One bit for each value that goes from one layer into a direction of the next, in pieces of 32 bytes.
        mask = (layers - 1) * _round_up(directions * directions * rows * output, 256) // 8
    return itemsize * rows * directions * values + mask + 256


def _round_up(value: int, multiple: int) -> int:
    return -(-value // multiple) * multiple


def install() -> None:
    """Let `nn.RNNBase.flatten_parameters` find the cuDNN that a CUDA build would have."""
    torch._use_cudnn_rnn_flatten_weight = lambda: True
    module: Any = importlib.import_module("torch.backends.cudnn.rnn")
    module.m.get_cudnn_mode = _MODES.__getitem__
    module.get_cudnn_mode = _MODES.__getitem__


# -- the networks ------------------------------------------------------------------------------------------------------


@override("lstm.input")
def _lstm(
    tensor: torch.Tensor,
    hx: Sequence[torch.Tensor],
    params: Sequence[torch.Tensor],
    has_biases: bool,
    layers: int,
    dropout: float,
    train: bool,
    bidirectional: bool,
    batch_first: bool,
) -> Any:
    settings = (has_biases, layers, dropout, train, bidirectional)
    if not _uses_cudnn(tensor):
        return aten.lstm.input.decompose(tensor, hx, params, *settings, batch_first)
    return _cudnn(LSTM, tensor, [], hx[0], hx[1], params, *settings, batch_first)


@override("lstm.data")
def _packed_lstm(
    data: torch.Tensor,
    batch_sizes: torch.Tensor,
    hx: Sequence[torch.Tensor],
    params: Sequence[torch.Tensor],
    has_biases: bool,
    layers: int,
    dropout: float,
    train: bool,
    bidirectional: bool,
) -> Any:
    settings = (has_biases, layers, dropout, train, bidirectional)
    if not _uses_cudnn(data):
        return aten.lstm.data.decompose(data, batch_sizes, hx, params, *settings)
    return _cudnn(LSTM, data, batch_sizes.tolist(), hx[0], hx[1], params, *settings, False)


def _register_with_one_state(name: str, mode: int) -> None:
    """`gru`, `rnn_tanh` and `rnn_relu` differ in nothing but their mode."""
    packet = getattr(aten, name)

    @override(f"{name}.input")
    def run(
        tensor: torch.Tensor,
        hx: torch.Tensor,
        params: Sequence[torch.Tensor],
        has_biases: bool,
        layers: int,
        dropout: float,
        train: bool,
        bidirectional: bool,
        batch_first: bool,
    ) -> Any:
        settings = (has_biases, layers, dropout, train, bidirectional)
        if not _uses_cudnn(tensor):
            return packet.input.decompose(tensor, hx, params, *settings, batch_first)
        return _cudnn(mode, tensor, [], hx, None, params, *settings, batch_first)[:2]

    @override(f"{name}.data")
    def run_packed(
        data: torch.Tensor,
        batch_sizes: torch.Tensor,
        hx: torch.Tensor,
        params: Sequence[torch.Tensor],
        has_biases: bool,
        layers: int,
        dropout: float,
        train: bool,
        bidirectional: bool,
    ) -> Any:
        settings = (has_biases, layers, dropout, train, bidirectional)
        if not _uses_cudnn(data):
            return packet.data.decompose(data, batch_sizes, hx, params, *settings)
        return _cudnn(mode, data, batch_sizes.tolist(), hx, None, params, *settings, False)[:2]


for _name, _mode in (("gru", GRU), ("rnn_tanh", TANH), ("rnn_relu", RELU)):
    _register_with_one_state(_name, _mode)


def _uses_cudnn(tensor: torch.Tensor) -> bool:
    return torch._C._get_cudnn_enabled() and tensor.numel() > 0 and tensor.dtype in _CUDNN_DTYPES


def _cudnn(
    mode: int,
    tensor: torch.Tensor,
    batch_sizes: list[int],
    hx: torch.Tensor,
    cx: torch.Tensor | None,
    params: Sequence[torch.Tensor],
    has_biases: bool,
    layers: int,
    dropout: float,
    train: bool,
    bidirectional: bool,
    batch_first: bool,
) -> Any:
    """Output and final states; what else `_cudnn_rnn` returns is for backward only."""
    hidden, projection = hx.shape[2], 0
    if cx is not None and cx.shape[2] != hx.shape[2]:
        hidden, projection = cx.shape[2], hx.shape[2]
    directions = 2 if bidirectional else 1
    elements = _buffer_elements(mode, tensor.shape[-1], hidden, projection, layers, directions)
    state = _state_of_dropout(dropout, train)
    weights, buffer = list(params), _flat_buffer(params, elements)
    if torch.is_autocast_enabled("cuda") and tensor.dtype != torch.float64:
        # Autocast means float16 here, whatever type was asked for (aten/src/ATen/cudnn/AutocastRNN.cpp).
        tensor, hx, cx = (t if t is None else t.to(torch.float16) for t in (tensor, hx, cx))  # type: ignore[assignment]
        if weights[0].dtype not in (torch.float16, torch.float64):
            weights, buffer = _flat_half(weights, elements)
    per_layer = (4 if has_biases else 2) + (1 if projection else 0)
    return aten._cudnn_rnn(
        tensor, weights, per_layer, buffer, hx, cx, mode, hidden, projection, layers, batch_first, dropout, train,
        bidirectional, batch_sizes, state,
    )[:3]  # fmt: skip


def _state_of_dropout(dropout: float, train: bool) -> torch.Tensor | None:
    if not train or dropout <= 0:
        return _dropout_state[0] if _dropout_state else None
    if not _dropout_state:
        # Not differentiable and not the program's: made once, kept to the end.
        with torch.no_grad():
            _dropout_state.append(aten._cudnn_init_dropout_state(dropout, train, 0, dtype=torch.uint8, device="meta"))
    return _dropout_state[0]


@rule(aten._cudnn_init_dropout_state.default)
def _init_dropout_state(mode: Any, func: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> torch.Tensor:  # noqa: ARG001
    return torch.empty(_DROPOUT_STATE_BYTES, dtype=torch.uint8, device="meta")


# -- weights in one buffer ---------------------------------------------------------------------------------------------


def _buffer_elements(mode: int, inputs: int, hidden: int, projection: int, layers: int, directions: int) -> int:
    """All weights, with two biases per gate even where the network has none."""
    gates, output = _GATES[mode] * hidden, projection or hidden
    total = 0
    for layer in range(layers):
        width = inputs if layer == 0 else output * directions
        total += directions * (gates * (width + output + 2) + hidden * projection)
    return total


def _flat_buffer(params: Sequence[torch.Tensor], elements: int) -> torch.Tensor | None:
    """The buffer that the weights are views of, or None if they lie in several places (torch warns about that)."""
    with torch._C.DisableTorchFunction():
        storages = {p.untyped_storage()._cdata for p in params}
        first = params[0]
        if len(storages) != 1 or first.untyped_storage().nbytes() != elements * first.element_size():
            return None
        return first.detach().as_strided((elements,), (1,), 0)


def _flat_half(params: Sequence[torch.Tensor], elements: int) -> tuple[list[torch.Tensor], torch.Tensor]:
    """float16 copies of the weights in a buffer of their own, made anew in every forward; gradients flow through."""
    buffer = torch.zeros(elements, dtype=torch.float16, device="meta")
    return [_into(view, p) for view, p in zip(_views(buffer, params), params, strict=True)], buffer


def _into(view: torch.Tensor, param: torch.Tensor) -> torch.Tensor:
    return view.detach().copy_(param)


def _views(buffer: torch.Tensor, params: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    views, offset = [], 0
    for param in params:
        views.append(buffer.as_strided(param.shape, _strides(param.shape), offset))
        offset += param.numel()
    return views


def _strides(shape: Sequence[int]) -> list[int]:
    return [prod(shape[axis + 1 :]) for axis in range(len(shape))]


@rule(aten._cudnn_rnn_flatten_weight.default)
def _flatten_weight(mode: Any, func: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> torch.Tensor:  # noqa: ARG001
    params, _, inputs, kind, hidden, projection, layers, _, bidirectional = args
    elements = _buffer_elements(kind, inputs, hidden, projection, layers, 2 if bidirectional else 1)
    buffer: torch.Tensor = mode.adopt(torch.empty(elements, dtype=params[0].dtype, device="meta"))
    for param, view in zip(params, _views(buffer, params), strict=True):
        param.set_(view)
    return buffer


# -- the operator and its backward -------------------------------------------------------------------------------------


@rule(aten._cudnn_rnn.default)
def _cudnn_rnn(mode: Any, func: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:  # noqa: ARG001
    tensor, _, _, buffer, hx, cx, kind, hidden, projection, layers = args[:10]
    batch_first, dropout, train, bidirectional, batch_sizes = args[10:15]
    directions = 2 if bidirectional else 1
    output = _output(tensor, (projection or hidden) * directions, batch_first and not batch_sizes)
    if buffer is None:
        elements = _buffer_elements(kind, tensor.shape[-1], hidden, projection, layers, directions)
        buffer = torch.empty(elements, dtype=tensor.dtype, device="meta")
    reserve = 0
    if train:
        reserve = recurrent_reserve_bytes(
            mode=kind, itemsize=tensor.element_size(), rows=prod(tensor.shape[:-1]), hidden=hidden, layers=layers,
            directions=directions, dropout=dropout, projection=projection,
        )  # fmt: skip
    return (
        output,
        torch.empty_like(hx),
        torch.empty_like(cx) if cx is not None else hx.new_empty(0),
        torch.empty(reserve, dtype=torch.uint8, device="meta"),
        buffer,
    )


def _output(tensor: torch.Tensor, width: int, batch_first: bool) -> torch.Tensor:
    """Time comes first in memory, whatever the program prefers to see."""
    if batch_first:
        return tensor.new_empty((tensor.shape[1], tensor.shape[0], width)).transpose(0, 1)
    return tensor.new_empty((*tensor.shape[:-1], width))


@rule(aten._cudnn_rnn_backward.default, splits=True)
def _cudnn_rnn_backward(mode: Any, func: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    """First the gradients of input and states, then those of the weights, each with a workspace of its own."""
    tensor, weights, per_layer, buffer, hx, cx = args[:6]
    if all(gradient is None for gradient in args[7:10]):
        return None, None, None, [None] * len(weights)
    if not args[16]:
        raise RuntimeError("cudnn RNN backward can only be called in training mode")
    *operands, mask = args
    batch_first = args[14] and not args[18]
    states = (torch.empty_like(hx), torch.empty_like(cx) if cx is not None else None)
    results = (_output(tensor, tensor.shape[-1], batch_first), *states)
    mode.account(func, (*operands, [*mask[:3], False]), kwargs, results)
    gradients: list[torch.Tensor] = []
    if mask[3]:
        gradients = _weight_gradients(weights, per_layer, buffer)
        mode.account(func, (*operands, [False, False, False, True]), kwargs, gradients)
    return (*results, gradients)


def _weight_gradients(weights: Sequence[torch.Tensor], per_layer: int, buffer: torch.Tensor) -> list[torch.Tensor]:
    if per_layer in (2, 3):  # without biases the buffer has gaps: torch copies the parts that count
        return [torch.empty_like(weight) for weight in weights]
    return _views(torch.empty_like(buffer), weights)


# -- single cells: the pointwise part is one fused kernel --------------------------------------------------------------


@override("lstm_cell")
def _lstm_cell(
    tensor: torch.Tensor,
    hx: Sequence[torch.Tensor],
    w_ih: torch.Tensor,
    w_hh: torch.Tensor,
    b_ih: torch.Tensor | None = None,
    b_hh: torch.Tensor | None = None,
) -> Any:
    gates = torch.matmul(tensor, w_ih.t()), torch.matmul(hx[0], w_hh.t())
    return aten._thnn_fused_lstm_cell(*gates, hx[1], b_ih, b_hh)[:2]


@override("gru_cell")
def _gru_cell(
    tensor: torch.Tensor,
    hx: torch.Tensor,
    w_ih: torch.Tensor,
    w_hh: torch.Tensor,
    b_ih: torch.Tensor | None = None,
    b_hh: torch.Tensor | None = None,
) -> Any:
    gates = torch.matmul(tensor, w_ih.t()), torch.matmul(hx, w_hh.t())
    return aten._thnn_fused_gru_cell(*gates, hx, b_ih, b_hh)[0]


@rule(aten._thnn_fused_lstm_cell.default)
def _fused_lstm_cell(mode: Any, func: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:  # noqa: ARG001
    return torch.empty_like(args[2]), torch.empty_like(args[2]), torch.empty_like(args[0])


@rule(aten._thnn_fused_lstm_cell_backward_impl.default)
def _fused_lstm_cell_backward(mode: Any, func: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:  # noqa: ARG001
    if args[0] is None and args[1] is None:
        return None, None, None
    cx, workspace, has_bias = args[2], args[4], args[5]
    bias = workspace.new_empty(workspace.shape[1]) if has_bias else None
    return torch.empty_like(workspace), torch.empty_like(cx), bias


@rule(aten._thnn_fused_gru_cell.default)
def _fused_gru_cell(mode: Any, func: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:  # noqa: ARG001
    hx = args[2]
    return torch.empty_like(hx), hx.new_empty((hx.shape[0], 5 * hx.shape[1]))


@rule(aten._thnn_fused_gru_cell_backward.default)
def _fused_gru_cell_backward(mode: Any, func: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:  # noqa: ARG001
    gradient, _, has_bias = args
    rows, hidden = gradient.shape
    make: Callable[..., torch.Tensor] = gradient.new_empty
    gates = make((rows, 3 * hidden)), make((rows, 3 * hidden))
    biases = (make(3 * hidden), make(3 * hidden)) if has_bias else (None, None)
    return (*gates, torch.empty_like(gradient), *biases)
