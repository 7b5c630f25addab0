"""What a network is split over: devices, and the ways between them with the resources that their traffic shares."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import inf


@dataclass(frozen=True, slots=True, kw_only=True)
class Device:
    """A GPU or the processors of a node."""

    name: str  # the place in the cluster: `box-0` or `box-0/gpu3`
    node: str
    kind: str  # `cpu`, or the GPU as the catalogue calls it
    speed: float = 1.0  # times that of the kind; costs divide by it
    memory_bytes: float = inf
    active_watts: float = 0.0
    idle_watts: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Lane:
    """A resource that traffic shares: a link, or one direction of it between two places."""

    name: str
    bytes_second: float
    ends: tuple[str, ...] = ()  # the places that it joins, where they are known; of a direction in its order


@dataclass(frozen=True, slots=True, kw_only=True)
class Way:
    """How data gets from one device to another."""

    lanes: tuple[int, ...]  # positions in the fabric's lanes
    latency_seconds: float = 0.0


NO_WAY = Way(lanes=(), latency_seconds=inf)
HERE = Way(lanes=())


@dataclass(frozen=True, slots=True, kw_only=True)
class End:
    """The node where inputs come from or outputs go, and the way between it and each device: `HERE` for the device that
    is its processors."""

    node: str
    ways: Mapping[int, Way] = field(hash=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Fabric:
    """Devices and the way for each ordered pair of them that are connected. Ends are None where nobody says where inputs
    come from or outputs go."""

    devices: tuple[Device, ...]
    lanes: tuple[Lane, ...] = ()
    ways: Mapping[tuple[int, int], Way] = field(default_factory=dict, hash=False)
    inputs: End | None = None
    outputs: End | None = None

    def way_between(self, source: str, target: str) -> Way | None:
        """By the names of devices; None where no way is left."""
        place = {device.name: index for index, device in enumerate(self.devices)}
        return self.ways.get((place.get(source, -1), place.get(target, -1)))

    def bytes_second(self, way: Way) -> float:
        """Of its narrowest lane."""
        return min((self.lanes[lane].bytes_second for lane in way.lanes), default=inf)

    def transfer_seconds(self, source: int, target: int, nbytes: int) -> float:
        """Of one message on quiet links: the narrowest of them decides. Infinite where no way is left."""
        if source == target:
            return 0.0
        return self.way_seconds(self.ways.get((source, target), NO_WAY), nbytes)

    def way_seconds(self, way: Way, nbytes: int) -> float:
        """Of one message on this way."""
        return way.latency_seconds + nbytes / self.bytes_second(way)
