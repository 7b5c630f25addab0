"""Runs a recorded order of allocations and releases through the simulated allocator and tells what came of it."""

from array import array
from collections.abc import Sequence
from dataclasses import dataclass

from tonnage.estimate.allocator import CachingAllocator, OutOfMemory
from tonnage.estimate.blocks import Block
from tonnage.estimate.settings import AllocatorSettings

EMPTY_CACHE = 1 << 62  # in an order: `torch.cuda.empty_cache()`, at a number that no block has


@dataclass(frozen=True, slots=True, kw_only=True)
class Replay:
    """What a replay found. Positions count events from 0; a peak's position is the event that first reached it, -1
    if nothing was ever allocated."""

    peak_allocated_bytes: int
    peak_reserved_bytes: int
    peak_allocated_at: int
    peak_reserved_at: int
    allocated_bytes: int  # at the end, or at the moment when memory ran out
    reserved_bytes: int
    num_retries: int  # how often cached memory had to be released to go on
    out_of_memory_at: int | None = None
    out_of_memory_request_bytes: int | None = None
    allocated_curve: "array[int] | None" = None  # bytes allocated after each event


def replay(
    sizes: Sequence[int],
    order: Sequence[int],
    capacity_bytes: int | None = None,
    *,
    settings: str | AllocatorSettings = "",
    device_bytes: int | None = None,
    streams: Sequence[int] | None = None,
    curve: bool = False,
) -> Replay:
    """Replays `order` up to the first request that does not fit: i >= 0 allocates block i of `sizes[i]` bytes, ~i frees
    it, EMPTY_CACHE returns cached memory to the GPU. `settings` are those of PYTORCH_ALLOC_CONF; `streams[i]` is the
    stream of block i (default 0)."""
    allocator = CachingAllocator.from_settings(settings, capacity_bytes, device_bytes=device_bytes)
    allocate, free, device = allocator.allocate, allocator.free, allocator.device
    sizes, order = _plain_list(sizes), _plain_list(order)
    streams = None if streams is None else _plain_list(streams)
    blocks: list[Block | None] = [None] * len(sizes)
    points = array("q") if curve else None
    peak_allocated = peak_reserved = 0
    peak_allocated_at = peak_reserved_at = -1
    failed: int | None = None
    count = len(sizes)
    position = -1
    try:
        for position, event in enumerate(order):
            if event < 0:
                block = blocks[~event]
                if block is None:
                    raise ValueError(f"event {position} frees block {~event}, which is not in use")
                free(block)
                blocks[~event] = None
            elif event < count:
                blocks[event] = allocate(sizes[event]) if streams is None else allocate(sizes[event], streams[event])
                if allocator.allocated_bytes > peak_allocated:
                    peak_allocated, peak_allocated_at = allocator.allocated_bytes, position
                if device.peak_reserved_bytes > peak_reserved:
                    peak_reserved, peak_reserved_at = device.peak_reserved_bytes, position
            elif event == EMPTY_CACHE:
                allocator.empty_cache()
            else:
                raise ValueError(f"event {position} allocates block {event}, but there are only {count} sizes")
            if points is not None:
                points.append(allocator.allocated_bytes)
    except OutOfMemory as error:
        failed = error.requested_bytes
        if device.peak_reserved_bytes > peak_reserved:  # pages were mapped before memory ran out
            peak_reserved, peak_reserved_at = device.peak_reserved_bytes, position
    return Replay(
        peak_allocated_bytes=peak_allocated,
        peak_reserved_bytes=peak_reserved,
        peak_allocated_at=peak_allocated_at,
        peak_reserved_at=peak_reserved_at,
        allocated_bytes=allocator.allocated_bytes,
        reserved_bytes=allocator.reserved_bytes,
        num_retries=allocator.num_retries,
        out_of_memory_at=None if failed is None else position,
        out_of_memory_request_bytes=failed,
        allocated_curve=points,
    )


def _plain_list(numbers: Sequence[int]) -> Sequence[int]:
    """Arrays become lists: reading one element is quicker, and numpy's integers would overflow in the allocator."""
    return numbers if isinstance(numbers, (list, tuple)) else [int(number) for number in numbers]
