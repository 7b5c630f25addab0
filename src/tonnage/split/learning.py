"""A network whose costs are those that a run observed: what a device took, laid on the operations that ran there."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from tonnage.errors import UsageError
from tonnage.split.metrics import Metrics
from tonnage.split.network import ANY, Network, Operation

Assignment = Mapping[str | int, str]


def learned(
    network: Network, assignment: Assignment, kinds: Mapping[str, str], metrics: Metrics, seconds: Mapping[str, float]
) -> Network:
    """The network with the seconds of each device's operations scaled so that they add up to what was observed there.

    `kinds` is the kind of each device, `metrics` those of the distribution that ran, `seconds` the computing of one sample
    that was measured. Costs on other kinds of devices stay as they are.
    """
    factors = {
        device: seconds[device] / busy for device, busy in metrics.busy_seconds.items() if seconds.get(device) and busy
    }
    operations = []
    for operation in network.operations:
        device = assignment[operation.id]
        if device not in kinds:
            raise UsageError(f"operation {operation.id} ran on {device}, of which nothing is known")
        operations.append(_scaled(operation, kinds[device], factors.get(device, 1.0)))
    return replace(network, operations=tuple(operations))


def _scaled(operation: Operation, kind: str, factor: float) -> Operation:
    def scale(costs: Mapping[str, float]) -> dict[str, float]:
        key = kind if kind in costs else ANY
        return {name: value * factor if name == key else value for name, value in costs.items()}

    return replace(operation, seconds=scale(operation.seconds), backward_seconds=scale(operation.backward_seconds))
