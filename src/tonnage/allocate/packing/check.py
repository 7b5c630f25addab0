"""The independent checker: feasibility and allocated share from nodes, arrived pods and assignments alone."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from tonnage.allocate.packing.pods import WHOLE_GPU_MILLI, Assignment, Node, Pod, capacity_milli


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckedPacking:
    """What assignments are worth, and what is wrong with them; no problem: nothing is."""

    allocated_share: float
    problems: tuple[str, ...]


def check_packing(nodes: tuple[Node, ...], arrived: Sequence[Pod], assignments: Iterable[Assignment]) -> CheckedPacking:
    """Add up what every node and GPU holds."""
    found = tuple(assignments)
    problems = [*_repeated(found)]
    for assignment in found:
        problems += _misplaced(arrived[assignment.arrival], nodes[assignment.node], assignment.gpus)
    problems += _overfull(nodes, arrived, found)
    allocated = sum(arrived[assignment.arrival].demand_milli for assignment in found)
    return CheckedPacking(allocated_share=allocated / capacity_milli(nodes), problems=tuple(problems))


def _repeated(assignments: tuple[Assignment, ...]) -> Iterator[str]:
    times = Counter(assignment.arrival for assignment in assignments)
    yield from (f"arrival {arrival} is placed {count} times" for arrival, count in times.items() if count > 1)


def _misplaced(pod: Pod, node: Node, gpus: tuple[int, ...]) -> Iterator[str]:
    if len(set(gpus)) != len(gpus) or len(gpus) != pod.gpu_count:
        yield f"{pod.name} needs {pod.gpu_count} different GPUs and has {list(gpus)}"
    if any(not 0 <= gpu < node.gpu_count for gpu in gpus):
        yield f"{node.name} has {node.gpu_count} GPUs, {pod.name} is on {list(gpus)}"
    if not pod.accepts(node.model):
        yield f"{pod.name} does not accept {node.model}"


def _overfull(nodes: tuple[Node, ...], arrived: Sequence[Pod], assignments: tuple[Assignment, ...]) -> Iterator[str]:
    held: dict[int, list[tuple[Pod, tuple[int, ...]]]] = defaultdict(list)
    for assignment in assignments:
        held[assignment.node].append((arrived[assignment.arrival], assignment.gpus))
    for index, pods in held.items():
        node = nodes[index]
        shares: Counter[int] = Counter()
        for pod, gpus in pods:
            shares.update(dict.fromkeys(gpus, pod.gpu_milli))
        yield from (f"GPU {gpu} of {node.name} holds {milli} thousandths" for gpu, milli in shares.items()
                    if milli > WHOLE_GPU_MILLI)  # fmt: skip
        if sum(pod.cpu_milli for pod, _ in pods) > node.cpu_milli:
            yield f"the pods on {node.name} need more than its {node.cpu_milli} thousandths of CPUs"
        if sum(pod.memory_mib for pod, _ in pods) > node.memory_mib:
            yield f"the pods on {node.name} need more than its {node.memory_mib} MiB"
