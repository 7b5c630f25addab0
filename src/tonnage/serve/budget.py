"""How many bytes of requests the server holds at once, over all models and transports."""

from __future__ import annotations

from tonnage.serve.errors import Busy

MOST_BYTES = 4 << 30


class Budget:
    """`take` before holding something, `give` when it is gone."""

    __slots__ = ("most_bytes", "used")

    def __init__(self, most_bytes: int = MOST_BYTES) -> None:
        self.most_bytes, self.used = most_bytes, 0

    def take(self, size: int) -> None:
        """Raises `Busy` where there is no room. One that is larger than all of it has to come alone."""
        if self.used + size > self.most_bytes and self.used:
            raise Busy(
                f"{size} bytes are too many now: the requests that are not answered yet hold {self.used} "
                f"of {self.most_bytes}",
                "try again later",
            )
        self.used += size

    def give(self, size: int) -> None:
        self.used -= size
