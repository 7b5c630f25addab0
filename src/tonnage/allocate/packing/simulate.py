"""Pods arrive one after the other and never leave; a policy places each that fits somewhere, the others are dropped."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tonnage.allocate.packing.arrivals import draw_arrivals
from tonnage.allocate.packing.cluster import Cluster
from tonnage.allocate.packing.fragmentation import Fragmentation
from tonnage.allocate.packing.least_loss import LeastLoss
from tonnage.allocate.packing.pods import Assignment, Node, Pod
from tonnage.allocate.packing.policy import BestFit, Clustering, DotProduct, Policy, RandomFit
from tonnage.allocate.packing.room import Room
from tonnage.errors import UsageError

POLICIES: dict[str, Callable[[Cluster, int], Policy]] = {
    "room": lambda cluster, seed: LeastLoss(Room(cluster), cluster),
    "fgd": lambda cluster, seed: LeastLoss(Fragmentation(cluster), cluster),
    "best-fit": lambda cluster, seed: BestFit(),
    "dot-product": lambda cluster, seed: DotProduct(),
    "clustering": lambda cluster, seed: Clustering(cluster),
    "random": lambda cluster, seed: RandomFit(seed),
}
NEVER, LACKS_GPUS, LACKS_CPUS, LACKS_MEMORY = "never_fits", "gpus", "cpus", "memory"
REASONS = (LACKS_GPUS, LACKS_CPUS, LACKS_MEMORY, NEVER)


@dataclass(frozen=True, kw_only=True)
class Packing:
    """What became of all pods that arrived."""

    seed: int
    allocated_share: float
    arrivals: tuple[int, ...]  # indices into the list of pods
    assignments: tuple[Assignment, ...]
    dropped_gpus: dict[str, float]  # GPU demand of pods that were dropped, by what no node had enough of

    def arrived(self, pods: tuple[Pod, ...]) -> list[Pod]:
        return [pods[index] for index in self.arrivals]


def pack(nodes: tuple[Node, ...], pods: tuple[Pod, ...], policy: str, seed: int) -> Packing:
    """Let pods arrive in the order of this seed until their GPU demand reaches the capacity of the cluster."""
    check_policy(policy)
    cluster = Cluster(nodes, pods)
    demand_milli = cluster.types.demand_milli[cluster.types.of_pod]
    arrivals = draw_arrivals(demand_milli, cluster.capacity_milli, seed)
    never = _never_fitting(cluster)
    chooser, assignments, dropped = POLICIES[policy](cluster, seed), [], dict.fromkeys(REASONS, 0.0)
    for number, pod_type in enumerate(cluster.types.of_pod[arrivals].tolist()):
        fits = cluster.fits(pod_type)
        if fits.any():
            choice = chooser.choose(cluster, pod_type, fits)
            cluster.place(pod_type, choice.node, choice.gpus)
            assignments.append(Assignment(number, choice.node, choice.gpus))
        else:
            reason = NEVER if pod_type in never else _lacking(cluster, pod_type)
            dropped[reason] += float(cluster.types.demand_milli[pod_type]) / 1000
    placed = arrivals[[assignment.arrival for assignment in assignments]]
    return Packing(
        seed=seed, allocated_share=float(demand_milli[placed].sum()) / cluster.capacity_milli,
        arrivals=tuple(arrivals.tolist()), assignments=tuple(assignments), dropped_gpus=dropped,
    )  # fmt: skip


def check_policy(name: str) -> None:
    """Raises `UsageError` if there is no such policy."""
    if name not in POLICIES:
        raise UsageError(f"there is no policy {name!r}", f"policies are {', '.join(POLICIES)}")


def _never_fitting(cluster: Cluster) -> set[int]:
    """Types of pods for which every node is too small even when it is empty."""
    return {pod_type for pod_type in range(len(cluster.types.count)) if not cluster.fits(pod_type).any()}


def _lacking(cluster: Cluster, pod_type: int) -> str:
    has_gpus = cluster.has_gpus(pod_type)
    if not has_gpus.any():
        return LACKS_GPUS
    without_cpus, without_memory = ~cluster.has_cpus(pod_type)[has_gpus], ~cluster.has_memory(pod_type)[has_gpus]
    return LACKS_CPUS if without_cpus.sum() >= without_memory.sum() else LACKS_MEMORY
