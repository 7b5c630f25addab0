"""Ctrl-C while a program runs on behind its window: the program's to act on, so that what was seen is still told."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

INTERRUPTED = 128 + signal.SIGINT  # the exit code, as a shell counts it
_IN_TURN = (signal.SIGINT, signal.SIGKILL)


@contextmanager
def interrupts_go_to(program: Callable[[int], None]) -> Iterator[list[int]]:
    """The first Ctrl-C is handed on, the second kills, a third is ours again. Gives the signals that were handed on."""
    handed_on: list[int] = []

    def hand_on(*_: object) -> None:
        if len(handed_on) == len(_IN_TURN):
            raise KeyboardInterrupt
        handed_on.append(_IN_TURN[len(handed_on)])
        program(handed_on[-1])

    if not _is_ours():
        yield handed_on
        return
    before = signal.signal(signal.SIGINT, hand_on)
    try:
        yield handed_on
    finally:
        signal.signal(signal.SIGINT, before)


def _is_ours() -> bool:
    """Not where it is ignored, as in a shell's background, or another's; and only the main thread may set handlers."""
    is_main = threading.current_thread() is threading.main_thread()
    return is_main and signal.getsignal(signal.SIGINT) is signal.default_int_handler
