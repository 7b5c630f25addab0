"""What is packed, and where: pods and the nodes of a cluster, as the openb files describe them."""

from __future__ import annotations

from dataclasses import dataclass

WHOLE_GPU_MILLI = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """A machine with GPUs of one model, or with none."""

    name: str
    cpu_milli: int
    memory_mib: int
    gpu_count: int
    model: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Pod:
    """A request: several whole GPUs, a share of one GPU, or no GPU at all."""

    name: str
    cpu_milli: int
    memory_mib: int
    gpu_count: int
    gpu_milli: int  # of each GPU
    models: frozenset[str] = frozenset()  # GPU models that will do; empty: any

    @property
    def demand_milli(self) -> int:
        return self.gpu_count * self.gpu_milli

    def accepts(self, model: str) -> bool:
        return not self.models or model in self.models


@dataclass(frozen=True, slots=True)
class Assignment:
    """Where the pod that arrived as number `arrival` runs: a node by its index, and indices of GPUs in it."""

    arrival: int
    node: int
    gpus: tuple[int, ...]


def capacity_milli(nodes: tuple[Node, ...]) -> int:
    """All GPUs of the cluster, in thousandths."""
    return WHOLE_GPU_MILLI * sum(node.gpu_count for node in nodes)
