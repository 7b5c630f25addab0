"""Small networks on small clusters, and pages of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tonnage.split.devices import Device, Fabric, Lane, Way
from tonnage.split.distributing import best_for, front
from tonnage.split.network import Network, Operation
from tonnage.split.page import render_page
from tonnage.split.pool import Pool
from tonnage.split.targets import Target

HOSTILE = "</script><img src=x onerror=alert(1)>\x00\ud800\u202e\"'&"
AXES = (Target.THROUGHPUT, Target.LATENCY)


def make_network(edges: Sequence[tuple[int, int]], names: Sequence[str] = (), *, is_training: bool = False) -> Network:
    count = max((end for edge in edges for end in edge), default=0) + 1
    return Network(
        name="net",
        operations=tuple(
            Operation(
                id=f"op{position}",
                name=names[position] if names else "",
                kind="aten::linear",
                seconds={"any": 0.01},
                backward_seconds={"any": 0.02} if is_training else {},
                weight_bytes=1000,
                stash_bytes=10 if is_training else 0,
                output_bytes=1_000_000,
            )
            for position in range(count)
        ),
        edges=tuple(edges),
        is_training=is_training,
    )


def chain(count: int, **options: Any) -> Network:
    return make_network([(each, each + 1) for each in range(count - 1)], **options)


def make_fabric(count: int, names: Sequence[str] = ()) -> Fabric:
    """Every device behind a port of its own, which sends and receives a gigabyte a second."""
    devices = tuple(
        Device(
            name=names[place] if names else f"box-{place}", node=f"box-{place}", kind="cpu", memory_bytes=1e9,
            active_watts=100, idle_watts=20,
        )
        for place in range(count)
    )  # fmt: skip
    lanes = [Lane(name=f"{device.name}->tor", bytes_second=1e9) for device in devices]
    lanes += [Lane(name=f"tor->{device.name}", bytes_second=1e9) for device in devices]
    ways = {
        (start, end): Way(lanes=(start, count + end), latency_seconds=1e-4)
        for start in range(count)
        for end in range(count)
        if start != end
    }
    return Fabric(devices=devices, lanes=tuple(lanes), ways=ways)


def whole_page(pool: Pool, **options: Any) -> str:
    best = [best_for(pool, target) for target in (Target.THROUGHPUT, Target.LATENCY, Target.ENERGY)]
    return render_page(pool, best, front=front(pool, AXES), axes=AXES, **options)
