"""Which operations of an exported graph share memory that one of them changes, and so must keep their order and place.

A value is safe to send elsewhere once it is final: after the last operation that writes to its storage.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from operator import getitem
from typing import Any

import torch
from torch.fx import GraphModule, Node

# Operators that write to arguments without saying so in their schema: running mean and variance, when this flag is set.
_HIDDEN_WRITES = {"aten::batch_norm": ((3, 4), 5), "aten::instance_norm": ((3, 4), 5)}
# In inference these return their input itself, which the values that export records do not show.
_RETURN_INPUT = {"aten::dropout", "aten::feature_dropout", "aten::alpha_dropout", "aten::feature_alpha_dropout"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Aliasing:
    """What cuts must respect."""

    together: tuple[frozenset[str], ...]  # operations that share a device
    after: Mapping[str, frozenset[str]] = field(hash=False)  # that must have run before, beside an operation's inputs
    final: Mapping[str, str] = field(hash=False)  # by value: the last operation that writes to its storage
    written_weights: frozenset[str]  # targets of buffers that change while the network runs
    volatile: frozenset[str]  # values that share memory with those


def aliasing_of(module: GraphModule) -> Aliasing:
    nodes = list(module.graph.nodes)
    position = {node: number for number, node in enumerate(nodes)}
    storages = _storages(nodes)
    groups, after = _Sets(), defaultdict[str, set[str]](set)
    final: dict[str, str] = {}
    weights, volatile = set[str](), set[str]()
    for node in nodes:
        if node.op == "call_function" and node.target is getitem:
            groups.join([node.name, node.args[0].name])
    for sharing, writers in _written(module, nodes, storages):
        last = max(writers, key=position.__getitem__)
        accesses = _accesses(sharing, position)
        outlives = any(node.op != "call_function" for node in sharing)  # a buffer, or the caller's own tensor
        kept = [node for node in accesses if outlives or position[node] <= position[last]]
        groups.join(node.name for node in kept)
        _order(accesses, writers, position, after)
        final |= {node.name: last.name for node in sharing if position[node] < position[last]}
        weights |= {str(node.target) for node in sharing if node.op == "get_attr"}
        volatile |= {node.name for node in sharing if outlives}
    together = tuple(frozenset(group) for group in groups.all() if len(group) > 1)
    frozen = {name: frozenset(names) for name, names in after.items()}
    return Aliasing(
        together=together, after=frozen, final=final, written_weights=frozenset(weights), volatile=frozenset(volatile)
    )


def _accesses(sharing: set[Node], position: Mapping[Node, int]) -> list[Node]:
    """Operations that make, alias, read or write one storage, in the program's order."""
    readers = {user for node in sharing for user in node.users if user.op == "call_function"}
    return sorted(readers | {node for node in sharing if node.op == "call_function"}, key=position.__getitem__)


def _order(accesses: list[Node], writers: set[Node], position: Mapping[Node, int], after: dict[str, set[str]]) -> None:
    """Who writes waits for all before, and all that come later wait for the writer."""
    for writer in writers:
        for node in accesses:
            if position[node] < position[writer]:
                after[writer.name].add(node.name)
            elif node is not writer:
                after[node.name].add(writer.name)


# -- storages -------------------------------------------------------------------------------------------------------------


def _storages(nodes: Iterable[Node]) -> list[set[Node]]:
    """Nodes whose values share memory."""
    sets, owners, by_name = _Sets(), dict[int, str](), dict[str, Node]()
    for node in nodes:
        by_name[node.name] = node
        sets.join([node.name])
        for key in _storage_keys(node.meta.get("val")):
            sets.join([node.name, owners.setdefault(key, node.name)])
        if _may_return_input(node):
            sets.join([node.name, *(each.name for each in _nodes_in(node.args[0]))])
    return [{by_name[name] for name in group} for group in sets.all()]


def _storage_keys(value: Any) -> Iterator[int]:
    for each in value if isinstance(value, tuple | list) else (value,):
        if isinstance(each, torch.Tensor) and each.layout == torch.strided:
            yield each.untyped_storage()._cdata


def _may_return_input(node: Node) -> bool:
    return _operator(node) in _RETURN_INPUT and not node.args[2]


def _operator(node: Node) -> str:
    return node.target._schema.name if isinstance(node.target, torch._ops.OpOverload) else ""


# -- writes ---------------------------------------------------------------------------------------------------------------


def _written(
    module: GraphModule, nodes: list[Node], storages: list[set[Node]]
) -> Iterator[tuple[set[Node], set[Node]]]:
    """Storages that are changed, with the operations that do so."""
    of = {node: number for number, sharing in enumerate(storages) for node in sharing}
    writers = defaultdict[int, set[Node]](set)
    for node in nodes:
        for written in _writes(module, node):
            writers[of[written]].add(node)
    for number in sorted(writers):
        yield storages[number], writers[number]


def _writes(module: GraphModule, node: Node) -> Iterator[Node]:
    """The arguments that an operation changes."""
    if node.op != "call_function":
        return
    if isinstance(node.target, torch._ops.HigherOrderOperator):
        yield from _nested_writes(module, node)
    if not isinstance(node.target, torch._ops.OpOverload):
        return
    for number, argument in enumerate(node.target._schema.arguments):
        if argument.alias_info is not None and argument.alias_info.is_write:
            given = node.kwargs.get(argument.name, node.args[number] if number < len(node.args) else None)
            yield from _nodes_in(given)
    places, flag = _HIDDEN_WRITES.get(_operator(node), ((), 0))
    if places and node.args[flag]:
        yield from (node.args[place] for place in places if isinstance(node.args[place], Node))  # type: ignore[misc]


def _nested_writes(module: GraphModule, node: Node) -> Iterator[Node]:
    """An operator with a graph of its own, such as a block without gradients: what that graph changes of its inputs."""
    for place, argument in enumerate(node.args):
        nested = getattr(module, str(argument.target), None) if isinstance(argument, Node) else None
        if isinstance(argument, Node) and argument.op == "get_attr" and isinstance(nested, GraphModule):
            inputs = [each for each in nested.graph.nodes if each.op == "placeholder"]
            inside = list(nested.graph.nodes)
            changed = {each for sharing, _ in _written(nested, inside, _storages(inside)) for each in sharing}
            given = node.args[place + 1 :]
            yield from (
                each for each, name in zip(given, inputs, strict=False) if name in changed and isinstance(each, Node)
            )


def _nodes_in(value: Any) -> Iterator[Node]:
    for each in value if isinstance(value, tuple | list) else (value,):
        if isinstance(each, Node):
            yield each


class _Sets:
    """Disjoint sets of names, joined when they meet; in the order of first sight."""

    def __init__(self) -> None:
        self._parents: dict[str, str] = {}

    def join(self, names: Iterable[str]) -> None:
        roots = [self._root(name) for name in names]
        for root in roots[1:]:
            self._parents[self._root(root)] = self._root(roots[0])

    def all(self) -> list[list[str]]:
        found: dict[str, list[str]] = defaultdict(list)
        for name in self._parents:
            found[self._root(name)].append(name)
        return list(found.values())

    def _root(self, name: str) -> str:
        self._parents.setdefault(name, name)
        while self._parents[name] != name:
            self._parents[name] = self._parents[self._parents[name]]
            name = self._parents[name]
        return name
