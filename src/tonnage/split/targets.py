"""What a distribution can be asked for, and how each is read from its metrics: less is better for all of them."""

from __future__ import annotations

from enum import StrEnum

from tonnage.split.metrics import Metrics


class Target(StrEnum):
    THROUGHPUT = "throughput"  # the period of a stream of samples
    LATENCY = "latency"  # of one sample
    ENERGY = "energy"  # of one sample
    MEMORY = "memory"  # the share that the fullest device holds
    NODES = "nodes"  # devices in use
    STEP = "step"  # a training step

    @property
    def unit(self) -> str:
        return _UNITS[self]


_UNITS = {
    Target.THROUGHPUT: "s",
    Target.LATENCY: "s",
    Target.ENERGY: "J",
    Target.MEMORY: "of a device",
    Target.NODES: "devices",
    Target.STEP: "s",
}


def value_of(target: Target, metrics: Metrics) -> float:
    """Of a distribution's metrics."""
    values = {
        Target.THROUGHPUT: metrics.period_seconds,
        Target.LATENCY: metrics.latency_seconds,
        Target.ENERGY: metrics.energy_joules,
        Target.MEMORY: metrics.memory_share,
        Target.NODES: float(metrics.devices),
        Target.STEP: metrics.step_seconds,
    }
    return values[target]
