"""How long one event takes in the simulated allocator, on a made-up stream that looks like training.

python benchmarks/allocator/speed.py [--events 200000]
"""

import argparse
import platform
import random
import time
from collections.abc import Callable
from functools import partial

from tonnage.estimate.allocator import CachingAllocator
from tonnage.estimate.replay import replay
from tonnage.units import GIB, KIB, MIB

SETTINGS = ["", "max_split_size_mb:128", "expandable_segments:True", "roundup_power2_divisions:8"]


def training_stream(events: int, seed: int = 0) -> tuple[list[int], list[int]]:
    """Sizes and order: weights stay; each step keeps activations and temporaries forward, frees them backward."""
    choose = random.Random(seed)
    layers = [
        choose.choice([4 * KIB, 64 * KIB, MIB, 3 * MIB, 12 * MIB, 50 * MIB]) + 4 * choose.randrange(1024)
        for _ in range(120)
    ]
    sizes: list[int] = []
    order: list[int] = []

    def allocate(size: int) -> int:
        sizes.append(size)
        order.append(len(sizes) - 1)
        return len(sizes) - 1

    for size in layers:
        allocate(size)
    while len(order) < events:
        kept = []
        for size in layers:
            kept.append(allocate(size))
            order.append(~allocate(size // 2 + 4))
        for size, activation in zip(reversed(layers), reversed(kept), strict=True):
            gradient = allocate(size)
            order.append(~allocate(size * 2))
            order.append(~activation)
            order.append(~gradient)
    return sizes, order


def step_by_step(sizes: list[int], order: list[int]) -> None:
    allocator = CachingAllocator()
    blocks = {}
    for event in order:
        if event >= 0:
            blocks[event] = allocator.allocate(sizes[event])
        else:
            allocator.free(blocks.pop(~event))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--events", type=int, default=200_000)
    events: int = parser.parse_args().events
    sizes, order = training_stream(events)
    print(f"{len(order)} events, python {platform.python_version()}, best of 3")

    def measure(name: str, run: Callable[[], object]) -> None:
        best = min(_seconds(run) for _ in range(3))
        print(f"{name:45} {best / len(order) * 1e9:7.0f} ns/event")

    measure("allocate and free", partial(step_by_step, sizes, order))
    for settings in SETTINGS:
        measure(f"replay {settings}", partial(replay, sizes, order, settings=settings))
    measure("replay with curve, 80 GiB", partial(replay, sizes, order, 80 * GIB, curve=True))


def _seconds(run: Callable[[], object]) -> float:
    start = time.perf_counter()
    run()
    return time.perf_counter() - start


if __name__ == "__main__":
    main()
