"""An assignment looked at from outside: what its latency is, and which rules it breaks.

Shares nothing with the solvers but the statement of the problem. A place is an accelerator with its whole subgraph, or one
node of the processors; places that wait for each other in a circle have no order.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from graphlib import CycleError, TopologicalSorter
from math import isfinite

from tonnage.split.latency.problem import CPU, LatencyProblem

Place = tuple[str, int]  # a whole accelerator, or one node of the processors


def latency_of(problem: LatencyProblem, assignment: Sequence[int]) -> float:
    """When the last node is finished. Raises `CycleError` where subgraphs wait for each other."""
    places = [_place(node, device) for node, device in enumerate(assignment)]
    waits: dict[Place, set[Place]] = {place: set() for place in places}
    for source, target in problem.edges:
        if places[source] != places[target]:
            waits[places[target]].add(places[source])
    finish: dict[Place, float] = {}
    for place in TopologicalSorter(waits).static_order():
        start = max((finish[other] for other in waits[place]), default=0.0)
        finish[place] = start + _duration(problem, assignment, place)
    return max(finish.values(), default=0.0)


def broken_rules(problem: LatencyProblem, assignment: Sequence[int]) -> list[str]:
    """One sentence for each rule that the assignment breaks; none for a good one."""
    if len(assignment) != problem.nodes:
        return [f"{len(assignment)} devices are given for {problem.nodes} nodes"]
    unknown = sorted({device for device in assignment if device not in range(CPU, problem.accelerators)})
    if unknown:
        return [f"there is no accelerator {device}" for device in unknown]
    found = [*_too_full(problem, assignment), *_unsupported(problem, assignment), *_parted(problem, assignment)]
    found += _not_contiguous(problem, assignment)
    try:
        latency_of(problem, assignment)
    except CycleError:
        found.append("subgraphs wait for each other in a circle")
    return found


def _place(node: int, device: int) -> Place:
    return ("processors", node) if device == CPU else ("accelerator", device)


def _duration(problem: LatencyProblem, assignment: Sequence[int], place: Place) -> float:
    kind, number = place
    if kind == "processors":
        return problem.cpu_seconds[number]
    inside = {node for node, device in enumerate(assignment) if device == number}
    incoming = {source for source, target in problem.edges if target in inside and source not in inside}
    outgoing = {source for source, target in problem.edges if source in inside and target not in inside}
    moved = sum(problem.transfer_seconds[node] for node in (*incoming, *outgoing))
    return moved + sum(problem.accelerator_seconds[node] for node in inside)


def _too_full(problem: LatencyProblem, assignment: Sequence[int]) -> list[str]:
    used: dict[int, float] = defaultdict(float)
    for node, device in enumerate(assignment):
        used[device] += problem.size_bytes[node]
    return [
        f"accelerator {device} holds {used[device]:.0f} bytes, more than {problem.memory_bytes:.0f}"
        for device in sorted(used)
        if device != CPU and used[device] > problem.memory_bytes
    ]


def _unsupported(problem: LatencyProblem, assignment: Sequence[int]) -> list[str]:
    return [
        f"node {node} cannot run on an accelerator"
        for node, device in enumerate(assignment)
        if device != CPU and not isfinite(problem.accelerator_seconds[node])
    ]


def _parted(problem: LatencyProblem, assignment: Sequence[int]) -> list[str]:
    devices: dict[int, set[int]] = defaultdict(set)
    for node, device in enumerate(assignment):
        devices[problem.classes[node]].add(device)
    return [f"class {name} is on {len(where)} devices" for name, where in sorted(devices.items()) if len(where) > 1]


def _not_contiguous(problem: LatencyProblem, assignment: Sequence[int]) -> list[str]:
    """A path that leaves an accelerator must not come back to it."""
    consumers: dict[int, list[int]] = defaultdict(list)
    for source, target in problem.edges:
        consumers[source].append(target)
    found = []
    for device in sorted(set(assignment) - {CPU}):
        inside = {node for node, where in enumerate(assignment) if where == device}
        left = [target for node in inside for target in consumers[node] if target not in inside]
        if _reach(left, consumers) & inside:
            found.append(f"the subgraph of accelerator {device} is not contiguous")
    return found


def _reach(start: list[int], consumers: dict[int, list[int]]) -> set[int]:
    seen, waiting = set(start), list(start)
    while waiting:
        new = set(consumers[waiting.pop()]) - seen
        seen |= new
        waiting += new
    return seen
