"""Compares the simulated allocator, event by event, with histories recorded on a real GPU by `record_snapshot.py`.

    python check_snapshot.py [DIRECTORY_OR_FILE...] [--verbose]     by default the histories in results/

Each history is replayed four times. With the recorded addresses of new segments everything must agree: the address of
every block, every segment taken or returned, every error, all peaks. Then the addresses are chosen by the simulation's
own rule (`AddressSpace`), and for comparison plainly falling and rising: now blocks may lie elsewhere, and the peaks
show what that costs. `placed alike` counts the segments whose distance to the first one is that on the GPU.
"""

import argparse
import gzip
import json
import sys
from collections import deque
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from tonnage.estimate.allocator import CachingAllocator, OutOfMemory
from tonnage.estimate.blocks import Block, Device
from tonnage.estimate.settings import parse_settings

NUMBERS = [
    "peak_allocated_bytes",
    "peak_reserved_bytes",
    "allocated_bytes",
    "reserved_bytes",
    "num_retries",
    "num_ooms",
]
SegmentEvent = tuple[str, int, int]  # action, address, size
Placing = Literal["recorded", "own", "falling", "rising"]
MIDDLE_ADDRESS = 1 << 50
PLACINGS: list[Placing] = ["own", "falling", "rising"]
HISTORIES = Path(__file__).parent / "results" / "h200-2026-11-15"


class ReplayDevice(Device):
    """Writes down its segments and, if told so, places new ones where the real GPU did."""

    def __init__(self, total_bytes: int, placing: Placing) -> None:
        super().__init__(None, total_bytes)
        self.placing = placing
        self.log: list[SegmentEvent] = []
        self.upcoming: deque[SegmentEvent] = deque()  # what the real allocator did before the block in question
        self.known: list[tuple[int, int]] = []  # address space of expandable segments
        self.low = self.high = MIDDLE_ADDRESS

    def note(self, action: str, address: int, size: int) -> None:
        self.log.append((action, address, size))

    def place(self, size: int) -> int:
        if self.placing == "own":
            return super().place(size)
        if self.placing == "falling":
            self.low -= size
            return self.low
        return self._recorded(size) or self._above(size)

    def vacate(self, address: int) -> None:
        if self.placing == "own":
            super().vacate(address)
        else:
            del self.segments[address]

    def _above(self, size: int) -> int:
        self.high += size
        return self.high - size

    def _recorded(self, size: int) -> int | None:
        """Where the real GPU placed this segment; `None` if it took none here: a difference, noted later."""
        for action, address, _ in self.upcoming if self.placing == "recorded" else ():
            inside = any(start in self.segments and start <= address < end for start, end in self.known)
            if action in ("segment_alloc", "segment_map") and not inside and address not in self.segments:
                if action == "segment_map":
                    self.known.append((address, address + size))
                return address
        return None


@dataclass
class Comparison:
    """What was found in one replay of one history."""

    blocks: int = 0
    segments: int = 0
    wrong_addresses: int = 0
    wrong_segments: int = 0
    wrong_errors: int = 0
    unknown_frees: int = 0
    segments_taken: int = 0  # with cudaMalloc, so none with expandable segments
    placed_alike: int = 0
    shift: int | None = None  # from the simulated to the real address of the first segment
    first_difference: str = ""
    numbers: dict[str, int] = field(default_factory=dict)

    def note(self, text: str) -> None:
        self.first_difference = self.first_difference or text

    def wrong(self) -> int:
        return self.wrong_addresses + self.wrong_segments + self.wrong_errors + self.unknown_frees


def compare(recording: dict[str, Any], placing: Placing) -> Comparison:
    allocator, device = _allocator_for(recording, placing)
    found = Comparison()
    living: dict[int, Block] = {}
    for position, (code, address, size, stream) in enumerate(recording["events"]):
        action = recording["actions"][code]
        if action.startswith("segment_"):
            device.upcoming.append((action, address, size))
        elif action == "alloc":
            found.blocks += 1
            try:
                block = living[address] = allocator.allocate(size, stream)
            except OutOfMemory as error:
                found.wrong_errors += 1
                found.note(f"event {position}: {error}, but not on the GPU")
                block = None
            if block is not None and placing == "recorded" and block.address != address:
                found.wrong_addresses += 1
                found.note(f"event {position}: {size} bytes at {block.address:#x}, on the GPU at {address:#x}")
            _compare_segments(found, device, position)
        elif action == "oom":
            _expect_error(found, allocator, size, stream, position)
            _compare_segments(found, device, position)
        elif action == "free_completed":
            _free(found, allocator, living.pop(address, None), position)
            if size == recording["marker_bytes"]:
                allocator.empty_cache()
    _compare_segments(found, device, len(recording["events"]))
    found.numbers = {name: int(getattr(allocator, name)) for name in NUMBERS}
    return found


def _allocator_for(recording: dict[str, Any], placing: Placing) -> tuple[CachingAllocator, ReplayDevice]:
    chosen = parse_settings(recording["settings"])
    allocator = CachingAllocator(
        expandable_segments=chosen.expandable_segments,
        max_split_bytes=chosen.max_split_bytes,
        max_non_split_rounding_bytes=chosen.max_non_split_rounding_bytes,
        roundup_power2_divisions=chosen.roundup_power2_divisions,
        garbage_collection_threshold=chosen.garbage_collection_threshold,
        large_segment_bytes=chosen.large_segment_bytes,
        allowed_bytes=recording["allowed_bytes"],
    )
    allocator.device = device = ReplayDevice(recording["device_bytes"], placing)
    return allocator, device


def _compare_segments(found: Comparison, device: ReplayDevice, position: int) -> None:
    """Segments since the last comparison: equal in action, size and order, with recorded addresses in address too."""
    real = list(device.upcoming)
    simulated = list(device.log)
    device.upcoming.clear()
    device.log.clear()
    found.segments += len(real)
    _count_alike(found, real, simulated)
    if device.placing != "recorded":
        real = [(action, 0, size) for action, _, size in real]
        simulated = [(action, 0, size) for action, _, size in simulated]
    if real != simulated:
        same = sum(1 for one, other in zip(real, simulated, strict=False) if one == other)
        found.wrong_segments += max(len(real), len(simulated)) - same
        found.note(f"event {position}: segments {_show(simulated)}, on the GPU {_show(real)}")


def _count_alike(found: Comparison, real: list[SegmentEvent], simulated: list[SegmentEvent]) -> None:
    taken = [event for event in real if event[0] == "segment_alloc"]
    own = [event for event in simulated if event[0] == "segment_alloc"]
    found.segments_taken += len(taken)
    for (_, address, size), (_, own_address, own_size) in zip(taken, own, strict=False):
        if found.shift is None:
            found.shift = address - own_address
        found.placed_alike += size == own_size and address - own_address == found.shift


def _show(events: list[SegmentEvent]) -> str:
    parts = [f"{action.removeprefix('segment_')} {size / 2**20:g} MiB" for action, _, size in events[:6]]
    return ", ".join(parts) + (", ..." if len(events) > 6 else "") or "none"


def _expect_error(found: Comparison, allocator: CachingAllocator, size: int, stream: int, position: int) -> None:
    try:
        block = allocator.allocate(size, stream)
    except OutOfMemory:
        return
    allocator.free(block)
    found.wrong_errors += 1
    found.note(f"event {position}: out of memory on the GPU, but {size} bytes fitted here")


def _free(found: Comparison, allocator: CachingAllocator, block: Block | None, position: int) -> None:
    if block is None:
        found.unknown_frees += 1
        found.note(f"event {position}: frees a block that was never seen")
    else:
        allocator.free(block)


def load(path: Path) -> dict[str, Any]:
    with gzip.open(path, "rt", encoding="utf-8") as file:
        recording: dict[str, Any] = json.load(file)
    return recording


def differences(recording: dict[str, Any], found: Comparison) -> list[str]:
    """What differs from the GPU in a replay with recorded addresses; empty if everything agrees."""
    texts = [
        f"{name}: {found.numbers[name]}, on the GPU {recording[name]}"
        for name in NUMBERS
        if found.numbers[name] != recording[name]
    ]
    if found.wrong():
        texts.append(f"{found.wrong()} differences, the first at {found.first_difference}")
    return texts


PEAKS = "allocated reserved"
HEADER = [
    f"{'':42}| recorded   | {'own rule':31} | {'falling':18} | rising",
    f"{'program':25} blocks segments | addresses  | placed alike {PEAKS} | {PEAKS} | {PEAKS}",
]


def report(recording: dict[str, Any], verbose: bool) -> bool:
    """Prints one row; returns whether the replay with recorded addresses agreed in everything."""
    exact = compare(recording, "recorded")
    texts = differences(recording, exact)
    agrees = not texts
    own, falling, rising = (compare(recording, placing) for placing in PLACINGS)
    alike = f"{own.placed_alike} of {own.segments_taken}" if own.segments_taken else "-"
    print(
        f"{recording['program']:25} {exact.blocks:6} {exact.segments:8} | {'all agrees' if agrees else 'DIFFERS':10} "
        f"| {alike:12} {_peaks(own, recording)} | {_peaks(falling, recording)} | {_peaks(rising, recording)}"
    )
    if recording["private_pools"]:
        texts.append(f"{recording['private_pools']} private pools are in the history, which are not simulated")
    if verbose and own.first_difference:
        texts.append(f"own rule: first difference at {own.first_difference}")
    for text in texts:
        print(f"    {text}")
    return agrees


def _peaks(found: Comparison, recording: dict[str, Any]) -> str:
    allocated, reserved = (_percent(found.numbers[name], recording[name]) for name in NUMBERS[:2])
    return f"{allocated:>9} {reserved:>8}"


def _percent(simulated: int, real: int) -> str:
    return f"{100 * (simulated - real) / max(real, 1):+.2f} %"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("paths", nargs="*", type=Path, default=[HISTORIES])
    parser.add_argument("--verbose", action="store_true")
    options = parser.parse_args()
    files: list[Path] = []
    for path in options.paths:
        files += sorted(path.glob("*.json.gz")) if path.is_dir() else [path]
    recordings = [load(path) for path in files]
    for gpu, torch_version in sorted({(recording["gpu"], recording["torch"]) for recording in recordings}):
        print(f"{gpu}, torch {torch_version}; peaks as simulated minus real")
    print(*HEADER, sep="\n")
    outcomes = [report(recording, options.verbose) for recording in recordings]
    print(f"{sum(outcomes)} of {len(outcomes)} histories agree in every block, segment, error and peak")
    return 0 if outcomes and all(outcomes) else 1


if __name__ == "__main__":
    sys.exit(main())
