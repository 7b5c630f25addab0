"""Fragmentation gradient descent (Weng et al., USENIX ATC 2023): the node whose expected fragmentation grows least.

A node's fragmentation for one type of pod is the part of its free GPUs that such a pod could not use; its expectation is
over the types of the workload. As in the simulator of its authors, memory does not count and gains are compared in steps.
"""

from __future__ import annotations

import numpy as np

from tonnage.allocate.packing.cluster import Cluster, Floats, Indices, States
from tonnage.allocate.packing.least_loss import best_of_each

_STEPS = 100  # scores from 0 to 100, as schedulers of Kubernetes have them


class Fragmentation:
    """Expected GPU thousandths that the next pod could not use."""

    def __init__(self, cluster: Cluster) -> None:
        types = cluster.types
        self._types = types
        self._frequency = types.count / types.count.sum()
        self._levels, self._level_of_type = np.unique(types.gpu_milli, return_inverse=True)
        self._accepts = (types.accepts & (types.gpu_count > 0)[:, None])[:, cluster.kinds.model].T  # [node, type]

    def renew(self, cluster: Cluster) -> bool:  # noqa: ARG002  (the expectation does not depend on the cluster)
        return False

    def losses(self, cluster: Cluster, pod_type: int, nodes: Indices) -> tuple[Floats, Indices]:
        options = cluster.options(pod_type, nodes)
        growth = self.of(options.after) - self.of(cluster.states(nodes))[options.owner]
        score = np.floor(_STEPS / (1 + np.exp(growth / 1000)))
        return best_of_each(options.owner, -score, options.gpu)

    def of(self, states: States) -> Floats:
        too_narrow = states.gpu_milli[:, :, None] < self._levels
        wide_enough = (~too_narrow).sum(1)[:, self._level_of_type] >= self._types.gpu_count
        usable = wide_enough & (states.cpu_milli[:, None] >= self._types.cpu_milli) & self._accepts[states.node]
        narrow_milli = np.einsum("sg,sgl->sl", states.gpu_milli, too_narrow.astype(float))[:, self._level_of_type]
        unusable = np.where(usable, narrow_milli, states.gpu_milli.sum(1)[:, None])
        expected: Floats = unusable @ self._frequency
        return expected
