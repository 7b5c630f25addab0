"""PyTorch's caching allocator for CUDA, simulated block by block.

It follows the native allocator of PyTorch 2.11 to 2.13 (`c10/cuda/CUDACachingAllocator.cpp`): the same rounding, pools,
best fit, splitting, coalescing and release of cached memory, hence the same `torch.cuda.memory_allocated` and
`memory_reserved`, and an out-of-memory error at the same request. Three things differ. New segments lie where the
driver of an H200 was seen to put them; whatever else takes addresses in the process moves them, which decides only
between free blocks of equal size. A block used on several streams is free at once, where PyTorch waits for the other
streams. Private pools (CUDA graphs) are left out.
"""

from bisect import bisect_left, insort
from dataclasses import asdict
from typing import Self

from tonnage.errors import DoesNotFit
from tonnage.estimate import expandable
from tonnage.estimate.blocks import ADDRESS_BITS, EMPTY, ENDLESS, FREE, GONE, LIVE, Block, Cache, Device, Segment
from tonnage.estimate.settings import MINIMUM_BLOCK_BYTES, AllocatorSettings, parse_settings, round_up
from tonnage.units import MIB, format_bytes

SMALL_BYTES = MIB  # the largest request of the small pool
SMALL_SEGMENT_BYTES = 2 * MIB
LARGE_REQUEST_BYTES = 10 * MIB  # from here on a new segment has the size of the request
LARGE_ROUNDING_BYTES = 2 * MIB
DEFAULTS = AllocatorSettings()


class OutOfMemory(DoesNotFit):
    """A request does not fit, even after the release of all cached memory."""

    def __init__(self, requested_bytes: int, allocated_bytes: int, reserved_bytes: int, capacity_bytes: int) -> None:
        super().__init__(
            f"out of memory: {format_bytes(requested_bytes)} more do not fit beside {format_bytes(allocated_bytes)} "
            f"allocated ({format_bytes(reserved_bytes)} reserved of {format_bytes(capacity_bytes)})"
        )
        self.requested_bytes = requested_bytes
        self.allocated_bytes = allocated_bytes
        self.reserved_bytes = reserved_bytes
        self.capacity_bytes = capacity_bytes


class CachingAllocator:
    """Answers every request as PyTorch's allocator would on a GPU that can give it `capacity_bytes` in all."""

    def __init__(
        self,
        capacity_bytes: int | None = None,
        *,
        expandable_segments: bool = False,
        max_split_bytes: int | None = None,
        max_non_split_rounding_bytes: int = DEFAULTS.max_non_split_rounding_bytes,
        roundup_power2_divisions: tuple[int, ...] = (),
        garbage_collection_threshold: float = 0.0,
        large_segment_bytes: int = DEFAULTS.large_segment_bytes,
        allowed_bytes: int | None = None,
        device_bytes: int | None = None,
    ) -> None:
        """`allowed_bytes` is what `set_per_process_memory_fraction` leaves; as in PyTorch, garbage is collected only
        if it is given. `device_bytes`, the GPU's whole memory, bounds the address space of expandable segments."""
        self.device = Device(capacity_bytes, device_bytes)
        self.allocated_bytes = 0
        self.peak_allocated_bytes = 0
        self.num_retries = 0
        self.num_ooms = 0
        self._allowed = ENDLESS if allowed_bytes is None else allowed_bytes
        self._expandable = expandable_segments
        self._max_split = max_split_bytes or ENDLESS
        self._max_rounding = max_non_split_rounding_bytes
        self._split_below = ENDLESS if expandable_segments else self._max_split
        self._divisions = roundup_power2_divisions
        self._collects = garbage_collection_threshold > 0.0 and allowed_bytes is not None
        self._collect_above = int(garbage_collection_threshold * self._allowed)
        self._searches = 0  # in the large pool: the garbage collector's clock
        self._plain = not (expandable_segments or max_split_bytes or self._collects)
        self._large_segment = large_segment_bytes
        self._empty = Block(0, 0, Cache(True, 0, 0, 0), None, None, EMPTY)
        self._caches: dict[tuple[bool, int], Cache] = {}
        self._small = self._cache(True, 0)
        self._large = self._cache(False, 0)

    @classmethod
    def from_settings(
        cls, settings: str | AllocatorSettings, capacity_bytes: int | None = None, *, device_bytes: int | None = None
    ) -> Self:
        """The allocator that PYTORCH_ALLOC_CONF=`settings` gives on a GPU of `device_bytes` (if unknown: capacity)."""
        values = asdict(parse_settings(settings) if isinstance(settings, str) else settings)
        fraction, whole = values.pop("memory_fraction"), device_bytes or capacity_bytes
        allowed = round(fraction * whole) if whole and fraction < 1.0 else None
        return cls(capacity_bytes, allowed_bytes=allowed, device_bytes=device_bytes, **values)

    @property
    def reserved_bytes(self) -> int:
        return self.device.reserved_bytes

    @property
    def peak_reserved_bytes(self) -> int:
        return self.device.peak_reserved_bytes

    @property
    def capacity_bytes(self) -> int:
        """The limit that a new segment is held to; very large if there is none."""
        return min(self.device.capacity_bytes, self._allowed)

    def allocate(self, requested_bytes: int, stream: int = 0) -> Block:
        """A block of at least `requested_bytes`; raises `OutOfMemory`. Zero bytes cost nothing."""
        # This and `free` are the two hot functions: written out, with as few calls as possible.
        if requested_bytes <= 0:
            if requested_bytes < 0:
                raise ValueError(f"cannot allocate {requested_bytes} bytes")
            return self._empty
        size = round_up(requested_bytes, self._divisions) if self._divisions else (requested_bytes + 511) & -512
        if stream:
            cache = self._cache(size <= SMALL_BYTES, stream)
        else:
            cache = self._small if size <= SMALL_BYTES else self._large

        keys = cache.keys
        if self._plain:
            index = bisect_left(keys, size << ADDRESS_BITS)
            if index < len(keys):
                block = cache.blocks.pop(keys.pop(index))
            else:
                block = self._reserve(cache, size, requested_bytes)
        else:
            block = self._find(cache, size) or self._reserve(cache, size, requested_bytes)

        rest_size = block.size - size
        if rest_size >= cache.smallest_rest and size < self._split_below:
            address = block.address + size
            following = block.next
            rest = Block(address, rest_size, cache, block, following, FREE)
            if following is not None:
                following.previous = rest
            block.next = rest
            block.size = size
            if self._collects:
                rest.born = self._searches
            key = (rest_size << ADDRESS_BITS) + address
            insort(keys, key)
            cache.blocks[key] = rest
        else:
            size = block.size
        block.state = LIVE
        allocated = self.allocated_bytes + size
        self.allocated_bytes = allocated
        if allocated > self.peak_allocated_bytes:
            self.peak_allocated_bytes = allocated
        return block

    def free(self, block: Block) -> None:
        """Gives a block back to its cache, joined with free neighbours."""
        if block.state != LIVE:
            if block.state == EMPTY:
                return
            raise ValueError("this block is not in use")
        size = block.size
        self.allocated_bytes -= size
        cache = block.cache
        keys = cache.keys
        blocks = cache.blocks
        following = block.next
        if following is not None and following.state == FREE:
            key = (following.size << ADDRESS_BITS) + following.address
            del keys[bisect_left(keys, key)], blocks[key]
            size += following.size
            following.state = GONE
            block.next = following = following.next
            if following is not None:
                following.previous = block
        before = block.previous
        if before is not None and before.state == FREE:
            key = (before.size << ADDRESS_BITS) + before.address
            del keys[bisect_left(keys, key)], blocks[key]
            size += before.size
            block.state = GONE
            before.next = following
            if following is not None:
                following.previous = before
            block = before
        block.size = size
        block.state = FREE
        if self._collects:
            block.born = self._searches
        key = (size << ADDRESS_BITS) + block.address
        insort(keys, key)
        blocks[key] = block

    def empty_cache(self) -> None:
        """Returns to the GPU all memory of which no part is in use, as `torch.cuda.empty_cache` does."""
        for _, cache in sorted(self._caches.items()):  # the large pool first, then streams in order
            if self._expandable:
                expandable.release(self.device, cache)
                continue
            for block in cache.in_order():
                if not block.is_split():
                    self._release(block)

    def segments(self) -> list[Segment]:
        """All reserved memory by address; each mapped range of an expandable segment counts as one."""
        return self.device.snapshot()

    def _cache(self, is_small: bool, stream: int) -> Cache:
        cache = self._caches.get((is_small, stream))
        if cache is None:
            segment = SMALL_SEGMENT_BYTES if is_small else self._large_segment
            smallest_rest = MINIMUM_BLOCK_BYTES if is_small or self._expandable else SMALL_BYTES + 1
            cache = self._caches[is_small, stream] = Cache(is_small, stream, segment, smallest_rest)
        return cache

    def _find(self, cache: Cache, size: int) -> Block | None:
        """The best fit among free blocks, with the rules for settings that are not the default."""
        if not cache.is_small:
            self._searches += 1
        index = bisect_left(cache.keys, size << ADDRESS_BITS)
        if index == len(cache.keys):
            return None
        if self._expandable:
            index = expandable.best_index(cache, index)
        block = cache.blocks[cache.keys[index]]
        oversize = block.size >= self._max_split
        if oversize and (size < self._max_split or block.size >= size + self._max_rounding):
            return None
        cache.remove(block)
        return block

    def _reserve(self, cache: Cache, size: int, requested_bytes: int) -> Block:
        """A block of memory not reserved before; cached memory is released if there is no other way."""
        if self._collects:
            self._collect_garbage()
        block = self._new_block(cache, size)
        if block is None and self._release_oversize(cache, size):
            block = self._new_block(cache, size)
        if block is None:
            self.empty_cache()
            self.num_retries += 1
            block = self._new_block(cache, size)
        if block is None:
            self.num_ooms += 1
            raise OutOfMemory(requested_bytes, self.allocated_bytes, self.reserved_bytes, self.capacity_bytes)
        return block

    def _new_block(self, cache: Cache, size: int) -> Block | None:
        device = self.device
        if cache.is_small or size < LARGE_REQUEST_BYTES:
            wanted = cache.segment_bytes
        else:
            wanted = -(-size // LARGE_ROUNDING_BYTES) * LARGE_ROUNDING_BYTES
        if device.reserved_bytes + wanted > self._allowed:
            return None
        if self._expandable:
            return expandable.grow(device, cache, size)
        if not device.take(wanted):
            return None
        block = Block(device.place(wanted), wanted, cache, None, None, FREE)
        device.segments[block.address] = block
        device.note("segment_alloc", block.address, wanted)
        return block

    def _release(self, block: Block) -> None:
        """Returns a whole segment to the GPU."""
        block.cache.remove(block)
        block.state = GONE
        self.device.give_back(block.size)
        self.device.note("segment_free", block.address, block.size)
        self.device.vacate(block.address)

    def _release_oversize(self, cache: Cache, size: int) -> bool:
        """With a limit on splitting: releases one large enough block that may not be split, or several, largest first.
        Says whether enough was released."""
        if self._max_split == ENDLESS or self._expandable:
            return False
        wanted = max(size, self._max_split)
        index = bisect_left(cache.keys, wanted << ADDRESS_BITS)
        if index < len(cache.keys):
            self._release(cache.blocks[cache.keys[index]])
            return True
        released = 0
        while released < wanted and cache.keys and cache.keys[-1] >> ADDRESS_BITS >= self._max_split:
            largest = cache.blocks[cache.keys[-1]]
            released += largest.size
            self._release(largest)
        return released >= wanted

    def _collect_garbage(self) -> None:
        """Releases whole free segments of the large pool, those unused for longest first, down to the threshold."""
        excess = self.reserved_bytes - self._collect_above
        caches = [cache for (is_small, _), cache in sorted(self._caches.items()) if not is_small]
        idle = [block for cache in caches for block in cache.in_order() if not block.is_split()]
        while excess > 0 and idle:
            ages = [self._searches - block.born for block in idle]
            average = sum(ages) / len(ages)
            kept = []
            for block, age in zip(idle, ages, strict=True):
                if age >= average:
                    excess -= block.size
                    self._release(block)
                else:
                    kept.append(block)
            idle = kept
