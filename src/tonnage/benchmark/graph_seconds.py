"""Seconds of each node of an exported graph on the processors of this machine, measured.

The graph's own code runs, with a look at the clock after each node: what is measured is what a subgraph does when it runs
by itself, and releasing memory counts to the node after which it happens. Looking at the clock takes time, too; runs in
which it is looked at a few times only take turns with the others, and the nodes in between are scaled to add up to these.
"""

from __future__ import annotations

import time
from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from statistics import median
from typing import Any

import torch
from torch import fx

from tonnage.benchmark.kept_memory import keep_freed_memory
from tonnage.errors import ProgramFailed
from tonnage.estimate.graph_costs import Costs
from tonnage.program.virtual_gpu.graph_training import Optimizer, loss_of

Clock = Callable[[], float]
Typical = Callable[[Sequence[float]], float]
_WARM_UPS = 2
_STOPS, _BETWEEN_STOPS = 8, 16  # no more stops, and no fewer nodes from one to the next


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """How a graph is run: what it is given, who updates its weights if it is trained, how often, on how many cores."""

    args: Sequence[Any] = ()
    kwargs: Mapping[str, Any] | None = None
    optimizer: Optimizer | None = None
    repeats: int = 7
    threads: int | None = None  # those of torch
    clock: Clock = time.perf_counter
    typical: Typical = median  # or min, where others use the machine as well


def measured_costs(module: fx.GraphModule, run: Run) -> Costs:
    """What is typical of several runs. The model's weights and buffers are the same afterwards."""
    keep_freed_memory()  # as workers do
    nodes = [node.name for node in module.graph.nodes if node.op == "call_function"]
    stops = (
        _stops(nodes) if run.optimizer is None else nodes[-1:]
    )  # autograd is only looked at for all nodes or for none
    each, few = _Watched(module, nodes, run), _Watched(module, stops, run)
    parts, sums = [], []
    with _unchanged(module), _threads(run.threads):
        for _ in range(_WARM_UPS + run.repeats):
            sums.append(few.step())
            parts.append(each.step())
        update = _update_seconds(module, run) if run.optimizer else 0.0
    costs, total = _typical(parts[_WARM_UPS:], run.typical), _typical(sums[_WARM_UPS:], run.typical)
    return Costs(
        forward_seconds=_scaled(costs.forward_seconds, total.forward_seconds),
        backward_seconds=_scaled(costs.backward_seconds, total.backward_seconds),
        update_seconds=update,
    )


def _stops(nodes: Sequence[str]) -> list[str]:
    """A few nodes in the order of all, the last of them included."""
    every = max(-(-len(nodes) // _STOPS), _BETWEEN_STOPS)
    return list(nodes[::-1][::every])[::-1]


def _scaled(seconds: Mapping[str, float], sums: Mapping[str, float]) -> dict[str, float]:
    """Nodes up to each stop so that they add up to what was measured there."""
    scaled: dict[str, float] = {}
    waiting: list[str] = []
    for name in seconds:
        waiting.append(name)
        if name in sums:
            measured = sum(seconds[each] for each in waiting)
            ratio = sums[name] / measured if measured else 1.0
            scaled |= {each: seconds[each] * ratio for each in waiting}
            waiting = []
    return scaled


def _typical(runs: Sequence[Costs], typical: Typical) -> Costs:
    def of(phase: Sequence[Mapping[str, float]]) -> dict[str, float]:
        names = dict.fromkeys(name for run in phase for name in run)
        return {name: typical([run.get(name, 0.0) for run in phase]) for name in names}

    return Costs(
        forward_seconds=of([run.forward_seconds for run in runs]),
        backward_seconds=of([run.backward_seconds for run in runs]),
    )


# -- one run --------------------------------------------------------------------------------------------------------------


class _Watched:
    """A graph that notes the time after some of its nodes."""

    def __init__(self, module: fx.GraphModule, nodes: Sequence[str], run: Run) -> None:
        self._run, self._nodes = run, list(nodes)
        self._watched = frozenset(nodes)
        self._moments: list[float] = []
        self._numbers: list[int] = []  # autograd's, up to which all belongs to a node or to those before it
        self._module = fx.GraphModule(module, self._marked(module.graph))

    def _marked(self, original: fx.Graph) -> fx.Graph:
        """A copy that calls `mark` before the first operation and after those that are watched."""

        def mark() -> None:
            self._numbers.append(torch._C._autograd._get_sequence_nr())
            self._moments.append(self._run.clock())

        graph, copies = fx.Graph(), dict[fx.Node, fx.Node]()
        graph.output(graph.graph_copy(original, copies))
        graph.set_codegen(original._codegen)
        operations = [node for node in original.nodes if node.op == "call_function"]
        with graph.inserting_before(copies[operations[0]]):
            graph.call_function(mark)
        for node in operations:
            if node.name in self._watched:
                with graph.inserting_after(copies[node]):
                    graph.call_function(mark)
        return graph

    def step(self) -> Costs:
        self._moments.clear()
        self._numbers.clear()
        is_training = self._run.optimizer is not None
        try:
            with torch.set_grad_enabled(is_training):
                output = self._module(*self._run.args, **(self._run.kwargs or {}))
                if not is_training:
                    return Costs(forward_seconds=self._forward())
                loss = loss_of(output)
            self._moments[-1] = self._run.clock()  # the loss belongs to the last node
            del output
            return Costs(forward_seconds=self._forward(), backward_seconds=self._backward(loss))
        except (RuntimeError, TypeError, ValueError, IndexError) as error:
            reason = str(error).strip().partition("\n")[0]
            raise ProgramFailed(f"the model failed when it was run to measure its operations: {reason}") from error

    def _forward(self) -> dict[str, float]:
        passed = (after - before for before, after in pairwise(self._moments))
        return dict(zip(self._nodes, passed, strict=True))

    def _backward(self, loss: torch.Tensor) -> dict[str, float]:
        """Time passes from one function of autograd to the next and counts to the former."""
        notes: list[tuple[int, float]] = []
        if len(self._nodes) > 1:
            for function in _functions(loss):
                function.register_prehook(self._noter(function, notes))
        start = self._run.clock()
        loss.backward()  # type: ignore[no-untyped-call]
        end = self._run.clock()
        owners = [owner for owner, _ in notes] or [len(self._nodes) - 1]
        moments = [start, *(moment for _, moment in notes[1:]), end]
        seconds = dict.fromkeys(self._nodes, 0.0)
        for owner, (begun, ended) in zip(owners, pairwise(moments), strict=True):
            seconds[self._nodes[owner]] += ended - begun
        return seconds

    def _noter(self, function: Any, notes: list[tuple[int, float]]) -> Callable[[Any], None]:
        last = len(self._nodes) - 1
        owner = min(max(bisect_right(self._numbers, function._sequence_nr()) - 1, 0), last)

        def note(gradients: Any) -> None:  # noqa: ARG001  (torch's signature)
            notes.append((owner, self._run.clock()))

        return note


def _functions(loss: torch.Tensor) -> Iterator[Any]:
    """All that autograd recorded, but for what adds gradients to weights: that goes with what made them."""
    found: dict[Any, None] = {loss.grad_fn: None}
    waiting = [loss.grad_fn]
    while waiting:
        for function, _ in waiting.pop().next_functions:  # type: ignore[union-attr]
            if function is not None and function not in found:
                found[function] = None
                waiting.append(function)
    return (function for function in found if not hasattr(function, "variable"))


def _update_seconds(module: fx.GraphModule, run: Run) -> float:
    """Of the optimizer, on copies of the weights."""
    assert run.optimizer is not None
    copies = [torch.nn.Parameter(weight.detach().clone()) for weight in module.parameters() if weight.requires_grad]
    for each in copies:
        each.grad = torch.zeros_like(each)
    optimizer = run.optimizer(copies)
    optimizer.step()  # makes its state
    spans = []
    for _ in range(run.repeats):
        start = run.clock()
        optimizer.step()
        spans.append(run.clock() - start)
    return run.typical(spans)


@contextmanager
def _threads(count: int | None) -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(count or before)
    try:
        yield
    finally:
        torch.set_num_threads(before)


@contextmanager
def _unchanged(module: torch.nn.Module) -> Iterator[None]:
    """Buffers, such as running means, and the random numbers are what they were; gradients are gone."""
    before = [(buffer, buffer.clone()) for buffer in module.buffers()]
    try:
        with torch.random.fork_rng(devices=[]):
            yield
    finally:
        module.zero_grad()
        with torch.no_grad():
            for buffer, value in before:
                buffer.copy_(value)
