"""What a job prints, in files of a fixed size: the first and the last two are kept, and reading tells what is missing."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import IO, BinaryIO

from tonnage.units import format_bytes

_KEPT_PARTS = 3
_POLL_SECONDS = 0.1
_CHUNK_BYTES = 1 << 16


class LogWriter:
    """Takes in what comes out of a pipe, in a thread of its own, until nobody holds its other end."""

    def __init__(self, folder: Path, most_bytes: int) -> None:
        self._folder, self._part_bytes = folder, max(1, most_bytes // _KEPT_PARTS)
        self._number, self._file = 0, _create(folder, 0)
        self._thread: threading.Thread | None = None

    def start(self, pipe: IO[bytes]) -> None:
        self._thread = threading.Thread(target=self._run, args=[pipe.fileno()], name="tonnage-log", daemon=True)
        self._thread.start()

    def finish(self, seconds: float = 0.0) -> None:
        """Until all is written; a process that got away may hold the pipe for longer than anybody wants to wait."""
        if self._thread is not None:
            self._thread.join(seconds)
        if self._thread is None or not self._thread.is_alive():
            self._file.close()

    def _run(self, pipe: int) -> None:
        while chunk := os.read(pipe, _CHUNK_BYTES):
            with suppress(OSError):  # a full disk costs lines of the log, but must not hold the job up
                self.write(chunk)

    def write(self, chunk: bytes) -> None:
        while len(chunk) > (room := self._part_bytes - self._file.tell()):
            self._file.write(chunk[:room])
            chunk = chunk[room:]
            self._begin_part()
        self._file.write(chunk)

    def _begin_part(self) -> None:
        fresh = _create(self._folder, self._number + 1)
        self._file.close()
        self._number, self._file = self._number + 1, fresh
        old = self._number - _KEPT_PARTS + 1
        if old > 0:
            _path(self._folder, old).unlink()


def read_log(folder: Path, goes_on: Callable[[], bool]) -> Iterator[str]:
    """Lines without their ends; new ones are waited for as long as `goes_on` says so."""
    last, rest = -1, b""
    while found := _open_next(folder, last):
        number, file = found
        if number > last + 1:
            yield from filter(None, [_text(rest), _dropped(folder, number - last - 1)])
            rest = b""
        with file:
            for piece in _pieces(folder, number, file, goes_on):
                rest += piece
                if rest.endswith(b"\n"):
                    yield _text(rest)
                    rest = b""
        last = number
    if rest:
        yield _text(rest)


def _pieces(folder: Path, number: int, file: BinaryIO, goes_on: Callable[[], bool]) -> Iterator[bytes]:
    """Of one part, until there is a later one or all is over. That is asked first: what was written until then is read."""
    while True:
        is_complete = not goes_on() or bool(_later(folder, number))
        yield from file
        if is_complete:
            return
        time.sleep(_POLL_SECONDS)


def _open_next(folder: Path, number: int) -> tuple[int, BinaryIO] | None:
    """The next part that is still there: the writer may drop one while we look."""
    while later := _later(folder, number):
        with suppress(FileNotFoundError):
            return min(later), open(_path(folder, min(later)), "rb")
    return None


def _later(folder: Path, number: int) -> list[int]:
    found = (path.stem.partition(".")[2] for path in folder.glob("output*.log"))
    return [later for later in (int(text or 0) for text in found) if later > number]


def _dropped(folder: Path, parts: int) -> str:
    missing_bytes = parts * _path(folder, 0).stat().st_size  # all full parts are as long as the first
    return f"[tonnage: {format_bytes(missing_bytes)} of output were dropped here]"


def _path(folder: Path, number: int) -> Path:
    return folder / (f"output.{number}.log" if number else "output.log")


def _create(folder: Path, number: int) -> BinaryIO:
    return open(_path(folder, number), "wb", buffering=0)  # whoever follows reads it at once


def _text(line: bytes) -> str:
    return line.removesuffix(b"\n").decode(errors="replace")
