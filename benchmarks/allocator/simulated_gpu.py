"""Stands in for a GPU in a dry run of `record_snapshot.py`: the simulated allocator writes a history like PyTorch's.

Segments lie at rising addresses, unlike the simulation's own choice, so that the check has something to reproduce.
"""

import weakref
from typing import Any

from recording import ACTIONS, MARKER_BYTES, OutOfGpuMemory

from tonnage.estimate.allocator import CachingAllocator, OutOfMemory
from tonnage.estimate.blocks import Block, Device
from tonnage.estimate.settings import parse_settings

TOTAL_BYTES = 64 << 30


class Tensor:
    """Something that is freed when nobody holds it."""


class HistoryDevice(Device):
    """Writes down what it gives and takes, and places segments one above the other."""

    def __init__(self, rows: list[list[int]]) -> None:
        super().__init__(None, TOTAL_BYTES)
        self.rows = rows
        self.top = 1 << 40

    def place(self, size: int) -> int:
        self.top += size
        return self.top - size

    def vacate(self, address: int) -> None:
        del self.segments[address]

    def note(self, action: str, address: int, size: int) -> None:
        self.rows.append([ACTIONS.index(action), address, size, 0])


class SimulatedGpu:
    device = "cpu"

    def __init__(self, settings: str) -> None:
        self.settings = settings
        self.rows: list[list[int]] = []
        self.allowed_bytes: int | None = None
        self.allocator = CachingAllocator()

    def start(self, allowed_bytes: int | None) -> None:
        chosen = parse_settings(self.settings)
        self.allowed_bytes = allowed_bytes
        self.allocator = CachingAllocator(
            expandable_segments=chosen.expandable_segments,
            max_split_bytes=chosen.max_split_bytes,
            roundup_power2_divisions=chosen.roundup_power2_divisions,
            garbage_collection_threshold=chosen.garbage_collection_threshold,
            allowed_bytes=allowed_bytes,
        )
        self.allocator.device = HistoryDevice(self.rows)

    def empty(self, size: int, stream: int) -> object:
        try:
            block = self.allocator.allocate(size, stream)
        except OutOfMemory as error:
            self.rows.append([ACTIONS.index("oom"), 0, -(-size // 512) * 512, stream])
            raise OutOfGpuMemory from error
        self.rows.append([ACTIONS.index("alloc"), block.address, size, stream])
        tensor = Tensor()
        weakref.finalize(tensor, self._free, block, block.address, size, stream)
        return tensor

    def _free(self, block: Block, address: int, size: int, stream: int) -> None:
        for action in ("free_requested", "free_completed"):
            self.rows.append([ACTIONS.index(action), address, size, stream])
        self.allocator.free(block)

    def empty_cache(self) -> None:
        self.empty(MARKER_BYTES, 0)
        self.allocator.empty_cache()

    def finish(self) -> dict[str, Any]:
        return {
            "torch": "simulated",
            "gpu": "simulated",
            "device_bytes": TOTAL_BYTES,
            "allowed_bytes": self.allowed_bytes,
            "private_pools": 0,
            "peak_allocated_bytes": self.allocator.peak_allocated_bytes,
            "peak_reserved_bytes": self.allocator.peak_reserved_bytes,
            "allocated_bytes": self.allocator.allocated_bytes,
            "reserved_bytes": self.allocator.reserved_bytes,
            "num_retries": self.allocator.num_retries,
            "num_ooms": self.allocator.num_ooms,
            "events": list(self.rows),
        }
