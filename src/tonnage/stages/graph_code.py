"""Operators as JSON and back: a stage's code is data, so that a worker needs neither the user's files nor pickle."""

from __future__ import annotations

import math
import operator
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import nn
from torch.fx import Graph, GraphModule, Node

from tonnage.errors import UsageError

Code = tuple[Mapping[str, Any], ...]
_MODULES = {"_operator": operator, "operator": operator, "math": math, "torch": torch}
_HIGHER = "higher_order"


def encode(nodes: Sequence[Node], module: GraphModule) -> Code:
    """These operations, in this order."""
    return tuple(
        {
            "name": node.name,
            "target": _target_text(node),
            "args": _encode(node.args, module),
            "kwargs": {name: _encode(value, module) for name, value in node.kwargs.items()},
        }
        for node in nodes
    )


def compile_code(
    code: Sequence[Mapping[str, Any]], inputs: Sequence[str], outputs: Sequence[str], device: torch.device
) -> GraphModule:
    """A module that takes these values and returns those; every operator runs as it would have in the whole network."""
    graph, root = Graph(), nn.Module()
    known: dict[str, Node] = {name: graph.placeholder(name) for name in inputs}
    for each in code:
        arguments = _decode(each["args"], known, graph, root, device)
        keywords = {name: _decode(value, known, graph, root, device) for name, value in each["kwargs"].items()}
        target = _target(each["target"])
        known[each["name"]] = graph.create_node("call_function", target, arguments, keywords, name=each["name"])
    graph.output(tuple(known[name] for name in outputs))
    return GraphModule(root, graph)


# -- operators ------------------------------------------------------------------------------------------------------------


def _target_text(node: Node) -> str:
    target: Any = node.target
    if isinstance(target, torch._ops.OpOverload):
        return str(target)
    if isinstance(target, torch._ops.HigherOrderOperator):
        return f"{_HIGHER}.{target._name}"
    module, name = getattr(target, "__module__", ""), getattr(target, "__name__", "")
    if getattr(_MODULES.get(module), name, None) is target:
        return f"{module}:{name}"
    raise UsageError(f"the operation {node.name} ({target}) cannot be sent to another node")


def _target(text: str) -> Any:
    module, colon, name = text.partition(":")
    if colon:
        return getattr(_MODULES[module], name)
    namespace, _, rest = text.partition(".")
    if namespace == _HIGHER:
        return getattr(torch.ops.higher_order, rest)
    packet, _, overload = rest.rpartition(".")
    try:
        return getattr(getattr(getattr(torch.ops, namespace), packet), overload)
    except AttributeError:
        raise UsageError(
            f"the operator {text} is not known on this node", "install the package that brings it, in the same version"
        ) from None


# -- arguments ------------------------------------------------------------------------------------------------------------


def _encode(value: Any, module: GraphModule) -> Any:
    if isinstance(value, Node):
        nested = getattr(module, str(value.target), None) if value.op == "get_attr" else None
        return {"graph": _encode_nested(nested)} if isinstance(nested, GraphModule) else {"value": value.name}
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, tuple):
        return {"tuple": [_encode(each, module) for each in value]}
    if isinstance(value, list):
        return [_encode(each, module) for each in value]
    if isinstance(value, dict):
        return {"dict": {key: _encode(each, module) for key, each in value.items()}}
    if isinstance(value, slice):
        return {"slice": [_encode(each, module) for each in (value.start, value.stop, value.step)]}
    if isinstance(value, complex):
        return {"complex": [value.real, value.imag]}
    if isinstance(value, torch.device):
        return {"device": str(value)}
    if isinstance(value, torch.dtype | torch.memory_format | torch.layout):
        return {"torch": str(value).removeprefix("torch.")}
    raise UsageError(f"a {type(value).__name__} among the arguments of an operator cannot be sent to another node")


def _encode_nested(module: GraphModule) -> dict[str, Any]:
    nodes = list(module.graph.nodes)
    if any(node.op == "get_attr" and not isinstance(getattr(module, str(node.target)), GraphModule) for node in nodes):
        raise UsageError("a nested graph with weights of its own cannot be sent to another node")
    return {
        "inputs": [node.name for node in nodes if node.op == "placeholder"],
        "code": encode([node for node in nodes if node.op == "call_function"], module),
        "output": _encode(nodes[-1].args[0], module),
    }


def _decode(value: Any, known: Mapping[str, Node], graph: Graph, root: nn.Module, device: torch.device) -> Any:
    if isinstance(value, list):
        return [_decode(each, known, graph, root, device) for each in value]
    if not isinstance(value, Mapping):
        return value
    ((kind, what),) = value.items()
    if kind == "value":
        return known[what]
    if kind == "graph":
        return _attach(_decode_nested(what, device), graph, root)
    if kind in ("tuple", "slice"):
        parts = [_decode(each, known, graph, root, device) for each in what]
        return tuple(parts) if kind == "tuple" else slice(*parts)
    if kind == "dict":
        return {key: _decode(each, known, graph, root, device) for key, each in what.items()}
    if kind == "complex":
        return complex(*what)
    # A device of the network as it was exported is that of the worker here.
    return device if kind == "device" else getattr(torch, what)


def _decode_nested(document: Mapping[str, Any], device: torch.device) -> GraphModule:
    graph, root = Graph(), nn.Module()
    known = {name: graph.placeholder(name) for name in document["inputs"]}
    for each in document["code"]:
        arguments = _decode(each["args"], known, graph, root, device)
        keywords = {name: _decode(value, known, graph, root, device) for name, value in each["kwargs"].items()}
        known[each["name"]] = graph.create_node("call_function", _target(each["target"]), arguments, keywords)
    graph.output(_decode(document["output"], known, graph, root, device))
    return GraphModule(root, graph)


def _attach(nested: GraphModule, graph: Graph, root: nn.Module) -> Node:
    name = f"nested_{len(root._modules)}"
    root.add_module(name, nested)
    return graph.get_attr(name)
