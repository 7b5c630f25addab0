"""The order in which pods arrive: the list shuffled, then pods drawn from it, until their GPU demand is the capacity."""

from __future__ import annotations

import numpy as np

from tonnage.allocate.packing.cluster import Floats, Indices


def draw_arrivals(demand_milli: Floats, capacity_milli: int, seed: int) -> Indices:
    """Indices into the list of pods, whose demands are given. The last pod is the one that reaches the capacity."""
    random = np.random.default_rng(seed)
    parts = [random.permutation(len(demand_milli))]
    arrived = float(demand_milli.sum())
    while arrived < capacity_milli:
        about = int((capacity_milli - arrived) / demand_milli.mean())
        parts.append(random.integers(0, len(demand_milli), about + len(demand_milli)))
        arrived += float(demand_milli[parts[-1]].sum())
    pods = np.concatenate(parts)
    last = int(np.searchsorted(np.cumsum(demand_milli[pods]), capacity_milli))
    return pods[: last + 1]
