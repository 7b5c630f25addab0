"""What a graph of `torch.export` is made of: its weights, and what its nodes call."""

from __future__ import annotations

from typing import Any

import torch
from torch import fx


def graph_weights(module: fx.GraphModule) -> dict[str, torch.Tensor]:
    """The tensors among a graph's attributes, by their names in the module."""
    found = {node.target: _attribute(module, str(node.target)) for node in module.graph.find_nodes(op="get_attr")}
    return {str(name): value for name, value in found.items() if isinstance(value, torch.Tensor)}


def identity(tensor: torch.Tensor) -> tuple[Any, ...]:
    """Equal for names of one tensor, as tied weights are."""
    storage = tensor.untyped_storage()._cdata
    return storage, tensor.storage_offset(), tuple(tensor.shape), tuple(tensor.stride())


def kind_of(target: Any) -> str:
    """The name of what a node calls, such as `aten::addmm`."""
    if isinstance(target, torch._ops.OpOverload):
        return target._schema.name
    return str(getattr(target, "__name__", target))


def last_operation(graph: fx.Graph) -> str:
    """What makes the first output."""
    output = graph.output_node()
    return next((node.name for node in output.all_input_nodes if node.op == "call_function"), "")


def _attribute(module: torch.nn.Module, name: str) -> Any:
    value: Any = module
    for part in name.split("."):
        value = getattr(value, part)
    return value
