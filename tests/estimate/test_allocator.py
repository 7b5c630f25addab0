from array import array
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from reference_allocator import Full, ReferenceAllocator

from tonnage.errors import DoesNotFit, UsageError
from tonnage.estimate.allocator import CachingAllocator, OutOfMemory
from tonnage.estimate.replay import EMPTY_CACHE, replay
from tonnage.estimate.settings import parse_settings
from tonnage.units import GIB, KIB, MIB


def sizes_of(allocator: CachingAllocator) -> list[int]:
    return sorted(segment.size for segment in allocator.segments())


# Rounding and segments


@pytest.mark.parametrize(
    ("requested", "allocated", "reserved"),
    [
        (1, 512, 2 * MIB),
        (512, 512, 2 * MIB),
        (513, 1024, 2 * MIB),
        (MIB, MIB, 2 * MIB),
        (MIB + 1, MIB + 512, 20 * MIB),
        (10 * MIB - 512, 10 * MIB - 512, 20 * MIB),
        (10 * MIB, 10 * MIB, 10 * MIB),
        (11 * MIB, 12 * MIB, 12 * MIB),  # 1 MiB remains, which is too little to split off
        (13 * MIB - 512, 13 * MIB - 512, 14 * MIB),
    ],
)
def test_a_first_request_takes_a_segment_of_the_right_size(requested: int, allocated: int, reserved: int) -> None:
    allocator = CachingAllocator()
    allocator.allocate(requested)
    assert (allocator.allocated_bytes, allocator.reserved_bytes) == (allocated, reserved)


def test_zero_bytes_cost_nothing() -> None:
    allocator = CachingAllocator(capacity_bytes=0)
    block = allocator.allocate(0)
    allocator.free(block)
    allocator.free(block)
    assert (allocator.allocated_bytes, allocator.reserved_bytes) == (0, 0)


def test_a_negative_size_is_refused() -> None:
    with pytest.raises(ValueError, match="-1"):
        CachingAllocator().allocate(-1)


def test_small_and_large_requests_do_not_share_segments() -> None:
    allocator = CachingAllocator()
    allocator.free(allocator.allocate(2 * MIB))
    allocator.allocate(512)
    assert sizes_of(allocator) == [2 * MIB, 20 * MIB]


def test_streams_do_not_share_segments() -> None:
    allocator = CachingAllocator()
    allocator.free(allocator.allocate(512, stream=0))
    allocator.allocate(512, stream=7)
    assert {segment.stream: segment.blocks[0][1] for segment in allocator.segments()} == {0: False, 7: True}


def test_the_size_of_shared_large_segments_can_be_set() -> None:
    allocator = CachingAllocator.from_settings("large_segment_size_mb:64")
    allocator.allocate(5 * MIB)
    assert sizes_of(allocator) == [64 * MIB]


# Splitting, joining, best fit


def test_a_small_block_is_split_down_to_512_bytes() -> None:
    allocator = CachingAllocator()
    allocator.allocate(MIB)
    allocator.allocate(MIB - 512)
    assert allocator.segments()[0].blocks == ((MIB, True), (MIB - 512, True), (512, False))


def test_a_large_block_is_split_only_if_more_than_1_mib_remains() -> None:
    allocator = CachingAllocator()
    allocator.free(allocator.allocate(40 * MIB))
    whole = allocator.allocate(39 * MIB)
    assert allocator.allocated_bytes == 40 * MIB
    allocator.free(whole)
    allocator.allocate(39 * MIB - 512)
    assert allocator.segments()[0].blocks == ((39 * MIB - 512, True), (MIB + 512, False))
    assert allocator.allocated_bytes == 39 * MIB - 512


def test_a_freed_block_joins_both_neighbours() -> None:
    allocator = CachingAllocator()
    first, second, third = (allocator.allocate(4 * MIB) for _ in range(3))
    allocator.free(first)
    allocator.free(third)
    assert allocator.segments()[0].blocks == ((4 * MIB, False), (4 * MIB, True), (12 * MIB, False))
    allocator.free(second)
    assert allocator.segments()[0].blocks == ((20 * MIB, False),)


def test_the_smallest_block_that_fits_is_taken() -> None:
    allocator = CachingAllocator()
    blocks = [allocator.allocate(size * MIB) for size in (60, 30, 40)]
    for block in blocks:
        allocator.free(block)
    assert allocator.allocate(30 * MIB).address == blocks[1].address


def test_of_equal_blocks_the_one_at_the_lowest_address_is_taken() -> None:
    allocator = CachingAllocator()
    blocks = [allocator.allocate(30 * MIB) for _ in range(3)]
    for index in (2, 0, 1):
        allocator.free(blocks[index])
    assert allocator.allocate(30 * MIB).address == min(block.address for block in blocks)


def test_freeing_twice_is_refused() -> None:
    allocator = CachingAllocator()
    block = allocator.allocate(512)
    allocator.free(block)
    with pytest.raises(ValueError, match="not in use"):
        allocator.free(block)


# Running out of memory


def test_a_cached_segment_is_released_before_failing() -> None:
    allocator = CachingAllocator(capacity_bytes=100 * MIB)
    allocator.free(allocator.allocate(60 * MIB))
    allocator.allocate(70 * MIB)
    assert sizes_of(allocator) == [70 * MIB]
    assert (allocator.num_retries, allocator.num_ooms, allocator.peak_reserved_bytes) == (1, 0, 70 * MIB)


def test_a_segment_in_partial_use_cannot_be_released() -> None:
    allocator = CachingAllocator(capacity_bytes=100 * MIB)
    whole = allocator.allocate(80 * MIB)
    allocator.free(whole)
    allocator.allocate(2 * MIB)
    with pytest.raises(OutOfMemory) as caught:
        allocator.allocate(79 * MIB)
    error = caught.value
    assert (error.requested_bytes, error.allocated_bytes) == (79 * MIB, 2 * MIB)
    assert (error.reserved_bytes, error.capacity_bytes) == (80 * MIB, 100 * MIB)
    assert (allocator.num_retries, allocator.num_ooms) == (1, 1)
    assert isinstance(error, DoesNotFit)


def test_empty_cache_keeps_what_is_in_use() -> None:
    allocator = CachingAllocator()
    kept = allocator.allocate(512)
    allocator.free(allocator.allocate(30 * MIB))
    allocator.empty_cache()
    assert sizes_of(allocator) == [2 * MIB]
    allocator.free(kept)
    allocator.empty_cache()
    assert allocator.segments() == []


def test_a_memory_fraction_limits_like_a_smaller_gpu() -> None:
    allocator = CachingAllocator.from_settings("per_process_memory_fraction:0.5", 100 * MIB)
    allocator.allocate(50 * MIB)
    with pytest.raises(OutOfMemory):
        allocator.allocate(512)


# A limit on splitting


def test_a_block_above_the_split_limit_serves_only_requests_of_about_its_size() -> None:
    allocator = CachingAllocator(max_split_bytes=40 * MIB)
    allocator.free(allocator.allocate(80 * MIB))
    allocator.allocate(30 * MIB)  # below the limit: the large block stays whole
    allocator.allocate(60 * MIB)  # 20 MiB or more too small for it
    assert sizes_of(allocator) == [30 * MIB, 60 * MIB, 80 * MIB]
    assert allocator.allocate(61 * MIB).size == 80 * MIB


def test_under_pressure_the_smallest_sufficient_oversize_block_is_released_first() -> None:
    allocator = CachingAllocator(160 * MIB, max_split_bytes=40 * MIB)
    small, middle, large = (allocator.allocate(size * MIB) for size in (20, 50, 90))
    for block in (small, middle, large):
        allocator.free(block)
    allocator.allocate(21 * MIB)
    assert sizes_of(allocator) == [20 * MIB, 22 * MIB, 90 * MIB]
    assert allocator.num_retries == 0


def test_several_oversize_blocks_are_released_if_one_is_not_enough() -> None:
    allocator = CachingAllocator(200 * MIB, max_split_bytes=40 * MIB)
    blocks = [allocator.allocate(size * MIB) for size in (20, 50, 60, 70)]
    for block in blocks:
        allocator.free(block)
    allocator.allocate(100 * MIB)
    assert sizes_of(allocator) == [20 * MIB, 50 * MIB, 100 * MIB]
    assert allocator.num_retries == 0


# Garbage collection


def test_garbage_collection_releases_the_segments_unused_for_longest() -> None:
    allocator = CachingAllocator(garbage_collection_threshold=0.5, allowed_bytes=200 * MIB)
    old, young = allocator.allocate(60 * MIB), allocator.allocate(80 * MIB)
    allocator.free(old)
    for _ in range(3):
        allocator.free(young)
        young = allocator.allocate(80 * MIB)
    allocator.free(young)
    allocator.allocate(90 * MIB)
    assert sizes_of(allocator) == [80 * MIB, 90 * MIB]
    assert allocator.num_retries == 0


def test_garbage_is_not_collected_without_a_memory_fraction() -> None:
    allocator = CachingAllocator(200 * MIB, garbage_collection_threshold=0.1)
    allocator.free(allocator.allocate(60 * MIB))
    allocator.allocate(70 * MIB)
    assert sizes_of(allocator) == [60 * MIB, 70 * MIB]


# Expandable segments


def expandable(capacity_bytes: int = GIB) -> CachingAllocator:
    return CachingAllocator(capacity_bytes, expandable_segments=True)


def test_an_expandable_segment_grows_by_pages() -> None:
    allocator = expandable()
    allocator.allocate(3 * MIB)
    assert sizes_of(allocator) == [20 * MIB]
    allocator.allocate(30 * MIB)
    assert sizes_of(allocator) == [40 * MIB]
    assert allocator.segments()[0].blocks == ((3 * MIB, True), (30 * MIB, True), (7 * MIB, False))
    allocator.allocate(512)
    assert sizes_of(allocator) == [2 * MIB, 40 * MIB]


def test_large_blocks_of_expandable_segments_are_split_down_to_512_bytes() -> None:
    allocator = expandable()
    allocator.allocate(20 * MIB - 512)
    assert allocator.segments()[0].blocks == ((20 * MIB - 512, True), (512, False))


def test_a_hole_is_preferred_to_the_end_that_can_grow() -> None:
    allocator = expandable()
    hole, _ = allocator.allocate(8 * MIB), allocator.allocate(8 * MIB)
    allocator.free(hole)  # 8 MiB free at the start, 4 MiB at the end
    assert allocator.allocate(4 * MIB).address == hole.address


def test_whole_free_pages_are_unmapped_under_pressure() -> None:
    allocator = expandable(100 * MIB)
    first, middle, last = (allocator.allocate(size * MIB) for size in (5, 50, 5))
    allocator.free(middle)
    assert allocator.reserved_bytes == 60 * MIB
    allocator.allocate(60 * MIB)  # three pages at the end, so the one that lies wholly in the middle must go
    assert (allocator.num_retries, allocator.reserved_bytes) == (1, 100 * MIB)
    assert first.address < last.address
    assert [segment.size for segment in allocator.segments()] == [20 * MIB, 80 * MIB]


def test_unmapped_pages_are_filled_again_from_the_lowest_address() -> None:
    allocator = expandable(400 * MIB)
    first, middle, _ = (allocator.allocate(size * MIB) for size in (10, 70, 20))
    allocator.free(middle)
    allocator.empty_cache()
    assert [segment.size for segment in allocator.segments()] == [20 * MIB, 20 * MIB]
    again = allocator.allocate(65 * MIB)
    assert again.address == first.address + 10 * MIB
    assert sizes_of(allocator) == [100 * MIB]


def test_a_memory_fraction_counts_the_rounded_request_before_pages_are_mapped() -> None:
    allocator = CachingAllocator(expandable_segments=True, allowed_bytes=45 * MIB, device_bytes=GIB)
    allocator.allocate(20 * MIB)
    allocator.allocate(24 * MIB)  # 20 + 24 MiB pass the check, two pages are mapped: 60 MiB
    assert allocator.reserved_bytes == 60 * MIB


# Settings


def test_settings_are_read() -> None:
    chosen = parse_settings(
        "expandable_segments:True, max_split_size_mb:128,backend:native,pinned_num_register_threads:4"
    )
    assert (chosen.expandable_segments, chosen.max_split_bytes) == (True, 128 * MIB)
    assert parse_settings("") == parse_settings("  ")


def test_roundup_divisions_are_read_per_interval() -> None:
    table = parse_settings("roundup_power2_divisions:[64:8,128:2,256:4,>:1]").roundup_power2_divisions
    assert table == (8,) * 7 + (2, 4) + (1,) * 7


@pytest.mark.parametrize(
    ("requested", "allocated"),
    [
        (1200 * KIB, 1280 * KIB),
        (1280 * KIB, 1280 * KIB),
        (100 * MIB, 112 * MIB),
        (1100, 1536),
        (2049, 2560),
        (512, 512),
    ],
)
def test_sizes_are_rounded_to_power_of_two_divisions(requested: int, allocated: int) -> None:
    allocator = CachingAllocator.from_settings("roundup_power2_divisions:4")
    allocator.allocate(requested)
    assert allocator.allocated_bytes == allocated


@pytest.mark.parametrize(
    "text",
    [
        "max_split_size_mb",
        "max_split_size_mb:19",
        "max_split_size_mb:many",
        "expandable_segments:yes",
        "garbage_collection_threshold:1.0",
        "garbage_collection_threshold:half",
        "roundup_power2_divisions:3",
        "roundup_power2_divisions:[64:8",
        "roundup_power2_divisions:[60:8]",
        "backend:cudaMallocAsync",
        "max_split_mb:128",
        "large_segment_size_mb:10",
        "throw_on_cudamalloc_oom:True",
        ",",
    ],
)
def test_settings_that_make_no_sense_are_refused(text: str) -> None:
    with pytest.raises(UsageError):
        CachingAllocator.from_settings(text)


# Addresses of segments: in chunks of 32 MiB, of which CUDA holds 6 MiB of the first


def addresses(allocator: CachingAllocator, *sizes: int) -> list[int]:
    return [allocator.allocate(size * MIB).address // MIB for size in sizes]


def test_segments_rise_within_a_chunk_and_chunks_fall() -> None:
    first, second, third, fourth = addresses(CachingAllocator(), 12, 14, 16, 14)
    assert (second - first, third - first, fourth - first) == (12, -6 - 32, -6 - 32 + 16)


def test_the_newest_chunk_with_room_is_filled_first() -> None:
    first, second, third = addresses(CachingAllocator(), 12, 20, 12)
    assert (second - first, third - second) == (-6 - 32, 20)


def test_a_chunk_without_segments_is_filled_again_only_by_something_smaller() -> None:
    allocator = CachingAllocator()
    allocator.allocate(26 * MIB)
    hole = allocator.allocate(64 * MIB)
    below = allocator.allocate(32 * MIB).address // MIB
    allocator.free(hole)
    allocator.empty_cache()
    equal, smaller = addresses(allocator, 64, 32)
    assert (equal - below, smaller - below) == (-64, 64)


def test_within_a_chunk_the_smallest_gap_is_filled() -> None:
    allocator = CachingAllocator()
    allocator.allocate(26 * MIB)
    _, middle, last = (allocator.allocate(size * MIB) for size in (34, 10, 12))  # 8 MiB of 64 remain at the end
    allocator.free(middle)
    allocator.empty_cache()
    assert allocator.allocate(512).address == last.address + 12 * MIB


# Replay


def test_a_replay_tells_peaks_positions_and_the_curve() -> None:
    found = replay([MIB, 3 * MIB, 512], [0, 1, ~1, 2, ~0], curve=True)
    assert (found.peak_allocated_bytes, found.peak_allocated_at) == (4 * MIB, 1)
    assert (found.peak_reserved_bytes, found.peak_reserved_at) == (22 * MIB, 1)
    assert found.allocated_curve is not None
    assert found.allocated_curve.tolist() == [MIB, 4 * MIB, MIB, MIB + 512, 512]
    assert found.out_of_memory_at is None


def test_a_replay_stops_where_memory_runs_out() -> None:
    found = replay([10 * MIB, 20 * MIB, 512], [0, 1, 2], 20 * MIB)
    assert (found.out_of_memory_at, found.out_of_memory_request_bytes) == (1, 20 * MIB)
    assert (found.allocated_bytes, found.reserved_bytes, found.num_retries) == (10 * MIB, 10 * MIB, 1)


def test_a_replay_empties_the_cache_where_told() -> None:
    sizes, order = [30 * MIB, 40 * MIB], [0, ~0, EMPTY_CACHE, 1]
    found = replay(sizes, order, curve=True)
    assert (found.peak_reserved_bytes, found.peak_reserved_at, found.num_retries) == (40 * MIB, 3, 0)
    assert found.allocated_curve is not None
    assert found.allocated_curve.tolist() == [30 * MIB, 0, 0, 40 * MIB]
    assert replay(sizes, array("q", order)).peak_reserved_bytes == 40 * MIB
    assert replay(sizes, [0, ~0, 1]).peak_reserved_bytes == 70 * MIB


def test_a_replay_refuses_a_block_without_a_size() -> None:
    with pytest.raises(ValueError, match="event 1 allocates block 1, but there are only 1 sizes"):
        replay([512], [0, 1])


def test_an_empty_replay_finds_nothing() -> None:
    found = replay([], [])
    assert (found.peak_allocated_bytes, found.peak_allocated_at, found.peak_reserved_at) == (0, -1, -1)


def test_a_replay_refuses_to_free_what_is_not_in_use() -> None:
    with pytest.raises(ValueError, match="event 1 frees block 1"):
        replay([512, 512], [0, ~1])


# Properties

sizes = st.one_of(
    st.integers(0, 4 * KIB),
    st.integers(0, 2 * MIB),
    st.integers(MIB, 12 * MIB),
    st.sampled_from([MIB, 2 * MIB, 8 * MIB, 10 * MIB, 20 * MIB, 21 * MIB, 40 * MIB]),
    st.integers(8 * MIB, 70 * MIB),
)
# A step allocates (size, stream), frees the n-th living block, or empties the cache.
steps = st.lists(
    st.one_of(
        st.tuples(st.just("allocate"), sizes, st.sampled_from([0, 0, 0, 3])),
        st.tuples(st.just("allocate"), sizes, st.just(0)),
        st.tuples(st.just("free"), st.integers(0, 30), st.just(0)),
        st.tuples(st.just("free"), st.integers(0, 30), st.just(0)),
        st.tuples(st.integers(0, 9).map(lambda n: "empty" if n == 0 else "free"), st.integers(0, 30), st.just(0)),
    ),
    max_size=60,
)
modes = st.sampled_from([{}, {"max_split_bytes": 24 * MIB}, {"expandable_segments": True}])
capacities = st.sampled_from([60 * MIB, 100 * MIB + 512, 240 * MIB, GIB])


@settings(max_examples=300, deadline=None)
@given(steps=steps, mode=modes, capacity=capacities)
def test_the_fast_allocator_agrees_with_the_plain_one(steps: list, mode: dict, capacity: int) -> None:
    fast = CachingAllocator(capacity, **mode)
    slow = ReferenceAllocator(capacity, mode.get("expandable_segments", False), mode.get("max_split_bytes", 1 << 62))
    living: list = []
    for number, (action, value, stream) in enumerate(steps):
        if action == "allocate":
            try:
                expected = slow.allocate(number, value, stream)
            except Full:
                with pytest.raises(OutOfMemory):
                    fast.allocate(value, stream)
            else:
                block = fast.allocate(value, stream)
                living.append((number, block))
                assert value == 0 or (block.address, block.size) == expected
        elif action == "empty":
            fast.empty_cache()
            slow.empty_cache()
        elif living:
            number, block = living.pop(value % len(living))
            fast.free(block)
            slow.free(number)
        assert (fast.allocated_bytes, fast.reserved_bytes) == (slow.allocated(), slow.reserved())
    assert (fast.peak_allocated_bytes, fast.peak_reserved_bytes) == (slow.peak_allocated, slow.peak_reserved)


@settings(max_examples=200, deadline=None)
@given(steps=steps, mode=modes, capacity=capacities)
def test_memory_is_never_handed_out_twice_nor_beyond_capacity(steps: list, mode: dict, capacity: int) -> None:
    allocator = CachingAllocator(capacity, **mode)
    living: list = []
    requested: list[int] = []
    most_requested = 0
    for action, value, stream in steps:
        if action == "allocate":
            try:
                living.append(allocator.allocate(value, stream))
            except OutOfMemory:
                continue
            requested.append(value)
        elif action == "free" and living:
            allocator.free(living.pop(value % len(living)))
            requested.pop(value % len(requested))
        most_requested = max(most_requested, sum(requested))
        spans = sorted((block.address, block.address + block.size) for block in living if block.size)
        assert all(end <= start for (_, end), (start, _) in pairwise(spans))
        assert sum(end - start for start, end in spans) == allocator.allocated_bytes
        assert allocator.allocated_bytes <= allocator.reserved_bytes <= capacity
        assert allocator.reserved_bytes == sum(sizes_of(allocator))
    assert allocator.peak_allocated_bytes >= most_requested
    for block in living:
        allocator.free(block)
    allocator.empty_cache()
    assert (allocator.allocated_bytes, allocator.reserved_bytes, allocator.segments()) == (0, 0, [])


@settings(max_examples=150, deadline=None)
@given(steps=steps, text=st.sampled_from(["", "max_split_size_mb:24", "expandable_segments:True"]), capacity=capacities)
def test_a_replay_equals_its_steps(steps: list, text: str, capacity: int) -> None:
    requests: list[int] = []
    order: list[int] = []
    living: list[int] = []
    for action, value, _ in steps:
        if action == "allocate":
            requests.append(value)
            order.append(len(requests) - 1)
            living.append(len(requests) - 1)
        elif action == "empty":
            order.append(EMPTY_CACHE)
        elif living:
            order.append(~living.pop(value % len(living)))
    found = replay(requests, order, capacity, settings=text, curve=True)

    allocator = CachingAllocator.from_settings(text, capacity)
    blocks = {}
    curve = []
    failed = None
    for position, event in enumerate(order):
        try:
            if event == EMPTY_CACHE:
                allocator.empty_cache()
            elif event >= 0:
                blocks[event] = allocator.allocate(requests[event])
            else:
                allocator.free(blocks[~event])
        except OutOfMemory:
            failed = position
            break
        curve.append(allocator.allocated_bytes)
    assert found.allocated_curve is not None
    assert found.allocated_curve.tolist() == curve
    assert found.out_of_memory_at == failed
    assert found.peak_allocated_bytes == allocator.peak_allocated_bytes == max(curve, default=0)
    assert found.peak_reserved_bytes == allocator.peak_reserved_bytes
    assert found == replay(requests, order, capacity, settings=text, curve=True)
