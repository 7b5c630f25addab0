"""Cuts a graph by the devices of its operations: values go straight from who makes them to who reads them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch.fx import GraphModule, Node

from tonnage.errors import UsageError
from tonnage.program.aliasing import Aliasing, aliasing_of
from tonnage.stages.graph_code import encode
from tonnage.stages.segments import Place, in_order, levels_of, place_in_segments
from tonnage.stages.stage import CONTROLLER, Cut, Segment, Stage

_MANY = 3  # names in a sentence


def cut(module: GraphModule, assignment: Mapping[str, str], *, loss: str = "") -> Cut:
    """One stage for each device of the assignment (its devices by names of operations).

    Operations that it leaves out go where what they read is. With `loss`, that is the only output, and operations that
    share memory must be in one run of their device, as gradients go back through them at once.
    """
    if not assignment:
        raise UsageError("the assignment is empty", "name a device for at least one operation")
    graph = _Graph(module, assignment, loss)
    graph.check(assignment)
    stages = tuple(graph.stage(device) for device in graph.devices)
    holders = {
        weight: tuple(stage.device for stage in stages if weight in stage.weights.values())
        for weight in dict.fromkeys(weight for stage in stages for weight in stage.weights.values())
    }
    return Cut(stages=stages, inputs=tuple(graph.inputs), outputs=graph.outputs, holders=holders)


def weights_of(module: GraphModule) -> dict[str, torch.Tensor]:
    """Parameters, buffers and constants that operators read, by name; the same tensor under the first of its names."""
    names = _canonical_names(module)
    return {name: _attribute(module, name) for name in dict.fromkeys(names.values())}


@dataclass
class _Graph:
    """A graph with the places of its operations."""

    module: GraphModule
    assignment: Mapping[str, str]
    loss: str

    @cached_property
    def nodes(self) -> dict[str, Node]:
        return {node.name: node for node in self.module.graph.nodes}

    @cached_property
    def operations(self) -> list[Node]:
        return [node for node in self.nodes.values() if node.op == "call_function"]

    @cached_property
    def inputs(self) -> list[str]:
        return [node.name for node in self.nodes.values() if node.op == "placeholder"]

    @cached_property
    def aliasing(self) -> Aliasing:
        return aliasing_of(self.module)

    @cached_property
    def weight_names(self) -> dict[str, str]:
        """The canonical name of each get_attr node's tensor."""
        names = _canonical_names(self.module)
        return {node.name: names[str(node.target)] for node in self.nodes.values() if str(node.target) in names}

    @cached_property
    def outputs(self) -> tuple[Any, ...]:
        flat = next(node for node in self.nodes.values() if node.op == "output").args[0]
        wanted = [self.nodes[self.loss]] if self.loss else flat
        return tuple(self._output(value) for value in wanted)  # type: ignore[union-attr]  # a tuple, as export makes it

    def _output(self, value: Any) -> tuple[str, Any]:
        if not isinstance(value, Node):
            return "constant", value
        weight = self.weight_names.get(value.name)
        return ("value", value.name) if weight is None else ("weight", weight)

    @cached_property
    def output_names(self) -> set[str]:
        return {name for kind, name in self.outputs if kind == "value" and name not in self.inputs}

    @cached_property
    def device(self) -> dict[str, str]:
        """Of every operation."""
        found: dict[str, str] = {}
        mates = {name: group for group in self.aliasing.together for name in group}
        for node in self.operations:
            near = [found[each.name] for each in node.all_input_nodes if each.name in found]
            group = [self.assignment[name] for name in mates.get(node.name, ()) if name in self.assignment]
            later = [self.assignment[each.name] for each in node.users if each.name in self.assignment]
            choices = [self.assignment[node.name]] if node.name in self.assignment else [*group, *near, *later]
            found[node.name] = (choices or [next(iter(self.assignment.values()))])[0]
        return found

    @cached_property
    def before(self) -> dict[str, set[str]]:
        """Operations that each waits for: what makes its inputs final, and what keeps the order of writes."""
        return {
            node.name: {
                self.aliasing.final.get(each.name, each.name) if self._is_late(each, node) else each.name
                for each in node.all_input_nodes
                if each.op == "call_function"
            }
            | self.aliasing.after.get(node.name, frozenset())
            for node in self.operations
        }

    def _is_late(self, value: Node, reader: Node) -> bool:
        """Whether it is read after the last write."""
        last = self.aliasing.final.get(value.name)
        return last is not None and last in self.aliasing.after.get(reader.name, ())

    @cached_property
    def places(self) -> dict[str, Place]:
        return place_in_segments([node.name for node in self.operations], self.device, self.before)

    @cached_property
    def places_before(self) -> dict[Place, set[Place]]:
        found: dict[Place, set[Place]] = {place: set() for place in self.places.values()}
        for operation, place in self.places.items():
            found[place] |= {self.places[other] for other in self.before[operation]} - {place}
        return found

    @cached_property
    def levels(self) -> dict[Place, int]:
        return levels_of(self.places_before, self.places_before)

    @cached_property
    def devices(self) -> tuple[str, ...]:
        """By where they come first in the way of the data."""
        return tuple(dict.fromkeys(device for device, _ in in_order(self.places_before, self.places_before)))

    # -- what is refused --------------------------------------------------------------------------------------------------

    def check(self, assignment: Mapping[str, str]) -> None:
        known = {node.name for node in self.operations}
        strange = [name for name in assignment if name not in known]
        if strange:
            raise UsageError(f"the network has no operation {strange[0]!r}", f"it has {_some(sorted(known))}")
        if not known:
            raise UsageError("the network has no operations")
        for group in self.aliasing.together:
            devices = {self.device[name]: name for name in sorted(group)}
            if len(devices) > 1:
                names = " and ".join(f"{name} on {device}" for device, name in list(devices.items())[:2])
                raise UsageError(
                    f"{names} belong together: one is a part of the other's result, or changes it in place",
                    f"one device for all of {_some(sorted(group))}",
                )
            if self.loss and len({self.places[name] for name in group}) > 1:
                raise UsageError(
                    f"training cannot leave and return to {next(iter(devices))} between {_some(sorted(group))}",
                    "choose a contiguous distribution",
                )

    # -- stages -----------------------------------------------------------------------------------------------------------

    def stage(self, device: str) -> Stage:
        segments = tuple(self._segment((device, number)) for number in range(self._count(device)))
        read = {name for segment in segments for name in segment.inputs}
        made = {name for name, where in self.device.items() if where == device}
        weights = {name: self.weight_names[name] for segment in segments for name in segment.weights}
        changing = {name for name in weights if self.nodes[name].target in self.aliasing.written_weights}
        return Stage(
            device=device,
            segments=segments,
            sources={name: self.device.get(name, CONTROLLER) for name in sorted(read - made)},
            readers={name: tuple(readers) for name in sorted(made) if (readers := self._readers(name, device))},
            weights=weights,
            written_weights=tuple(sorted({weights[name] for name in changing})),
            volatile=tuple(sorted(self.aliasing.volatile & made)),
            in_order=sum(bool(changing & set(segment.weights)) for segment in segments) > 1,
        )

    def _count(self, device: str) -> int:
        return 1 + max(number for other, number in self.places.values() if other == device)

    def _segment(self, place: Place) -> Segment:
        inside = self._members[place]
        names = {node.name for node in inside}
        read = dict.fromkeys(each for node in inside for each in node.all_input_nodes if each.name not in names)
        values = tuple(each.name for each in read if each.op in ("placeholder", "call_function"))
        weights = tuple(each.name for each in read if each.name in self.weight_names)
        return Segment(
            inputs=values,
            weights=weights,
            outputs=tuple(node.name for node in inside if self._leaves(node)),
            publishes=tuple(self._published[place]),
            after=tuple(sorted(number for device, number in self.places_before[place] if device == place[0])),
            level=self.levels[place],
            code=encode(inside, self.module),
        )

    def _leaves(self, node: Node) -> bool:
        """Whether anything outside of its segment reads it."""
        others = any(
            self.places.get(user.name, self.places[node.name]) != self.places[node.name] for user in node.users
        )
        return others or node.name in self.output_names

    @cached_property
    def _members(self) -> dict[Place, list[Node]]:
        found: dict[Place, list[Node]] = defaultdict(list)
        for node in self.operations:
            found[self.places[node.name]].append(node)
        return found

    @cached_property
    def _published(self) -> dict[Place, list[str]]:
        """What can be sent when a segment has run: values are final only after the last write to their memory."""
        found: dict[Place, list[str]] = defaultdict(list)
        for node in self.operations:
            if self._readers(node.name, self.device[node.name]):
                found[self.places[self.aliasing.final.get(node.name, node.name)]].append(node.name)
        return found

    def _readers(self, value: str, device: str) -> list[str]:
        users = {self.device[user.name] for user in self.nodes[value].users if user.name in self.device} - {device}
        found = [each for each in self.devices if each in users]
        return [*found, CONTROLLER] if value in self.output_names else found


def _canonical_names(module: GraphModule) -> dict[str, str]:
    """Names of tensors, by each name that operators use; the same tensor under two names is one weight."""
    first: dict[int, str] = {}
    found: dict[str, str] = defaultdict(str)
    for node in module.graph.nodes:
        value = _attribute(module, str(node.target)) if node.op == "get_attr" else None
        if isinstance(value, torch.Tensor):
            found[str(node.target)] = first.setdefault(id(value), str(node.target))
        elif value is not None and not isinstance(value, GraphModule):
            raise UsageError(f"the network holds a {type(value).__name__} ({node.target}), which cannot be sent")
    return dict(found)


def _attribute(module: GraphModule, path: str) -> Any:
    found: Any = module
    for name in path.split("."):
        found = getattr(found, name)
    return found


def _some(names: Iterable[str]) -> str:
    listed = list(names)
    more = f" and {len(listed) - _MANY} more" if len(listed) > _MANY else ""
    return ", ".join(listed[:_MANY]) + more
