"""A network from a graph that `torch.export` made: one operation for each call in it.

The graph says what depends on what, which weights are shared and what must stay together; seconds come from a Trace of that
very graph on the virtual GPU, or from measuring it. A Trace of the user's own loop would know as much about time, but
nothing about which operator reads what another wrote.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from itertools import pairwise
from typing import Any

import torch
from torch import fx
from torch.utils._pytree import tree_leaves

from tonnage.errors import CaptureError
from tonnage.estimate.graph_costs import Costs
from tonnage.program.virtual_gpu.graph_parts import graph_weights, identity, kind_of
from tonnage.program.virtual_gpu.graph_run import GraphRun
from tonnage.split.checked import checked_network
from tonnage.split.network import Network, Operation


def network_from_graph(
    module: fx.GraphModule,
    costs: Mapping[str, Costs],
    *,
    name: str,
    run: GraphRun | None = None,
    together: Iterable[AbstractSet[str]] = (),
    final: Mapping[str, str] | None = None,
    written_weights: AbstractSet[str] = frozenset(),
) -> Network:
    """A network with the seconds of its nodes by kind of device.

    `run` tells what training keeps, where the network is trained. `together` are nodes that must share a device, as those
    that change a tensor in place do with all that see it change; `final` names, for such a tensor, the last of them:
    whoever reads the tensor later waits for that one. `written_weights` are buffers that change while it runs.
    """
    nodes = [node for node in module.graph.nodes if node.op == "call_function"]
    if not nodes:
        raise CaptureError(f"{name} calls no operators", "there is nothing to split")
    weights = _Weights(module)
    groups = _groups(nodes, together)
    values = _Values(nodes, final or {})
    is_training = run is not None and run.trace.origin.mode == "training"
    state = _states(nodes, weights, run.state_bytes) if run and is_training else {}
    total = sum(state.values())
    operations = [
        Operation(
            id=node.name,
            name=_module_path(node),
            kind=kind_of(node.target),
            seconds={kind: each.forward_seconds.get(node.name, 0.0) for kind, each in costs.items()},
            backward_seconds=_backward(node.name, costs) if is_training else {},
            update_seconds=_updates(state[node.name] / total, costs) if state.get(node.name) else {},
            weight_bytes=sum(weights.bytes[weight] for weight in weights.read_by(node)),
            state_bytes=state.get(node.name, 0),
            stash_bytes=run.stash_bytes.get(node.name, 0) if run and is_training else 0,
            output_bytes=values.bytes[node.name],
            weights=weights.read_by(node),
            together=groups.get(node.name),
            changes_weights=any(
                source.op == "get_attr" and source.target in written_weights for source in node.all_input_nodes
            ),
        )
        for node in nodes
    ]
    return checked_network(
        name,
        operations,
        values.edges(),
        is_training=is_training,
        weight_bytes=weights.bytes,
        inputs=_inputs(module.graph),
        outputs=values.outputs(module.graph, loss_alone=is_training),
    )


def _inputs(graph: fx.Graph) -> Iterator[tuple[str, int, list[str]]]:
    for node in graph.find_nodes(op="placeholder"):
        readers = [reader.name for reader in node.users if reader.op == "call_function"]
        yield node.name, sum(map(_bytes, tree_leaves(node.meta.get("val")))), readers


class _Values:
    """Who makes what others read, and how large it is."""

    def __init__(self, nodes: Sequence[fx.Node], final: Mapping[str, str]) -> None:
        self._nodes, self._final = nodes, final
        self._places = {node.name: place for place, node in enumerate(nodes)}
        self.bytes = {node.name: sum(map(_bytes, tree_leaves(node.meta.get("val")))) for node in nodes}
        for name, last in final.items():  # which may write to a part of it only, and yet all of it is sent
            if name in self.bytes and last in self.bytes:
                self.bytes[last] = max(self.bytes[last], self.bytes[name])

    def edges(self) -> Iterator[tuple[str, str]]:
        for node in self._nodes:
            sources = [source.name for source in node.all_input_nodes if source.op == "call_function"]
            yield from ((self._maker(source, node.name), node.name) for source in sources)

    def outputs(self, graph: fx.Graph, *, loss_alone: bool) -> list[str]:
        """What makes the results of the graph; the first is the loss, where there is one."""
        made = [node.name for node in graph.output_node().all_input_nodes if node.op == "call_function"]
        last = [self._final[name] if self._final.get(name) in self._places else name for name in made]
        return last[:1] if loss_alone else last

    def _maker(self, source: str, reader: str) -> str:
        last = self._final.get(source, source)
        return last if self._places.get(last, len(self._nodes)) < self._places[reader] else source


def _bytes(value: Any) -> int:
    """Of a tensor as it is sent: dense, whatever it is a view of; numbers are sent as such."""
    if isinstance(value, torch.Tensor):
        return value.numel() * value.element_size()
    return 8 if isinstance(value, int | float | torch.SymInt | torch.SymFloat) else 0


def _module_path(node: fx.Node) -> str:
    stack = node.meta.get("nn_module_stack") or {}
    path = str(next(reversed(stack.values()))[0]) if stack else ""
    return path.removeprefix("L['self'].")


def _backward(node: str, costs: Mapping[str, Costs]) -> dict[str, float]:
    return {kind: each.backward_seconds.get(node, 0.0) for kind, each in costs.items()}


def _updates(share: float, costs: Mapping[str, Costs]) -> dict[str, float]:
    return {kind: each.update_seconds * share for kind, each in costs.items()}


# -- weights --------------------------------------------------------------------------------------------------------------


class _Weights:
    """Weights under one name each: tied ones under that which comes first."""

    def __init__(self, module: fx.GraphModule) -> None:
        first: dict[tuple[Any, ...], str] = {}
        tensors = graph_weights(module)
        self._names = {name: first.setdefault(identity(tensor), name) for name, tensor in tensors.items()}
        self.bytes = {name: tensors[name].nbytes for name in first.values()}

    def read_by(self, node: fx.Node) -> tuple[str, ...]:
        read = (self._names.get(str(source.target)) for source in node.all_input_nodes if source.op == "get_attr")
        return tuple(dict.fromkeys(name for name in read if name is not None))


def _states(nodes: Iterable[fx.Node], weights: _Weights, state_bytes: Mapping[str, int]) -> dict[str, int]:
    """By node: what training adds to the weights that it is the first to read."""
    found: dict[str, int] = {}
    seen: set[str] = set()
    for node in nodes:
        own = [name for name in weights.read_by(node) if name not in seen]
        seen.update(own)
        found[node.name] = sum(state_bytes.get(name, 0) for name in own)
    return found


# -- what stays together --------------------------------------------------------------------------------------------------


def _groups(nodes: Sequence[fx.Node], together: Iterable[AbstractSet[str]]) -> dict[str, str]:
    """The group of each node that is in one, under the name of one of its nodes. Parts of a result stay with what makes
    all of it, since a tuple is not sent; checks stay with what they check."""
    leaders = {node.name: node.name for node in nodes}
    places = {name: place for place, name in enumerate(leaders)}

    def leader(name: str) -> str:
        while leaders[name] != name:
            name = leaders[name]
        return name

    for node in nodes:
        sources = [source.name for source in node.all_input_nodes if source.op == "call_function"]
        if sources and (_is_part(node) or not _has_value(node)):
            leaders[leader(node.name)] = leader(sources[0])
    for group in together:
        members = sorted(group & leaders.keys(), key=places.__getitem__)
        for first, second in pairwise(members):
            leaders[leader(second)] = leader(first)
    sizes = Counter(map(leader, leaders))
    return {name: leader(name) for name in leaders if sizes[leader(name)] > 1}


def _is_part(node: fx.Node) -> bool:
    """Does it take one of several results?"""
    source = node.args[0] if node.args else None
    return isinstance(source, fx.Node) and source.op == "call_function" and _has_several(source)


def _has_several(node: fx.Node) -> bool:
    return isinstance(node.meta.get("val"), list | tuple)


def _has_value(node: fx.Node) -> bool:
    return any(value is not None for value in tree_leaves(node.meta.get("val")))
