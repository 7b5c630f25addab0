"""Calls of a network as flat lists of values, in the order of its inputs, and back to what it returns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch.fx import GraphModule
from torch.utils import _pytree as pytree

from tonnage.errors import UsageError


def flat_inputs(module: GraphModule, inputs: Any) -> list[Any]:
    """One value for each input of the graph. `inputs`: a tensor, a tuple of arguments, a dict of keyword arguments."""
    if isinstance(inputs, Mapping):
        arguments, keywords = (), dict(inputs)
    else:
        arguments, keywords = tuple(inputs) if isinstance(inputs, list | tuple) else (inputs,), {}
    codegen: Any = module.graph._codegen
    wanted = codegen.pytree_info.in_spec
    names = list(wanted.child(1).context or ())
    if set(names) == set(keywords):
        keywords = {name: keywords[name] for name in names}
    leaves, spec = pytree.tree_flatten((arguments, keywords))
    if spec != wanted:
        raise UsageError(f"the inputs of a sample are not like those the network was exported with: {_kinds(leaves)}")
    return leaves


def check_alike(module: GraphModule, flat: Sequence[Any]) -> None:
    """Sizes are part of an exported graph."""
    nodes = [node for node in module.graph.nodes if node.op == "placeholder"]
    for node, value in zip(nodes, flat, strict=True):
        example = node.meta.get("val")
        if isinstance(example, torch.Tensor) and isinstance(value, torch.Tensor):
            is_static = all(isinstance(size, int) for size in example.shape)
            if value.dtype != example.dtype or (is_static and value.shape != example.shape):
                raise UsageError(
                    f"{node.name} of a sample is {tuple(value.shape)} {value.dtype}, "
                    f"but the network was exported for {tuple(example.shape)} {example.dtype}"
                )


def structured_output(module: GraphModule, flat: Sequence[Any]) -> Any:
    codegen: Any = module.graph._codegen
    return pytree.tree_unflatten(list(flat), codegen.pytree_info.out_spec)


def _kinds(leaves: Sequence[Any]) -> str:
    return ", ".join(str(tuple(each.shape)) if isinstance(each, torch.Tensor) else repr(each) for each in leaves)
