"""The allocator's own history of one run, reduced to what a simulation of the allocator can be checked against."""

from typing import Any

import torch

# Written into every file, because the rows are too many to spell out.
LEGEND = {
    "a": "block allocated: requested bytes, index into frames or null",
    "f": "block freed: number of its 'a' event counted from 0, or -1 if older than the recording",
    "s": "segment taken from the device: bytes",
    "S": "segment given back to the device: bytes",
    "o": "out of memory: bytes",
}


def start(stacks: bool) -> None:
    torch.cuda.memory._record_memory_history(
        enabled="all", context="alloc" if stacks else None, stacks="python", max_entries=2_000_000
    )


def collect() -> dict[str, Any]:
    """Events in order, and the frames they refer to."""
    traces = torch.cuda.memory._snapshot()["device_traces"]
    torch.cuda.memory._record_memory_history(enabled=None)
    return compact(traces[0] if traces else [])


def compact(entries: list[dict[str, Any]]) -> dict[str, Any]:
    events: list[list[Any]] = []
    frames: dict[str, int] = {}
    number_at: dict[int, int] = {}
    allocations = 0
    for entry in entries:
        action, address, size = entry["action"], entry["addr"], entry["size"]
        if action == "alloc":
            number_at[address] = allocations
            allocations += 1
            frame = _innermost(entry.get("frames") or [])
            events.append(["a", size, None if frame is None else frames.setdefault(frame, len(frames))])
        elif action == "free_completed":
            # Not free_requested: a block used on another stream stays taken until that stream has passed.
            events.append(["f", number_at.pop(address, -1)])
        elif action == "segment_alloc" or action == "segment_map":
            events.append(["s", size])
        elif action == "segment_free" or action == "segment_unmap":
            events.append(["S", size])
        elif action == "oom":
            events.append(["o", size])
    return {"events": events, "frames": list(frames)}


def _innermost(stack: list[dict[str, Any]]) -> str | None:
    """The innermost frame, and the innermost one outside torch when that is another."""
    if not stack:
        return None
    texts = [f"{_short(frame['filename'])}:{frame['line']}:{frame['name']}" for frame in stack]
    outside = next((text for text in texts if not text.startswith("torch/")), texts[0])
    return texts[0] if outside == texts[0] else f"{texts[0]} < {outside}"


def _short(filename: str) -> str:
    for marker in ("site-packages/", "programs/"):
        if marker in filename:
            return filename.split(marker, 1)[1]
    return filename.rsplit("/", 1)[-1]
