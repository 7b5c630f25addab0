"""The inference of an ONNX file as a Trace: read and replayed in order, without onnxruntime and without running it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from tonnage.errors import MissingDependency, UsageError
from tonnage.program.onnx_operators import is_view, operator_of
from tonnage.program.trace import D2H, H2D, Category, Operator, Origin, Phase, Trace
from tonnage.program.virtual_gpu.recorder import Recorder

if TYPE_CHECKING:
    from tonnage.program.onnx_shapes import Graph, Node

_MOST_BATCH = 10**7


def trace_onnx(path: Path, *, batch: int | None = None, sizes: Mapping[str, int] | None = None, runs: int = 4) -> Trace:
    """What `runs` inferences of a model do. `batch` and `sizes` (by name) fix dimensions that the file leaves open."""
    if runs < 1:
        raise UsageError(f"the number of runs is {runs}, not 1 or more")
    return trace_graph(open_graph(path, batch=batch, sizes=sizes), Path(path).name, batch=batch, runs=runs)


def trace_graph(graph: Graph, name: str, *, batch: int | None = None, runs: int = 4) -> Trace:
    """What `runs` inferences of a graph do; its modules are the paths of the nodes."""
    recorder = _Simulation(graph).run(runs)
    return recorder.trace(
        Origin(
            program=name,
            kind="onnx",
            mode="inference",
            steps=runs,
            batch=batch if batch is not None else _first_size(graph),
            parameter_count=graph.parameter_count,
            warnings=graph.warnings,
        )
    )


def open_graph(path: Path, *, batch: int | None = None, sizes: Mapping[str, int] | None = None) -> Graph:
    """The graph in a file; `batch` and `sizes` fix dimensions that it leaves open."""
    if batch is not None and not 1 <= batch <= _MOST_BATCH:
        raise UsageError(f"the batch is {batch}, not a number from 1 to {_MOST_BATCH}")
    try:
        import onnx  # noqa: F401  (heavy, and optional)
    except ModuleNotFoundError:
        raise MissingDependency("reading ONNX files needs the onnx package", "pip install tonnage[onnx]") from None
    from tonnage.program.onnx_shapes import read_graph

    return read_graph(Path(path), batch, sizes or {})


def _first_size(graph: Graph) -> int | None:
    shapes = [graph.tensors[name].shape for name in graph.inputs]
    return shapes[0][0] if shapes and len(shapes[0]) > 1 else None


class _Simulation:
    """Runs through the nodes in order. Values that share memory share one block, named after the first of them."""

    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self._recorder = Recorder()
        self._operators: dict[object, int] = {}
        self._weights = frozenset(graph.weights)
        self._owners = _owners(graph)
        self._inputs = self._read_inputs()
        self._outputs = [name for name in graph.outputs if name in self._owners]
        self._freed = self._last_uses()
        self._calls = [
            None if is_view(node, graph.tensors) else self._intern(operator_of(node, graph.tensors))
            for node in graph.nodes
        ]
        self._blocks: dict[str, int] = {}

    def run(self, runs: int) -> Recorder:
        for name in self._graph.weights:
            module = self._recorder.module(name.rpartition(".")[0])
            self._allocate(name, module, Phase.SETUP, Category.PARAMETERS)
            self._copy(H2D, name, module, Phase.SETUP)
        for _ in range(runs):
            self._run_once()
        return self._recorder

    def _run_once(self) -> None:
        for name in self._inputs:
            self._allocate(name, 0, Phase.COPY, Category.INPUTS)
            self._copy(H2D, name)
        for node, operator, freed in zip(self._graph.nodes, self._calls, self._freed, strict=True):
            self._step(node, operator)
            for name in freed:
                self._recorder.free(self._blocks.pop(name))
        for name in self._outputs:
            self._copy(D2H, name)
        for name in [name for name in self._blocks if name not in self._weights]:
            self._recorder.free(self._blocks.pop(name))
        self._recorder.end_step()

    def _step(self, node: Node, operator: int | None) -> None:
        module = self._recorder.module(node.path)
        for name in node.outputs:
            if self._owners.get(name) == name:
                self._allocate(name, module, Phase.FORWARD, Category.ACTIVATIONS)
        if operator is not None:
            self._recorder.call(operator, module, Phase.FORWARD)

    def _allocate(self, name: str, module: int, phase: Phase, category: Category) -> None:
        self._blocks[name] = self._recorder.allocate(self._graph.tensors[name].nbytes, module, phase)
        self._recorder.tag(self._blocks[name], category)

    def _copy(self, direction: str, name: str, module: int = 0, phase: Phase = Phase.COPY) -> None:
        operator = self._intern(Operator(direction, (self._graph.tensors[name].spec,), ()))
        self._recorder.call(operator, module, phase)

    def _intern(self, operator: Operator) -> int:
        """The number of an operator; equal ones share it."""
        key = (operator.name, operator.inputs, operator.outputs, tuple(sorted(operator.attributes.items())))
        if key not in self._operators:
            self._operators[key] = len(self._recorder.operators)
            self._recorder.operators.append(operator)
        return self._operators[key]

    def _read_inputs(self) -> list[str]:
        """Inputs that something on the GPU reads; others (only their shape matters) stay on the host."""
        read = {name for node in self._graph.nodes for name in node.inputs} | set(self._graph.outputs)
        return [name for name in self._graph.inputs if name in read]

    def _last_uses(self) -> list[list[str]]:
        """For each node, the blocks that nothing needs after it. Inputs and outputs stay until the end of the run."""
        kept = {self._owners[name] for name in (*self._inputs, *self._outputs, *self._graph.weights)}
        last: dict[str, int] = {}
        for number, node in enumerate(self._graph.nodes):
            for name in (*node.inputs, *node.outputs):
                owner = self._owners.get(name)
                if owner is not None and owner not in kept:
                    last[owner] = number
        freed: list[list[str]] = [[] for _ in self._graph.nodes]
        for owner, number in last.items():
            freed[number].append(owner)
        return freed


def _owners(graph: Graph) -> dict[str, str]:
    """For each value in GPU memory, the value whose block it lives in."""
    owners = {name: name for name in (*graph.inputs, *graph.weights)}
    for node in graph.nodes:
        made = list(node.outputs)
        if is_view(node, graph.tensors):
            view = made.pop(0)
            owner = owners.get(node.inputs[0])
            owners.update({} if owner is None else {view: owner})  # a view of something on the host is there, too
        owners.update({name: name for name in made if name})
    return owners
