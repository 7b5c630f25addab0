"""Places each pod where the node loses least, by any measure of what a node's free room is worth.

The worth of a node depends on its own state alone, and a placement changes one node: losses are kept for every type of pod
and node, and only those of changed nodes are computed again when a pod of that type arrives.
"""

from __future__ import annotations

from typing import Protocol

import numpy as np

from tonnage.allocate.packing.cluster import Cluster, Floats, Indices, Mask
from tonnage.allocate.packing.policy import Choice

_ENOUGH_TO_GROUP = 64  # equal nodes are found by sorting, which pays for many


class Measure(Protocol):
    """What free room is worth."""

    def renew(self, cluster: Cluster) -> bool:
        """Look at the whole cluster again, if it is time; true if worths are different now."""
        ...

    def losses(self, cluster: Cluster, pod_type: int, nodes: Indices) -> tuple[Floats, Indices]:
        """What each node would lose by the pod on its best GPU, and that GPU. The pod fits on all of them."""
        ...


class LeastLoss:
    """The node and GPU with the least loss; of equal ones the last."""

    def __init__(self, measure: Measure, cluster: Cluster) -> None:
        self._measure = measure
        shape = (len(cluster.types.count), len(cluster.version))
        self._loss: Floats = np.zeros(shape)
        self._free_milli: Floats = np.zeros(shape)  # of the best GPU: it may have another index on an equal node
        self._version: Indices = np.full(shape, -1, np.int64)  # of the node, when its loss was computed

    def choose(self, cluster: Cluster, pod_type: int, fits: Mask) -> Choice:
        if self._measure.renew(cluster):
            self._version[:] = -1
        stale = np.flatnonzero(fits & (self._version[pod_type] != cluster.version))
        if len(stale):
            self._compute(cluster, pod_type, stale)
        losses = np.where(fits, self._loss[pod_type], np.inf)
        node = len(losses) - 1 - int(losses[::-1].argmin())
        if cluster.types.gpu_count[pod_type] != 1:
            return Choice(node, cluster.whole_gpus(pod_type, node))
        gpu = np.flatnonzero(cluster.gpu_milli[node] == self._free_milli[pod_type, node])[0]
        return Choice(node, (int(gpu),))

    def _compute(self, cluster: Cluster, pod_type: int, nodes: Indices) -> None:
        examples, group = _distinct(cluster, nodes)
        losses, gpus = self._measure.losses(cluster, pod_type, examples)
        self._loss[pod_type, nodes] = losses[group]
        self._free_milli[pod_type, nodes] = cluster.gpu_milli[examples, gpus][group]
        self._version[pod_type, nodes] = cluster.version[nodes]


def _distinct(cluster: Cluster, nodes: Indices) -> tuple[Indices, Indices]:
    """One node for each state that occurs, and for each node the number of its state."""
    if len(nodes) < _ENOUGH_TO_GROUP:
        return nodes, np.arange(len(nodes))
    columns = (
        cluster.kinds.group[nodes],
        cluster.cpu_milli[nodes],
        cluster.memory_mib[nodes],
        cluster.gpu_milli[nodes],
    )
    rows = np.ascontiguousarray(np.column_stack(columns))
    keys = rows.view(np.dtype((np.void, rows.itemsize * rows.shape[1]))).ravel()
    _, first, group = np.unique(keys, return_index=True, return_inverse=True)
    return nodes[first], group


def best_of_each(owner: Indices, losses: Floats, gpus: Indices) -> tuple[Floats, Indices]:
    """Of the options of each node the one with the least loss. Owners ascend from 0 without gaps."""
    order = np.lexsort((losses, owner))
    first = np.flatnonzero(np.diff(owner[order], prepend=-1))
    return losses[order][first], gpus[order][first]
