"""What is free on every node, as arrays; pods of equal requests are one type. Amounts are whole numbers, kept as floats."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tonnage.allocate.packing.pods import WHOLE_GPU_MILLI, Node, Pod, capacity_milli

Floats = NDArray[np.float64]
Indices = NDArray[np.int64]
Mask = NDArray[np.bool_]


@dataclass(frozen=True)
class PodTypes:
    """The distinct requests of a list of pods, and how often each occurs."""

    cpu_milli: Floats
    memory_mib: Floats
    gpu_count: Indices
    gpu_milli: Floats
    demand_milli: Floats
    count: Floats
    accepts: Mask  # [type, model]
    of_pod: Indices  # the type of each pod of the list

    @classmethod
    def of(cls, pods: tuple[Pod, ...], models: tuple[str, ...]) -> PodTypes:
        requests = [(p.cpu_milli, p.memory_mib, p.gpu_count, p.gpu_milli, tuple(sorted(p.models))) for p in pods]
        counts = Counter(requests)
        index = {request: number for number, request in enumerate(sorted(counts))}
        cpu, memory, gpus, milli, accepted = zip(*index, strict=True)
        return cls(
            cpu_milli=np.array(cpu, float), memory_mib=np.array(memory, float), gpu_count=np.array(gpus, np.int64),
            gpu_milli=np.array(milli, float), demand_milli=np.array(gpus, float) * np.array(milli, float),
            count=np.array([counts[request] for request in index], float),
            accepts=np.array([[not names or model in names for model in models] for names in accepted]),
            of_pod=np.array([index[request] for request in requests], np.int64),
        )  # fmt: skip


@dataclass(frozen=True)
class Kinds:
    """What a node offers when it is empty, one entry for each node."""

    model: Indices
    cpu_milli: Floats
    memory_mib: Floats
    gpu_milli: Floats
    group: Indices  # nodes of one group are alike

    @classmethod
    def of(cls, nodes: tuple[Node, ...], models: tuple[str, ...]) -> Kinds:
        offers = [(models.index(n.model), n.cpu_milli, n.memory_mib, n.gpu_count * WHOLE_GPU_MILLI) for n in nodes]
        groups = {offer: number for number, offer in enumerate(dict.fromkeys(offers))}
        model, cpu, memory, gpu = zip(*offers, strict=True)
        return cls(
            model=np.array(model, np.int64), cpu_milli=np.array(cpu, float), memory_mib=np.array(memory, float),
            gpu_milli=np.array(gpu, float), group=np.array([groups[offer] for offer in offers], np.int64),
        )  # fmt: skip


@dataclass(frozen=True)
class States:
    """What is free on some nodes, as they are or as they would be. A GPU that a node does not have is a full one."""

    node: Indices
    cpu_milli: Floats
    memory_mib: Floats
    gpu_milli: Floats  # [state, GPU]

    def __len__(self) -> int:
        return len(self.node)


@dataclass(frozen=True)
class Options:
    """The states to which a pod could take some nodes: one for each GPU that makes a difference."""

    owner: Indices  # which of the nodes asked for, ascending
    gpu: Indices  # for pods with one GPU; else of no meaning
    after: States


class Cluster:
    """The free room of all nodes while pods are placed."""

    def __init__(self, nodes: tuple[Node, ...], pods: tuple[Pod, ...]) -> None:
        models = tuple(sorted({node.model for node in nodes}))
        self.types = PodTypes.of(pods, models)
        self.kinds = Kinds.of(nodes, models)
        self.cpu_milli, self.memory_mib = self.kinds.cpu_milli.copy(), self.kinds.memory_mib.copy()
        most_gpus = max(node.gpu_count for node in nodes)
        owned = np.arange(most_gpus)[None, :] < np.array([node.gpu_count for node in nodes])[:, None]
        self.gpu_milli: Floats = np.where(owned, float(WHOLE_GPU_MILLI), 0.0)
        self.capacity_milli = capacity_milli(nodes)
        self.version: Indices = np.zeros(len(nodes), np.int64)  # of each node: how many pods it has taken

    def states(self, nodes: Indices) -> States:
        return States(nodes, self.cpu_milli[nodes], self.memory_mib[nodes], self.gpu_milli[nodes])

    def has_gpus(self, pod_type: int) -> Mask:
        """The nodes with GPUs of an accepted model that have room for it, whatever their CPUs and memory."""
        types = self.types
        wide_enough = (self.gpu_milli >= types.gpu_milli[pod_type]).sum(1) >= types.gpu_count[pod_type]
        accepted: Mask = types.accepts[pod_type][self.kinds.model]
        return accepted & wide_enough if types.gpu_count[pod_type] else accepted

    def has_cpus(self, pod_type: int) -> Mask:
        enough: Mask = self.cpu_milli >= self.types.cpu_milli[pod_type]
        return enough

    def has_memory(self, pod_type: int) -> Mask:
        enough: Mask = self.memory_mib >= self.types.memory_mib[pod_type]
        return enough

    def fits(self, pod_type: int) -> Mask:
        return self.has_cpus(pod_type) & self.has_memory(pod_type) & self.has_gpus(pod_type)

    def options(self, pod_type: int, nodes: Indices) -> Options:
        """How these nodes, on each of which the pod fits, could look with it."""
        owner, gpu = self._gpu_choices(pod_type, self.gpu_milli[nodes])
        states = self.states(nodes[owner])
        free, rows, types = states.gpu_milli, np.arange(len(owner)), self.types
        if types.gpu_count[pod_type] == 1:
            free[rows, gpu] -= types.gpu_milli[pod_type]
        elif types.gpu_count[pod_type] > 1:
            taken = np.argsort(free < WHOLE_GPU_MILLI, axis=1, kind="stable")[:, : types.gpu_count[pod_type]]
            free[rows[:, None], taken] -= WHOLE_GPU_MILLI
        after = States(
            states.node, states.cpu_milli - types.cpu_milli[pod_type],
            states.memory_mib - types.memory_mib[pod_type], free,
        )  # fmt: skip
        return Options(owner, gpu, after)

    def _gpu_choices(self, pod_type: int, free: Floats) -> tuple[Indices, Indices]:
        milli = self.types.gpu_milli[pod_type]
        if self.types.gpu_count[pod_type] != 1:
            return np.arange(len(free)), np.zeros(len(free), np.int64)
        choice = free >= milli
        if milli == WHOLE_GPU_MILLI:
            return np.arange(len(free)), choice.argmax(1)
        for gpu in range(1, free.shape[1]):  # two GPUs with as much free are one choice
            choice[:, gpu] &= ~(free[:, :gpu] == free[:, gpu : gpu + 1]).any(1)
        owner, gpus = np.nonzero(choice)
        return owner, gpus

    def whole_gpus(self, pod_type: int, node: int) -> tuple[int, ...]:
        """The GPUs that a pod with several whole ones would get."""
        free = np.flatnonzero(self.gpu_milli[node] >= WHOLE_GPU_MILLI)
        return tuple(int(gpu) for gpu in free[: self.types.gpu_count[pod_type]])

    def place(self, pod_type: int, node: int, gpus: tuple[int, ...]) -> None:
        types = self.types
        self.cpu_milli[node] -= types.cpu_milli[pod_type]
        self.memory_mib[node] -= types.memory_mib[pod_type]
        self.gpu_milli[node, list(gpus)] -= types.gpu_milli[pod_type]
        self.version[node] += 1
