"""Runs a network on a GPU as one graph of kernels for each size, instead of one launch after the other.

Products are computed in full single precision: with TF32, which cuDNN takes by itself, results differ in the third digit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

import torch
from torch import Tensor, nn

from tonnage.errors import TonnageError
from tonnage.program.caffe.execution import CaffeModule
from tonnage.program.caffe.folding import Weights, folded_network, folded_weights
from tonnage.program.caffe.front import front_of, why_no_batches
from tonnage.program.caffe.network import Network, reshaped
from tonnage.program.caffe.processor import Run, together
from tonnage.program.caffe.ways import Shapes, fastest

_WARM_UPS = 3
_MOST_SHAPES = 16  # each keeps its buffers


class CudaGraphs:
    """Sizes are recorded beforehand, or when they come. A batch runs as the next power of two, with rows nobody reads."""

    def __init__(self, network: Network, weights: Weights, device: str) -> None:
        self._network, self.device = network, torch.device(device)
        front = front_of(network)
        self.makes: Sequence[int] = tuple(front.outputs.values())
        self._weights = folded_weights(front, weights)
        self._has_batches = not why_no_batches(network)
        self._runs: dict[Shapes, Run] = {}
        self._most_rows = 1
        self.chosen: dict[Shapes, str] = {}

    def find(self, shapes: Shapes) -> Run | None:
        run = self._runs.get(shapes)
        if run is not None:
            return run
        if self._has_batches and shapes[0][0] <= self._most_rows:
            rows = 1 << (shapes[0][0] - 1).bit_length()
            larger = self._runs.get(tuple((rows, *shape[1:]) for shape in shapes))
            if larger is not None:
                return _with_unread_rows(larger, rows)
        if len(self._runs) < _MOST_SHAPES:
            with suppress(TonnageError):  # shapes that cannot be: who runs layer by layer tells why
                self.prepare(shapes)
        return self._runs.get(shapes)

    def prepare(self, shapes: Shapes) -> str:
        """Raises `UsageError` or `InvalidFile` where inputs cannot have these shapes."""
        wanted = dict(zip(self._network.inputs, shapes, strict=True))
        network = folded_network(front_of(reshaped(self._network, wanted)))
        examples = tuple(torch.rand(shape, device=self.device) for shape in shapes)
        makers: dict[str, Callable[[], Run]] = {
            "layers": lambda: _eager(self._module(network)),
            "graph": lambda: _Recorded(self._module(network), examples),
            "graph, channels together": lambda: _Recorded(together(self._module(network, together=True)), examples),
        }
        with exact_products():
            name, run, _ = fastest(makers, examples)
        self._runs[shapes], self.chosen[shapes] = run, name
        return name

    def _module(self, network: Network, together: bool = False) -> nn.Module:
        module: Any = CaffeModule(network, self._weights).eval()
        order = torch.channels_last if together else torch.preserve_format
        found: nn.Module = module.to(device=self.device, memory_format=order)
        return found

    def prepare_batches(self, most: int) -> None:
        """All batches up to so many rows."""
        rows = 1
        while True:
            self.prepare(tuple((rows, *shape[1:]) for shape in self._network.input_shapes.values()))
            self._most_rows = rows
            if rows >= most or len(self._runs) >= _MOST_SHAPES:
                return
            rows *= 2


@contextmanager
def exact_products() -> Iterator[None]:
    """Full single precision, and the fastest algorithm for each convolution."""
    cudnn: Any = torch.backends.cudnn
    before = torch.backends.cuda.matmul.allow_tf32
    torch.backends.cuda.matmul.allow_tf32 = False
    try:
        with cudnn.flags(enabled=True, benchmark=True, deterministic=False, allow_tf32=False):
            yield
    finally:
        torch.backends.cuda.matmul.allow_tf32 = before


def _eager(module: nn.Module) -> Run:
    def run(*inputs: Tensor) -> tuple[Tensor, ...]:
        with exact_products():
            made: tuple[Tensor, ...] = module(*inputs)
        torch.cuda.current_stream().synchronize()
        return made

    return run


class _Recorded:
    """One launch for everything. Inputs and outputs have places of their own, from which results are copied."""

    def __init__(self, function: Run, examples: tuple[Tensor, ...]) -> None:
        self._function = function  # the graph reads its weights, and does not keep them
        self._given = tuple(each.clone() for each in examples)
        stream: Any = torch.cuda.Stream()  # type: ignore[no-untyped-call]
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            for _ in range(_WARM_UPS):  # cuDNN chooses, and memory is reserved
                function(*self._given)
        torch.cuda.current_stream().wait_stream(stream)
        self._graph: Any = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self._graph):
            self._made = function(*self._given)

    def __call__(self, *inputs: Tensor) -> tuple[Tensor, ...]:
        for place, each in zip(self._given, inputs, strict=True):
            place.copy_(each, non_blocking=True)
        self._graph.replay()
        found = tuple(each.clone() for each in self._made)
        torch.cuda.current_stream().synchronize()
        return found


def _with_unread_rows(run: Run, rows: int) -> Run:
    def padded(*inputs: Tensor) -> tuple[Tensor, ...]:
        missing = rows - inputs[0].shape[0]
        larger = (torch.cat([each, each.new_zeros(missing, *each.shape[1:])]) for each in inputs)
        return tuple(each[: inputs[0].shape[0]] for each in run(*larger))

    return padded
