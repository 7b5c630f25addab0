"""What the recorder, the simulated GPU and the check agree on."""

from typing import Any, Protocol

ACTIONS = [
    "alloc",
    "free_requested",
    "free_completed",
    "segment_alloc",
    "segment_free",
    "segment_map",
    "segment_unmap",
    "oom",
]
# The history does not show calls of empty_cache, so a block of this odd size is made and freed before each.
MARKER_BYTES = 98_777


class Gpu(Protocol):
    """What a program needs: a real GPU, or the simulation in a dry run."""

    device: str

    def start(self, allowed_bytes: int | None) -> None: ...
    def empty(self, size: int, stream: int) -> object: ...
    def empty_cache(self) -> None: ...
    def finish(self) -> dict[str, Any]: ...


class OutOfGpuMemory(Exception):  # says what happened, as the package's own errors do
    """The GPU could not give the block."""
