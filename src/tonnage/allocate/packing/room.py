"""Room for the pods to come: how many pods of each type a node could still take, weighed by how rare such room has become.

A placement costs the expected share of the next pod's room that it takes away, over the types of the workload and over the
whole cluster: the last nodes for an eight-GPU pod are dear, one of thousands of free GPUs is cheap. To that comes a penalty
for nodes that keep GPUs but run out of CPUs or memory for them.
"""

from __future__ import annotations

import numpy as np

from tonnage.allocate.packing.cluster import Cluster, Floats, Indices, States
from tonnage.allocate.packing.least_loss import best_of_each

# Tried with seed 100 on the openb list and six variants of it: 0.3 loses 0.4 % on the list itself, 30 as much on lists that
# are short of CPUs.
_IMBALANCE_WEIGHT = 3.0
_RENEWALS = 8  # rarity is looked at again when pods were placed for one in so many nodes


class Room:
    """Worth of free room, in GPUs: all that is free in the cluster is worth as many GPUs as are free."""

    def __init__(self, cluster: Cluster) -> None:
        types = cluster.types
        asking = np.flatnonzero(types.gpu_count)  # pods without GPUs strand none
        self._cpu_milli, self._memory_mib = types.cpu_milli[asking], types.memory_mib[asking]
        self._gpu_count = types.gpu_count[asking]
        self._levels, self._level_of_type = np.unique(types.gpu_milli[asking], return_inverse=True)
        self._frequency = types.count[asking] / types.count[asking].sum()
        self._accepts = types.accepts[asking][:, cluster.kinds.model].T.astype(float)  # [node, type]
        self._kinds = cluster.kinds
        self._gpus = cluster.kinds.gpu_milli / 1000
        self._worth: Floats = self._frequency
        self._renewed_at = -len(cluster.version)

    def renew(self, cluster: Cluster) -> bool:
        placed = int(cluster.version.sum())
        if (placed - self._renewed_at) * _RENEWALS < len(cluster.version):
            return False
        self._renewed_at = placed
        left = self.pods(cluster.states(np.arange(len(cluster.version)))).sum(0)
        worth = self._frequency / np.maximum(left, 1)
        free_gpus = cluster.gpu_milli.sum() / 1000
        self._worth = worth * free_gpus / max(float(worth @ left), 1e-9)
        return True

    def losses(self, cluster: Cluster, pod_type: int, nodes: Indices) -> tuple[Floats, Indices]:
        options = cluster.options(pod_type, nodes)
        losses = self.of(cluster.states(nodes))[options.owner] - self.of(options.after)
        return best_of_each(options.owner, losses, options.gpu)

    def of(self, states: States) -> Floats:
        worth: Floats = self.pods(states) @ self._worth - _IMBALANCE_WEIGHT * self.imbalance(states)
        return worth

    def pods(self, states: States) -> Floats:
        """How many pods of each type the nodes could take, if they took no others."""
        by_level = np.floor(states.gpu_milli[:, :, None] / self._levels).sum(1)
        number = by_level[:, self._level_of_type]
        several = np.flatnonzero(self._gpu_count > 1)
        number[:, several] = np.floor(number[:, several] / self._gpu_count[several])
        number = np.minimum(number, _times(states.cpu_milli, self._cpu_milli))
        number = np.minimum(number, _times(states.memory_mib, self._memory_mib))
        pods: Floats = number * self._accepts[states.node]
        return pods

    def imbalance(self, states: States) -> Floats:
        """GPUs, weighed by the square of how far the free share of CPUs or memory lies below that of GPUs."""
        kinds, node = self._kinds, states.node
        gpus = states.gpu_milli.sum(1) / np.maximum(kinds.gpu_milli[node], 1)
        cpus = states.cpu_milli / np.maximum(kinds.cpu_milli[node], 1)
        memory = states.memory_mib / np.maximum(kinds.memory_mib[node], 1)
        short = np.maximum(gpus - np.minimum(cpus, memory), 0)
        imbalance: Floats = self._gpus[node] * short**2
        return imbalance


def _times(free: Floats, needed: Floats) -> Floats:
    """How often each need goes into each amount that is free; a need of nothing very often, also into nothing."""
    times: Floats = np.floor((free[:, None] + 0.5) / np.maximum(needed, 1e-6))  # a half more changes no whole number
    return times
