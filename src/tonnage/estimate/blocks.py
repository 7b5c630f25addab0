"""What PyTorch's caching allocator is built of: blocks, the caches of free ones, and the GPU that gives segments."""

from bisect import bisect_left, insort
from dataclasses import dataclass

from tonnage.units import MIB

ADDRESS_BITS = 54  # a free block's key is its size, then its address, in one number: sorting needs no tuples
ENDLESS = 1 << 62
TOP_ADDRESS = 1 << 53
CHUNK_BYTES = 32 * MIB  # the driver reserves addresses in multiples of it
CONTEXT_BYTES = 6 * MIB  # what CUDA itself holds of the first chunk

# States of a block. UNMAPPED is address space without memory (expandable segments), GONE has been joined to
# another block, EMPTY stands for a request of zero bytes.
FREE, LIVE, UNMAPPED, GONE, EMPTY = range(5)


class Block:
    """A piece of a segment, in use or free; for callers an opaque handle. Neighbours in the segment are linked."""

    __slots__ = ("address", "born", "cache", "next", "previous", "size", "state")

    def __init__(
        self, address: int, size: int, cache: "Cache", previous: "Block | None", following: "Block | None", state: int
    ) -> None:
        self.address = address
        self.size = size
        self.cache = cache
        self.previous = previous
        self.next = following
        self.state = state
        self.born = 0  # the garbage collector's time when it became free

    def is_split(self) -> bool:
        return self.previous is not None or self.next is not None

    def split(self, size: int, state: int) -> "Block":
        """Keeps the first `size` bytes; returns a new block with the rest, in no cache yet."""
        rest = Block(self.address + size, self.size - size, self.cache, self, self.next, state)
        if self.next is not None:
            self.next.previous = rest
        self.next = rest
        self.size = size
        return rest

    def absorb_next(self) -> None:
        """Joins the next block, already taken out of its cache, to this one."""
        gone = self.next
        assert gone is not None
        gone.state = GONE
        self.size += gone.size
        self.next = gone.next
        if gone.next is not None:
            gone.next.previous = self


class Cache:
    """The free blocks of one pool (small or large) and one stream, ordered by size and then by address."""

    __slots__ = ("blocks", "is_small", "keys", "segment_bytes", "smallest_rest", "stream", "unmapped")

    def __init__(self, is_small: bool, stream: int, segment_bytes: int, smallest_rest: int) -> None:
        self.keys: list[int] = []
        self.blocks: dict[int, Block] = {}
        self.unmapped: list[Block] = []  # by address; only with expandable segments
        self.is_small = is_small
        self.stream = stream
        self.segment_bytes = segment_bytes  # of a new segment, or of a page of an expandable one
        self.smallest_rest = smallest_rest  # a block is split if at least this much remains

    def add(self, block: Block) -> None:
        key = (block.size << ADDRESS_BITS) + block.address
        insort(self.keys, key)
        self.blocks[key] = block
        block.state = FREE

    def remove(self, block: Block) -> None:
        key = (block.size << ADDRESS_BITS) + block.address
        del self.keys[bisect_left(self.keys, key)]
        del self.blocks[key]

    def in_order(self) -> list[Block]:
        return [self.blocks[key] for key in self.keys]


@dataclass(frozen=True, slots=True)
class Segment:
    """One contiguous range of reserved memory, to look at; `blocks` holds (size, whether in use) from its start on."""

    address: int
    stream: int
    is_small: bool
    blocks: tuple[tuple[int, bool], ...]

    @property
    def size(self) -> int:
        return sum(size for size, _ in self.blocks)


class Chunk:
    """A range of addresses that segments are cut from; `gaps` are its free parts as (size, address), smallest first."""

    __slots__ = ("end", "gaps", "number", "start")

    def __init__(self, number: int, start: int, end: int) -> None:
        self.number = number
        self.start = start
        self.end = end
        self.gaps = [(end - start, start)]


class AddressSpace:
    """Gives segments the addresses that `cudaMalloc` gives them, which decide between free blocks of equal size.

    A segment lies in the newest chunk with a gap that holds it, there in the smallest such gap, at its start. If there
    is none, a new chunk is put at the top of the highest hole that is larger than it; a chunk without segments is given
    up. The rule was read off histories recorded on one H200 (driver 580.159.04). In the nine of random requests it
    tells all 1,000 addresses; in the two of training it does not, as something else in the process takes addresses too,
    presumably cuBLAS and cuDNN when they are loaded. There the peak of allocated bytes is off by 0.00 % and +0.45 %
    (benchmarks/allocator/check_snapshot.py).
    """

    def __init__(self) -> None:
        self._holes = [(0, TOP_ADDRESS)]  # start and end, by address; the lowest counts as endless
        self._open: list[Chunk] = []  # the chunks with gaps, oldest first
        self._taken: dict[int, tuple[Chunk, int]] = {}
        self._chunks_made = 0
        self.take(CONTEXT_BYTES)

    def take(self, size: int) -> int:
        chunk = next((chunk for chunk in reversed(self._open) if chunk.gaps[-1][0] >= size), None)
        chunk = chunk or self._new_chunk(size)
        gap_bytes, address = chunk.gaps.pop(bisect_left(chunk.gaps, (size, 0)))
        if gap_bytes > size:
            insort(chunk.gaps, (gap_bytes - size, address + size))
        if not chunk.gaps:
            self._open.remove(chunk)
        self._taken[address] = chunk, size
        return address

    def release(self, address: int) -> None:
        chunk, size = self._taken.pop(address)
        if not chunk.gaps:
            insort(self._open, chunk, key=lambda other: other.number)
        for gap_bytes, start in list(chunk.gaps):
            if start + gap_bytes == address or start == address + size:
                chunk.gaps.remove((gap_bytes, start))
                address = min(address, start)
                size += gap_bytes
        insort(chunk.gaps, (size, address))
        if size == chunk.end - chunk.start:
            self._open.remove(chunk)
            self._add_hole(chunk.start, chunk.end)

    def _new_chunk(self, size: int) -> Chunk:
        length = -(-size // CHUNK_BYTES) * CHUNK_BYTES
        holes = self._holes
        roomy = (index for index in range(len(holes) - 1, 0, -1) if holes[index][1] - holes[index][0] > length)
        index = next(roomy, 0)
        start, end = holes[index]
        holes[index] = (start, end - length)
        self._chunks_made += 1
        chunk = Chunk(self._chunks_made, end - length, end)
        self._open.append(chunk)
        return chunk

    def _add_hole(self, start: int, end: int) -> None:
        for hole in list(self._holes):
            if hole[1] == start or hole[0] == end:
                self._holes.remove(hole)
                start, end = min(start, hole[0]), max(end, hole[1])
        insort(self._holes, (start, end))


class Device:
    """The GPU as the allocator sees it: it gives memory until `capacity_bytes` are out."""

    def __init__(self, capacity_bytes: int | None, total_bytes: int | None) -> None:
        self.capacity_bytes = ENDLESS if capacity_bytes is None else capacity_bytes
        self.total_bytes = total_bytes or capacity_bytes or 1 << 40  # sizes the address space of expandable segments
        self.reserved_bytes = 0
        self.peak_reserved_bytes = 0
        self.segments: dict[int, Block] = {}  # the first block of each, by address
        self._addresses = AddressSpace()

    def take(self, size: int) -> bool:
        reserved = self.reserved_bytes + size
        if reserved > self.capacity_bytes:
            return False
        self.reserved_bytes = reserved
        self.peak_reserved_bytes = max(reserved, self.peak_reserved_bytes)
        return True

    def give_back(self, size: int) -> None:
        self.reserved_bytes -= size

    def note(self, action: str, address: int, size: int) -> None:
        """Told of every range that is taken or given back, in the words of PyTorch's history; subclasses may listen."""

    def place(self, size: int) -> int:
        """The address of a new segment, as the driver would choose it."""
        return self._addresses.take(size)

    def vacate(self, address: int) -> None:
        """Gives up a segment's addresses; its memory has been given back before."""
        del self.segments[address]
        self._addresses.release(address)

    def snapshot(self) -> list[Segment]:
        """All reserved memory by address; each mapped range of an expandable segment counts as one."""
        found: list[Segment] = []
        for address in sorted(self.segments):
            run: list[Block] = []
            block: Block | None = self.segments[address]
            while block is not None:
                if block.state != UNMAPPED:
                    run.append(block)
                block = block.next
                if run and (block is None or block.state == UNMAPPED):
                    parts = tuple((part.size, part.state == LIVE) for part in run)
                    found.append(Segment(run[0].address, run[0].cache.stream, run[0].cache.is_small, parts))
                    run = []
        return found
