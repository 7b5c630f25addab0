"""What a policy is, and the simple ones that others are compared with."""

from __future__ import annotations

from typing import NamedTuple, Protocol

import numpy as np

from tonnage.allocate.packing.cluster import Cluster, Floats, Indices, Mask
from tonnage.allocate.packing.pods import WHOLE_GPU_MILLI


class Choice(NamedTuple):
    """A node, and which of its GPUs."""

    node: int
    gpus: tuple[int, ...]


class Policy(Protocol):
    """Decides on one pod after the other; knows the workload's types and the cluster, but not who comes next."""

    def choose(self, cluster: Cluster, pod_type: int, fits: Mask) -> Choice:
        """Where the pod goes. `fits` has at least one node."""
        ...


class RandomFit:
    """Any node on which the pod fits, any GPU that is wide enough."""

    def __init__(self, seed: int) -> None:
        self._random = np.random.default_rng(seed)

    def choose(self, cluster: Cluster, pod_type: int, fits: Mask) -> Choice:
        node = int(self._random.choice(np.flatnonzero(fits)))
        if cluster.types.gpu_count[pod_type] != 1:
            return Choice(node, cluster.whole_gpus(pod_type, node))
        wide_enough = np.flatnonzero(cluster.gpu_milli[node] >= cluster.types.gpu_milli[pod_type])
        return Choice(node, (int(self._random.choice(wide_enough)),))


class BestFit:
    """The node with the least left of CPUs and GPUs, counted in shares of the largest node; its fullest GPU."""

    def choose(self, cluster: Cluster, pod_type: int, fits: Mask) -> Choice:
        return _choose_lowest(cluster, pod_type, fits, _left(cluster))


class DotProduct:
    """The node whose free resources point most in the direction of the pod's request, as in Tetris; its fullest GPU."""

    def choose(self, cluster: Cluster, pod_type: int, fits: Mask) -> Choice:
        types = cluster.types
        request = np.array([types.cpu_milli[pod_type], types.memory_mib[pod_type], types.demand_milli[pod_type]])
        alignment = _free_shares(cluster) @ (request / _largest(cluster))
        return _choose_lowest(cluster, pod_type, fits, -alignment)


class Clustering:
    """A node that runs pods with as many GPUs already, then one without such pods; among them the best fit."""

    def __init__(self, cluster: Cluster) -> None:
        types = cluster.types
        sharing = (types.gpu_count == 1) & (types.gpu_milli < WHOLE_GPU_MILLI)
        families, self._family = np.unique(np.where(sharing, -1, types.gpu_count), return_inverse=True)
        self._pods: Indices = np.zeros((len(cluster.version), len(families)), np.int64)  # [node, family]

    def choose(self, cluster: Cluster, pod_type: int, fits: Mask) -> Choice:
        if not cluster.types.gpu_count[pod_type]:
            return _choose_lowest(cluster, pod_type, fits, _left(cluster))
        relatives = self._pods[:, self._family[pod_type]]
        strangers = self._pods.sum(1) - relatives
        strangeness = np.where(strangers > 0, 2, np.where(relatives > 0, 0, 1))
        choice = _choose_lowest(cluster, pod_type, fits, 10.0 * strangeness + _left(cluster))
        self._pods[choice.node, self._family[pod_type]] += 1
        return choice


def _largest(cluster: Cluster) -> Floats:
    kinds = cluster.kinds
    largest: Floats = np.array([kinds.cpu_milli.max(), kinds.memory_mib.max(), kinds.gpu_milli.max()])
    return np.maximum(largest, 1)


def _free_shares(cluster: Cluster) -> Floats:
    free = np.column_stack([cluster.cpu_milli, cluster.memory_mib, cluster.gpu_milli.sum(1)])
    shares: Floats = free / _largest(cluster)
    return shares


def _left(cluster: Cluster) -> Floats:
    shares = _free_shares(cluster)
    left: Floats = shares[:, 0] + shares[:, 2]
    return left


def _choose_lowest(cluster: Cluster, pod_type: int, fits: Mask, score: Floats) -> Choice:
    node = int(np.where(fits, score, np.inf).argmin())
    if cluster.types.gpu_count[pod_type] != 1:
        return Choice(node, cluster.whole_gpus(pod_type, node))
    free = cluster.gpu_milli[node]
    return Choice(node, (int(np.where(free >= cluster.types.gpu_milli[pod_type], free, np.inf).argmin()),))
