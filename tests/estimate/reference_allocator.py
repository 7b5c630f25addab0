"""A second, slow and plain implementation of the allocator's rules, to compare the fast one with.

A segment is a list of `[size, state]`; every search is a walk over everything. States are "live", "free" and, in
expandable segments, "unmapped".
"""

MIB = 1 << 20
CHUNK = 32 * MIB
TOP = 1 << 53


class Full(Exception):  # a test helper; reads better where it is raised
    """The request does not fit."""


class ReferenceAllocator:
    def __init__(self, capacity: int, expandable: bool = False, max_split: int = 1 << 62) -> None:
        self.capacity, self.expandable, self.max_split = capacity, expandable, max_split
        self.segments: list[dict] = []  # in order of address
        self.chunks = [(TOP - CHUNK, TOP)]  # the newest first
        self.live: dict[object, tuple[int, int]] = {}
        self.peak_allocated = self.peak_reserved = 0

    def allocate(self, name: object, requested: int, stream: int) -> tuple[int, int]:
        """The address and the size of the block."""
        if requested == 0:
            self.live[name] = (-1, 0)
            return -1, 0
        size = -(-requested // 512) * 512
        found = self.find(size, stream)
        for attempt in range(3):
            if found is None:
                if attempt == 1 and not self.release_oversize(size, stream):
                    continue
                if attempt == 2:
                    self.empty_cache()
                found = self.new(size, stream)
        if found is None:
            raise Full
        segment, index = found
        blocks = segment["blocks"]
        rest = blocks[index][0] - size
        fine = size <= MIB or self.expandable
        if (rest >= 512) if fine else (rest > MIB and size < self.max_split):
            blocks[index] = [size, "free"]
            blocks.insert(index + 1, [rest, "free"])
        blocks[index][1] = "live"
        address = segment["address"] + sum(block[0] for block in blocks[:index])
        self.live[name] = (address, blocks[index][0])
        self.peak_allocated = max(self.peak_allocated, self.allocated())
        return self.live[name]

    def free(self, name: object) -> None:
        address, size = self.live.pop(name)
        for segment in self.segments if size else []:
            position = segment["address"]
            for block in segment["blocks"]:
                if position == address and block[1] == "live":
                    block[1] = "free"
                    self.join(segment)
                    return
                position += block[0]

    def join(self, segment: dict) -> None:
        joined: list[list] = []
        for size, state in segment["blocks"]:
            if joined and state != "live" and joined[-1][1] == state:
                joined[-1][0] += size
            else:
                joined.append([size, state])
        segment["blocks"] = joined

    def candidates(self, small: bool, stream: int) -> list[tuple[int, int, dict, int]]:
        """(size, address, segment, index) of all free blocks, best fit first."""
        found = []
        for segment in self.segments:
            if (segment["small"], segment["stream"]) != (small, stream):
                continue
            address = segment["address"]
            for index, (size, state) in enumerate(segment["blocks"]):
                if state == "free":
                    found.append((size, address, segment, index))
                address += size
        return sorted(found, key=lambda item: item[:2])

    def find(self, size: int, stream: int) -> tuple[dict, int] | None:
        fitting = [item for item in self.candidates(size <= MIB, stream) if item[0] >= size]
        if not fitting:
            return None
        chosen = 0
        if self.expandable:
            room = [block_size + self.behind(segment, index) for block_size, _, segment, index in fitting]
            while chosen + 1 < len(room) and room[chosen + 1] < room[chosen]:
                chosen += 1
        block_size, _, segment, index = fitting[chosen]
        if size < self.max_split <= block_size or (size >= self.max_split and block_size >= size + 20 * MIB):
            return None
        return segment, index

    def behind(self, segment: dict, index: int) -> int:
        following = segment["blocks"][index + 1 : index + 2]
        return following[0][0] if following and following[0][1] == "unmapped" else 0

    def new(self, size: int, stream: int) -> tuple[dict, int] | None:
        if self.expandable:
            return self.expand(size, stream)
        wanted = 2 * MIB if size <= MIB else 20 * MIB if size < 10 * MIB else -(-size // (2 * MIB)) * 2 * MIB
        if self.reserved() + wanted > self.capacity:
            return None
        segment = self.new_segment(wanted, "free", size, stream)
        self.peak_reserved = max(self.peak_reserved, self.reserved())
        return segment, 0

    def new_segment(self, length: int, state: str, size: int, stream: int) -> dict:
        address = self.place(length)
        segment = {"address": address, "small": size <= MIB, "stream": stream, "blocks": [[length, state]]}
        self.segments = sorted([*self.segments, segment], key=lambda other: other["address"])
        return segment

    def place(self, length: int) -> int:
        """The address of a new segment: in the newest chunk with room, there where it is narrowest."""
        self.chunks = [chunk for chunk in self.chunks if len(self.gaps(chunk)) != 1 or self.gaps(chunk)[0] != chunk]
        for chunk in self.chunks:
            fitting = [(end - start, start) for start, end in self.gaps(chunk) if end - start >= length]
            if fitting:
                return min(fitting)[1]
        whole = -(-length // CHUNK) * CHUNK
        ends = sorted((start for start, _ in self.chunks), reverse=True)
        end = next(end for end in ends if self.is_unused(end - whole - CHUNK, end))
        self.chunks.insert(0, (end - whole, end))
        return end - whole

    def gaps(self, chunk: tuple[int, int]) -> list[tuple[int, int]]:
        start, end = chunk
        used = [(TOP - CHUNK, TOP - CHUNK + 6 * MIB)]  # by CUDA itself
        used += [(one["address"], one["address"] + sum(block[0] for block in one["blocks"])) for one in self.segments]
        inside = sorted(one for one in used if start <= one[0] < end)
        edges = [start, *(edge for one in inside for edge in one), end]
        return [(low, high) for low, high in zip(edges[::2], edges[1::2], strict=True) if low < high]

    def is_unused(self, start: int, end: int) -> bool:
        return all(chunk_end <= start or end <= chunk_start for chunk_start, chunk_end in self.chunks)

    def expand(self, size: int, stream: int) -> tuple[dict, int] | None:
        page = 2 * MIB if size <= MIB else 20 * MIB
        place = self.room(size, stream)
        if place is None:
            length = -(-(self.capacity + self.capacity // 8) // page) * page
            place = self.new_segment(length, "unmapped", size, stream), 0
        segment, index = place
        while True:
            blocks = segment["blocks"]
            if blocks[index][1] == "free" and blocks[index][0] >= size:
                return segment, index
            has = blocks[index][0] if blocks[index][1] == "free" else 0
            target = index + 1 if has else index
            mapped = -(-min(size - has, blocks[target][0]) // page) * page
            if self.reserved() + mapped > self.capacity:
                return None
            blocks[target : target + 1] = [[mapped, "free"], [blocks[target][0] - mapped, "unmapped"]]
            segment["blocks"] = [block for block in blocks if block[0]]
            self.join(segment)
            self.peak_reserved = max(self.peak_reserved, self.reserved())

    def room(self, size: int, stream: int) -> tuple[dict, int] | None:
        for segment in self.segments:
            if (segment["small"], segment["stream"]) != (size <= MIB, stream):
                continue
            blocks = segment["blocks"]
            for index, (_, state) in enumerate(blocks):
                if state != "unmapped":
                    continue
                start = index - 1 if index and blocks[index - 1][1] == "free" else index
                total = 0
                for block_size, block_state in blocks[start:]:
                    if block_state == "live":
                        break
                    total += block_size
                if total >= size:
                    return segment, start
        return None

    def release_oversize(self, size: int, stream: int) -> bool:
        if self.expandable or self.max_split >= 1 << 62:
            return False
        wanted = max(size, self.max_split)
        found = self.candidates(size <= MIB, stream)
        large = [item for item in found if item[0] >= wanted]
        if large:
            self.segments.remove(large[0][2])
            return True
        released = 0
        for block_size, _, segment, _ in reversed(found):
            if released < wanted and block_size >= self.max_split:
                released += block_size
                self.segments.remove(segment)
        return released >= wanted

    def empty_cache(self) -> None:
        for segment in list(self.segments):
            had_memory = any(state == "free" for _, state in segment["blocks"])
            if self.expandable:
                self.unmap(segment)
            gone = "unmapped" if self.expandable else "free"
            if had_memory and all(state == gone for _, state in segment["blocks"]):
                self.segments.remove(segment)

    def unmap(self, segment: dict) -> None:
        page = 2 * MIB if segment["small"] else 20 * MIB
        blocks: list[list] = []
        position = 0
        for size, state in segment["blocks"]:
            begin, end = -(-position // page) * page, (position + size) // page * page
            if state == "free" and begin < end:
                blocks += [[begin - position, "free"], [end - begin, "unmapped"], [position + size - end, "free"]]
            else:
                blocks.append([size, state])
            position += size
        segment["blocks"] = [block for block in blocks if block[0]]
        self.join(segment)

    def allocated(self) -> int:
        return sum(size for _, size in self.live.values())

    def reserved(self) -> int:
        return sum(size for segment in self.segments for size, state in segment["blocks"] if state != "unmapped")
