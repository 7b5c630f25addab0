"""Nodes and links as if they had been measured, and agents that answer what they are told to."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from tonnage.errors import Unreachable
from tonnage.split.observations import Spread
from tonnage.stages.agent_client import SeenGpu, SeenNode, SeenTransfer
from tonnage.stages.machine import Pace
from tonnage.stages.measuring import SeenLink

GIB = 2**30


def pace(score: float) -> Pace:
    return Pace(flops_second=score, copy_bytes_second=score)


def node(score: float = 1.0, *, memory_bytes: int = 8 * GIB, gpus: int = 0, now: float = 1.0) -> SeenNode:
    """`now` is the part of its best speed that it has."""
    return SeenNode(
        cores=4,
        memory_bytes=memory_bytes,
        available_bytes=memory_bytes // 2,
        load=0.25,
        gpus=tuple(SeenGpu(name="T4", memory_bytes=16, available_bytes=7, load=0.5) for _ in range(gpus)),
        paces=(pace(score * now),) * 3,
        best_pace=pace(score),
    )


def link(bytes_second: float = 1e6, latency_seconds: float = 1e-4) -> SeenLink:
    return SeenLink(
        bandwidth_bytes_second=Spread(median=bytes_second, p95=bytes_second / 2),
        latency_seconds=Spread(median=latency_seconds, p95=latency_seconds * 2),
    )


@dataclass
class FakeAgent:
    """Sends at the rates given for addresses; without one, that agent does not answer."""

    address: str
    rates: Mapping[str, float] = field(default_factory=dict)
    node: SeenNode | None = None
    busy: list[str] = field(default_factory=list)

    def look(self, paces: int) -> SeenNode:  # noqa: ARG002
        if self.node is None:
            raise Unreachable(f"the agent at {self.address} does not answer: gone")
        return self.node

    def send(self, target: str, seconds: float, echoes: int) -> SeenTransfer:  # noqa: ARG002
        self.busy.append(target)
        if target not in self.rates:
            raise Unreachable(f"the agent at {target} does not answer: gone")
        return SeenTransfer(bytes_second=self.rates[target], round_trip_seconds=(2e-4,) * echoes)
