"""Runs an exported graph on the virtual GPU, node by node: the Trace of a step whose modules are the nodes of the graph.

Unlike a capture this needs no process of its own, since what runs is no longer the user's code. Forward operators belong to
their node, backward operators to the node of their forward: autograd numbers what it records, and each node owns a range
of these numbers.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import fx
from torch.utils._pytree import tree_map

from tonnage.errors import CaptureError
from tonnage.program.trace import Origin, Phase, Trace
from tonnage.program.virtual_gpu import composites, recurrent
from tonnage.program.virtual_gpu.graph_parts import graph_weights, identity, kind_of, last_operation
from tonnage.program.virtual_gpu.graph_training import Optimizer, Stash, as_on_gpu, loss_of, state_bytes
from tonnage.program.virtual_gpu.modules import ModuleStack
from tonnage.program.virtual_gpu.operators import OperatorMode
from tonnage.program.virtual_gpu.recorder import Recorder

_ = recurrent  # its composites register themselves
_META = torch.device("meta")
_STEPS = 2  # the optimizer's state appears in the first
_CHECKS = ("aten::_assert", "aten::sym_constrain", "aten::_functional_assert")  # of values; no GPU is asked


@dataclass(frozen=True, kw_only=True)
class GraphRun:
    """What a graph did. `trace.modules` are names of nodes; calls of the optimizer belong to none in particular."""

    trace: Trace
    stash_bytes: Mapping[str, int] = field(default_factory=dict)  # by node: what autograd keeps for its backward
    state_bytes: Mapping[str, int] = field(default_factory=dict)  # by weight: its gradient and the optimizer's state


def run_graph(module: fx.GraphModule, *, name: str = "", optimizer: Optimizer | None = None) -> GraphRun:
    """Steps of a graph that `torch.export` made, with inputs as large as those that it was exported with; of training if
    there is an optimizer."""
    recorder = Recorder()
    nodes = _Nodes(recorder)
    with _as_on_cuda(), OperatorMode(recorder, nodes) as mode:
        weights = _virtual_weights(module)
        run = _Run(module, nodes, weights)
        if optimizer is None:
            with torch.no_grad():
                for _ in range(_STEPS):
                    run.forward()
                    recorder.end_step()
            return GraphRun(trace=recorder.trace(_origin(name, "inference")))
        stash, state = _train(run, weights, optimizer, mode)
        return GraphRun(trace=recorder.trace(_origin(name, "training")), stash_bytes=stash, state_bytes=state)


def _virtual_weights(module: fx.GraphModule) -> dict[str, torch.Tensor]:
    """Parameters, buffers and constants that the graph reads, without their values: one tensor where they are tied."""
    made: dict[tuple[Any, ...], torch.Tensor] = {}
    found: dict[str, torch.Tensor] = {}
    for name, tensor in graph_weights(module).items():
        found[name] = made.setdefault(identity(tensor), _virtual(tensor))
    return found


# -- one step -------------------------------------------------------------------------------------------------------------


class _Nodes(ModuleStack):
    """Which node is running, instead of which module."""

    def __init__(self, recorder: Recorder) -> None:
        super().__init__(recorder)
        self.started = True
        self._running = 0
        self._owners: dict[int, int] = {}  # of autograd's numbers

    @contextmanager
    def running(self, name: str) -> Iterator[None]:
        """Whatever autograd records in here belongs to this node."""
        self._running = node = self._recorder.module(name)
        first = torch._C._autograd._get_sequence_nr()
        yield
        for number in range(first, torch._C._autograd._get_sequence_nr()):
            self._owners[number] = node

    @property
    def name(self) -> str:
        return self._recorder.modules[self._running]

    def current(self, phase: Phase) -> int:
        """Sums of gradients have no number and go with what ran before them."""
        node = torch._C._current_autograd_node() if phase == Phase.BACKWARD else None
        if node is not None:
            self._running = self._owners.get(node._sequence_nr(), self._running)
        return self._running


class _Virtual(fx.Interpreter):
    """A graph on tensors without values."""

    def call_function(self, target: Any, args: Any, kwargs: Any) -> Any:
        if kind_of(target).startswith(_CHECKS):
            return None
        if isinstance(target, torch._ops.HigherOrderOperator):
            return _run_inner(target, args)
        args, kwargs = tree_map(lambda value: _META if isinstance(value, torch.device) else value, (args, kwargs))
        return super().call_function(target, args, kwargs)


def _run_inner(target: torch._ops.HigherOrderOperator, args: tuple[Any, ...]) -> Any:
    """A part of the model under `torch.no_grad`, which the exporter leaves in a graph of its own."""
    if target.name() != "wrap_with_set_grad_enabled":
        raise NotImplementedError(f"{target.name()} is control flow, which cannot be split")
    enabled, inner, *inputs = args
    with torch.set_grad_enabled(enabled):
        return _Virtual(inner).run(*inputs)


class _Run(_Virtual):
    """The whole graph, with its inputs and its weights."""

    def __init__(self, module: fx.GraphModule, nodes: _Nodes, weights: Mapping[str, torch.Tensor]) -> None:
        super().__init__(module)
        self._nodes, self._weights = nodes, weights
        self._inputs = [tree_map(_as_virtual, node.meta.get("val")) for node in self.graph.find_nodes(op="placeholder")]
        self._last = last_operation(self.graph)

    @property
    def running(self) -> str:
        """The name of a node."""
        return self._nodes.name

    def forward(self) -> Any:
        return self.graph.process_outputs(self.run(*self._inputs, enable_io_processing=False))

    def loss(self) -> torch.Tensor:
        """What is added to the model's own output to make one number of it belongs to the operation that returns it."""
        output = self.forward()
        with self._nodes.running(self._last):
            return loss_of(output)

    def run_node(self, n: fx.Node) -> Any:
        if n.op == "call_module":
            return None  # checks the inputs
        if n.op != "call_function":
            return super().run_node(n)
        with self._nodes.running(n.name):
            try:
                return super().run_node(n)
            except (RuntimeError, NotImplementedError, TypeError, ValueError) as error:
                reason = str(error).strip().partition("\n")[0]
                raise CaptureError(f"operation {n.name} ({kind_of(n.target)}) cannot be followed: {reason}") from error

    def get_attr(self, target: Any, args: Any, kwargs: Any) -> Any:
        return self._weights[target] if target in self._weights else super().get_attr(target, args, kwargs)


# -- training -------------------------------------------------------------------------------------------------------------


def _train(
    run: _Run, weights: Mapping[str, torch.Tensor], make: Optimizer, mode: OperatorMode
) -> tuple[dict[str, int], dict[str, int]]:
    """Steps of training; what autograd kept in the first, by node, and what each weight needs beside itself."""
    parameters = {id(w): w for w in weights.values() if isinstance(w, torch.nn.Parameter) and w.requires_grad}
    if not parameters:
        raise CaptureError("the model has no weights to train", "split it for inference")
    optimizer = as_on_gpu(make(list(parameters.values())))
    stash = Stash(lambda: run.running, weights.values())
    state: dict[str, int] = {}
    for step in range(_STEPS):
        with torch.enable_grad(), nullcontext() if step else stash.watching():
            loss = run.loss()
        loss.backward()
        mode.in_optimizer = True
        optimizer.step()
        mode.in_optimizer = False
        state = {name: state_bytes(weight, optimizer) for name, weight in weights.items()}
        optimizer.zero_grad()
        del loss
        mode.recorder.end_step()
    return stash.bytes, state


# -- the virtual GPU ------------------------------------------------------------------------------------------------------


@contextmanager
def _as_on_cuda() -> Iterator[None]:
    """Composite operators come apart as they do on CUDA, for as long as this lasts."""
    libraries = composites.install()
    try:
        yield
    finally:
        for library in libraries:
            library._destroy()


def _virtual(tensor: torch.Tensor) -> torch.Tensor:
    made = torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device=_META)
    return torch.nn.Parameter(made, tensor.requires_grad) if isinstance(tensor, torch.nn.Parameter) else made


def _as_virtual(value: Any) -> Any:
    return _virtual(value) if isinstance(value, torch.Tensor) else value


def _origin(name: str, mode: str) -> Origin:
    cudnn: Any = torch.backends.cudnn
    return Origin(
        program=name,
        kind="function",
        mode=mode,
        steps=_STEPS,
        torch_version=torch.__version__,
        cudnn_allow_tf32=bool(cudnn.allow_tf32),
        matmul_allow_tf32=bool(torch.backends.cuda.matmul.allow_tf32),
    )
