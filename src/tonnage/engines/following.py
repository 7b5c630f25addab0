"""Text that is still being written, line by line."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path

_POLL_SECONDS = 0.1


def follow_file(path: Path, goes_on: Callable[[], bool]) -> Iterator[str]:
    """Lines without their ends; new ones are waited for as long as `goes_on` says so."""
    with open(path, encoding="utf-8", errors="replace", newline="\n") as file:
        rest, is_last = "", False
        while True:
            text = file.readline()
            rest += text
            if rest.endswith("\n"):
                yield rest[:-1]
                rest = ""
            elif not text and is_last:
                break
            elif not text:
                # One more look after the end: the last lines may have come between reading and asking.
                is_last = not goes_on()
                time.sleep(0 if is_last else _POLL_SECONDS)
        if rest:
            yield rest
