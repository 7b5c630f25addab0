"""Ctrl-C and SIGTERM as a wish that long work looks at, so that nothing is cut off in the middle."""

from __future__ import annotations

import signal
from types import FrameType, TracebackType
from typing import Any, Self

_SIGNALS = (signal.SIGINT, signal.SIGTERM)


class StopWish:
    """While it is open, the first signal is a wish; the second one interrupts as usual. Call it to ask."""

    def __init__(self) -> None:
        self._is_wished = False
        self._before: dict[signal.Signals, Any] = {}

    def __call__(self) -> bool:
        return self._is_wished

    def __enter__(self) -> Self:
        self._before = {number: signal.signal(number, self._wish) for number in _SIGNALS}
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _wish(self, number: int, frame: FrameType | None) -> None:  # noqa: ARG002 - as signal handlers are called
        if self._is_wished:
            raise KeyboardInterrupt
        self._is_wished = True
