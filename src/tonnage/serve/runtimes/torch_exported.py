"""Files of `torch.export` (.pt2): a graph that tells names, shapes and types of its tensors, and which sizes are open."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch.export.passes import move_to_device_pass
from torch.utils import _pytree as pytree

from tonnage.errors import InvalidFile
from tonnage.serve.configuration import TensorSpec
from tonnage.serve.runtimes import LoadOrder, sentence, shares_first_axis
from tonnage.serve.runtimes.torch_runtime import DATATYPES, TorchRuntime

_MOST_ROWS = 1 << 20  # beyond it a bound is none


@dataclass(frozen=True, slots=True)
class Leaf:
    """A tensor that goes in or comes out, with its place among all values that do; sizes are names where they are open."""

    place: int
    spec: TensorSpec
    sizes: tuple[int | str, ...]


def load(order: LoadOrder) -> TorchRuntime:
    path = Path(order.path)
    program = read_program(path)
    given, made = inputs_of(program, path), outputs_of(program, path)
    if order.device != "cpu":
        program = move_to_device_pass(program, order.device)
    return TorchRuntime(
        _function(program, given, made),
        _renamed(given, order.configuration.inputs),
        _renamed(made, order.configuration.outputs),
        batch_axis=has_batch_axis(given, made),
        device=order.device,
        most_rows=most_rows(program, given),
    )


def read_program(path: Path) -> Any:
    logging.getLogger("torch.export").setLevel(logging.ERROR)  # it tells at length how it tried to read a file
    try:
        return torch.export.load(path)
    except Exception as error:  # zip, pickle, JSON, an operator that is not here: each has its own class
        raise InvalidFile(f"{path} is not a file of torch.export: {sentence(error)}") from error


def inputs_of(program: Any, path: Path) -> list[Leaf]:
    """Those that are tensors; numbers and the like are as they were when the model was exported."""
    specs = [each for each in program.graph_signature.input_specs if each.kind.name == "USER_INPUT"]
    names = _names(program.call_spec.in_spec, [each.arg.name for each in specs])
    leaves = []
    for place, (name, each) in enumerate(zip(names, specs, strict=True)):
        if type(each.arg).__name__ == "ConstantArgument":
            continue
        leaves.append(_leaf(place, name, each.arg, program, path))
    return leaves


def outputs_of(program: Any, path: Path) -> list[Leaf]:
    """Keys where a model returns a dictionary; else `output`, or `output_0` and so on."""
    specs = [each for each in program.graph_signature.output_specs if each.kind.name == "USER_OUTPUT"]
    usual = ["output"] if len(specs) == 1 else [f"output_{place}" for place in range(len(specs))]
    names = _names(program.call_spec.out_spec, usual)
    leaves = []
    for place, (name, each) in enumerate(zip(names, specs, strict=True)):
        if type(each.arg).__name__ == "TensorArgument":
            leaves.append(_leaf(place, name, each.arg, program, path))
    return leaves


def has_batch_axis(given: list[Leaf], made: list[Leaf]) -> bool:
    return shares_first_axis(leaf.sizes for leaf in (*given, *made))


def most_rows(program: Any, given: list[Leaf]) -> int:
    """The upper bound that the first axis of the inputs was exported with; 0 where there is none."""
    first = {leaf.sizes[0] for leaf in given if leaf.sizes}
    bounds = [
        int(values.upper)
        for symbol, values in program.range_constraints.items()
        if str(symbol) in first and values.upper < _MOST_ROWS
    ]
    return min(bounds, default=0)


def _leaf(place: int, name: str, argument: Any, program: Any, path: Path) -> Leaf:
    nodes = {node.name: node for node in program.graph.nodes}
    value = nodes[argument.name].meta.get("val") if argument.name in nodes else None
    if not isinstance(value, torch.Tensor) or value.dtype not in DATATYPES:
        raise InvalidFile(f"{path}: {name} is no tensor that the protocol can carry")
    sizes = tuple(size if isinstance(size, int) else str(size) for size in value.shape)
    dims = tuple(size if isinstance(size, int) else -1 for size in sizes)
    return Leaf(place, TensorSpec(name=name, datatype=DATATYPES[value.dtype], dims=dims), sizes)


def _function(program: Any, given: list[Leaf], made: list[Leaf]) -> Any:
    module, tree = program.module(), program.call_spec.in_spec
    values = [
        getattr(each.arg, "value", None)
        for each in program.graph_signature.input_specs
        if each.kind.name == "USER_INPUT"
    ]
    wanted = [leaf.place for leaf in made]

    def call(*tensors: torch.Tensor) -> list[Any]:
        leaves = list(values)
        for leaf, tensor in zip(given, tensors, strict=True):
            leaves[leaf.place] = tensor
        arguments, keywords = pytree.tree_unflatten(leaves, tree)
        found = pytree.tree_leaves(module(*arguments, **keywords))
        return [found[place] for place in wanted]

    return call


def _names(tree: Any, usual: list[str]) -> list[str]:
    """The last key on the way to each value, where it is a text and no other value has it; else what is usual."""
    keys = list(_last_keys(tree, ""))
    return [key if key and keys.count(key) == 1 else name for key, name in zip(keys, usual, strict=True)]


def _last_keys(tree: Any, key: str) -> Iterator[str]:
    if tree.is_leaf():
        yield key
        return
    context = tree.context if isinstance(tree.context, list | tuple) else ()
    children = tree.children()
    named = len(context) == len(children) and all(isinstance(each, str) for each in context)
    for place, child in enumerate(children):
        yield from _last_keys(child, context[place] if named else "")


def _renamed(leaves: list[Leaf], named: tuple[TensorSpec, ...]) -> tuple[TensorSpec, ...]:
    """A configuration may call tensors otherwise: then its order is that of the file."""
    found = tuple(leaf.spec for leaf in leaves)
    if not named or {spec.name for spec in named} <= {spec.name for spec in found} or len(named) != len(found):
        return found
    pairs = zip(found, named, strict=True)
    return tuple(TensorSpec(name=other.name, datatype=spec.datatype, dims=spec.dims) for spec, other in pairs)
