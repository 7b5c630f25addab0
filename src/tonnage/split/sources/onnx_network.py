"""A network from an ONNX file: one operation for each node, under the name of what it returns.

A node that returns several values is followed by an operation for each further one, which takes no time and stays with it:
so each value is sent by itself.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from tonnage.errors import InvalidFile
from tonnage.estimate.graph_costs import Costs, Processor, gpu_costs, processor_costs
from tonnage.estimate.time_model import TimeModel
from tonnage.hardware import Gpu
from tonnage.program.onnx_model import open_graph, trace_graph
from tonnage.split.checked import checked_network
from tonnage.split.network import Network, Operation

if TYPE_CHECKING:
    from tonnage.program.onnx_shapes import Graph, Node

_PART = "Output"


def network_from_onnx(
    path: str | Path,
    gpus: Sequence[Gpu],
    model: TimeModel,
    *,
    processor: Processor | None = None,
    batch: int | None = None,
    sizes: Mapping[str, int] | None = None,
) -> Network:
    """The inference of a model. `batch` and `sizes` fix dimensions that the file leaves open; `cpu` is a kind of device if
    there is a processor."""
    graph = _under_values(open_graph(Path(path), batch=batch, sizes=sizes))
    if not graph.nodes:
        raise InvalidFile(f"{path} computes nothing from its inputs", "there is nothing to split")
    trace = trace_graph(graph, Path(path).name, batch=batch, runs=2)
    costs = gpu_costs(trace, gpus, model)
    if processor is not None:
        costs["cpu"] = processor_costs(trace, processor)
    made = {name for node in graph.nodes for name in _made(node)}
    return checked_network(
        Path(path).stem,
        list(_operations(graph, costs)),
        _edges(graph),
        weight_bytes={name: graph.tensors[name].nbytes for name in graph.weights},
        inputs=_inputs(graph),
        outputs=[name for name in graph.outputs if name in made],
        source=str(path),
    )


def _under_values(graph: Graph) -> Graph:
    """The same with nodes that are called as the first value that they return: names of nodes may be missing or equal."""
    named = tuple(replace(node, path=_made(node)[0]) for node in graph.nodes if _made(node))
    return replace(graph, nodes=named)


def _made(node: Node) -> list[str]:
    return [name for name in node.outputs if name]


def _operations(graph: Graph, costs: Mapping[str, Costs]) -> Iterator[Operation]:
    weights = frozenset(graph.weights)
    for node in graph.nodes:
        first, *others = _made(node)
        read = tuple(dict.fromkeys(name for name in node.inputs if name in weights))
        group = first if others else None
        yield Operation(
            id=first,
            kind=node.op_type,
            seconds={kind: each.forward_seconds.get(first, 0.0) for kind, each in costs.items()},
            weight_bytes=sum(graph.tensors[name].nbytes for name in read),
            output_bytes=graph.tensors[first].nbytes,
            weights=read,
            together=group,
        )
        for other in others:
            yield Operation(
                id=other,
                kind=_PART,
                seconds=dict.fromkeys(costs, 0.0),
                output_bytes=graph.tensors[other].nbytes,
                together=group,
            )


def _inputs(graph: Graph) -> Iterator[tuple[str, int, list[str]]]:
    for name in graph.inputs:
        yield name, graph.tensors[name].nbytes, [_made(node)[0] for node in graph.nodes if name in node.inputs]


def _edges(graph: Graph) -> Iterator[tuple[str, str]]:
    made = {name for node in graph.nodes for name in _made(node)}
    for node in graph.nodes:
        first, *others = _made(node)
        yield from ((name, first) for name in node.inputs if name in made)
        yield from ((first, other) for other in others)
