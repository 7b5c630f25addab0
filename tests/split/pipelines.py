"""Small networks and fabrics that several tests share."""

from __future__ import annotations

from math import inf

from tonnage.split.devices import Device, Fabric, Lane, Way
from tonnage.split.network import Network, Operation

MB = 1_000_000


def chain(
    seconds: list[float], output_bytes: int = MB, weight_bytes: int = 10 * MB, *, backward: float = 0.0
) -> Network:
    """Operations one after the other; `backward` times their seconds in training."""
    operations = tuple(
        Operation(
            id=f"op{index}",
            seconds={"any": each},
            backward_seconds={"any": backward * each} if backward else {},
            output_bytes=output_bytes,
            weight_bytes=weight_bytes,
            stash_bytes=2 * MB if backward else 0,
        )
        for index, each in enumerate(seconds)
    )
    edges = tuple((index, index + 1) for index in range(len(seconds) - 1))
    return Network(name="chain", operations=operations, edges=edges, is_training=bool(backward))


def star(speeds: list[float], rate: float = 1e9, memory_bytes: float = inf, watts: float = 100.0) -> Fabric:
    """Devices around a switch, each with one lane out and one in."""
    count = len(speeds)
    devices = tuple(
        Device(
            name=f"n{index}", node=f"n{index}", kind="cpu", speed=speed, memory_bytes=memory_bytes,
            active_watts=watts * speed, idle_watts=watts / 10,
        )
        for index, speed in enumerate(speeds)
    )  # fmt: skip
    lanes = tuple(
        Lane(name=name, bytes_second=rate)
        for index in range(count)
        for name in (f"n{index}->switch", f"switch->n{index}")
    )
    ways = {
        (a, b): Way(lanes=(2 * a, 2 * b + 1), latency_seconds=1e-4)
        for a in range(count)
        for b in range(count)
        if a != b
    }
    return Fabric(devices=devices, lanes=lanes, ways=ways)
