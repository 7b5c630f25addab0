"""Expandable segments: few long ranges of addresses, to which memory is mapped page by page where it is needed.

A page is 2 MiB in the small pool and 20 MiB in the large one. Functions work on a `Cache`, that is on one pool and
stream, and follow `find_expandable_block`, `map_block` and `unmap_block` of PyTorch 2.11 to 2.13.
"""

from bisect import insort
from operator import attrgetter

from tonnage.estimate.blocks import FREE, GONE, LIVE, UNMAPPED, Block, Cache, Device

by_address = attrgetter("address")


def best_index(cache: Cache, index: int) -> int:
    """The best fit from `index` on, where a block counts with the unmapped space behind it, into which it can grow."""
    chosen = _expanded_bytes(cache.blocks[cache.keys[index]])
    while index + 1 < len(cache.keys):
        following = _expanded_bytes(cache.blocks[cache.keys[index + 1]])
        if following >= chosen:
            break
        chosen = following
        index += 1
    return index


def grow(device: Device, cache: Cache, size: int) -> Block | None:
    """A block of at least `size` bytes, by mapping more pages; `None` if the GPU is full. Pages mapped stay mapped."""
    candidate: Block | None = _first_room(device, cache, size)
    if candidate is not None and candidate.state == UNMAPPED:
        candidate = _map(device, candidate, min(candidate.size, size))
    while candidate is not None and candidate.size < size:
        unmapped = candidate.next
        assert unmapped is not None
        candidate = _map(device, unmapped, min(unmapped.size, size - candidate.size))
    if candidate is not None:
        cache.remove(candidate)
    return candidate


def release(device: Device, cache: Cache) -> None:
    """Unmaps all pages that are wholly free, and gives up segments of which nothing is mapped any more."""
    for block in cache.in_order():
        unmapped = _unmap(device, block)
        if unmapped is not None and not unmapped.is_split():
            cache.unmapped.remove(unmapped)
            device.vacate(unmapped.address)


def _expanded_bytes(block: Block) -> int:
    behind = block.next
    return block.size + (behind.size if behind is not None and behind.state == UNMAPPED else 0)


def _first_room(device: Device, cache: Cache, size: int) -> Block:
    """The block at the lowest address from which free and unmapped blocks together hold `size` bytes."""
    for unmapped in cache.unmapped:
        before = unmapped.previous
        start = before if before is not None and before.state == FREE else unmapped
        room = 0
        block: Block | None = start
        while block is not None and block.state != LIVE and room < size:
            room += block.size
            block = block.next
        if room >= size:
            return start
    return _new_segment(device, cache)


def _new_segment(device: Device, cache: Cache) -> Block:
    """Address space for all of the GPU's memory and an eighth more; nothing is mapped yet."""
    page = cache.segment_bytes
    size = -(-(device.total_bytes + device.total_bytes // 8) // page) * page
    block = Block(device.place(size), size, cache, None, None, UNMAPPED)
    device.segments[block.address] = block
    insort(cache.unmapped, block, key=by_address)
    return block


def _map(device: Device, block: Block, size: int) -> Block | None:
    """Maps pages for the first `size` bytes of an unmapped block; returns the free block that then holds them."""
    cache = block.cache
    mapped = -(-size // cache.segment_bytes) * cache.segment_bytes
    if not device.take(mapped):
        return None
    device.note("segment_map", block.address, mapped)
    cache.unmapped.remove(block)
    if mapped < block.size:
        insort(cache.unmapped, block.split(mapped, UNMAPPED), key=by_address)
    if block.next is not None and block.next.state == FREE:
        cache.remove(block.next)
        block.absorb_next()
    before = block.previous
    if before is not None and before.state == FREE:
        cache.remove(before)
        before.absorb_next()
        block = before
    cache.add(block)
    return block


def _unmap(device: Device, block: Block) -> Block | None:
    """Unmaps the whole pages inside a free block; returns the unmapped block, joined with unmapped neighbours."""
    cache = block.cache
    page = cache.segment_bytes
    base = _segment_address(block)
    begin = base + -(-(block.address - base) // page) * page
    end = base + (block.address + block.size - base) // page * page
    if begin >= end:
        return None
    cache.remove(block)
    if end < block.address + block.size:
        cache.add(block.split(end - block.address, FREE))
    if begin > block.address:
        head = block
        block = head.split(begin - head.address, UNMAPPED)
        cache.add(head)
    block.state = UNMAPPED
    device.give_back(end - begin)
    device.note("segment_unmap", begin, end - begin)
    return _join_unmapped(cache, block)


def _segment_address(block: Block) -> int:
    while block.previous is not None:
        block = block.previous
    return block.address


def _join_unmapped(cache: Cache, block: Block) -> Block:
    if block.next is not None and block.next.state == UNMAPPED:
        cache.unmapped.remove(block.next)
        block.absorb_next()
    before = block.previous
    if before is not None and before.state == UNMAPPED:
        before.absorb_next()
        assert block.state == GONE
        return before
    insort(cache.unmapped, block, key=by_address)
    return block
