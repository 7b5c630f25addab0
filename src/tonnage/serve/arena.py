"""Memory that a server and one of its instances both see. It has no name, so nothing is left of it when both are gone."""

from __future__ import annotations

import mmap
import os

PAGE_BYTES = 4096
LARGE_BYTES = 64 << 20  # an arena of more than this is given up when it is not needed any more:
SMALL_TURNS = 256  # when so many turns in a row would have done with an eighth of it
_ALIGNMENT = 64


def aligned(size: int) -> int:
    """Where the next tensor may begin: vector instructions like such addresses."""
    return (size + _ALIGNMENT - 1) // _ALIGNMENT * _ALIGNMENT


def roomy(size: int) -> int:
    """How large to make an arena for so many bytes: with room for more, but not much where they are many already."""
    return size + min(size, LARGE_BYTES // 2)


class Arena:
    """Made by one process (`Arena.make`), mapped by the other from the descriptor that it is sent."""

    def __init__(self, descriptor: int, size: int) -> None:
        self.size = size
        self._map = mmap.mmap(descriptor, size)
        self.view = memoryview(self._map)

    @classmethod
    def make(cls, size: int) -> tuple[Arena, int]:
        """An arena of at least this size, and the descriptor to send. Whoever called closes the descriptor."""
        size = max(PAGE_BYTES, -(-size // PAGE_BYTES) * PAGE_BYTES)
        descriptor = os.memfd_create("tonnage-arena", os.MFD_CLOEXEC)
        try:
            os.ftruncate(descriptor, size)
            return cls(descriptor, size), descriptor
        except BaseException:
            os.close(descriptor)
            raise

    def is_wasteful_for(self, size: int) -> bool:
        return self.size > LARGE_BYTES and 8 * size < self.size

    def close(self) -> None:
        """Views that are still in use keep the memory until they go."""
        try:
            self.view.release()
            self._map.close()
        except BufferError:
            pass
