"""A small file that several processes read, change and write again, one after the other."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tonnage.errors import UsageError


@dataclass(slots=True)
class Content:
    """None where there is no file yet; what it holds at the end is written."""

    content: bytes | None


@contextmanager
def replaced(path: Path) -> Iterator[Content]:
    """Others wait meanwhile. The file is replaced at once or, after an error, stays as it was."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        lock = os.open(path.with_name(f".{path.name}.lock"), os.O_RDWR | os.O_CREAT, 0o600)
    except OSError as error:
        raise UsageError(f"{path} cannot be written: {error.strerror}") from None
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        before = _read(path)
        file = Content(before)
        yield file
        if file.content is not None and file.content != before:
            _write(path, file.content)
    finally:
        os.close(lock)  # gives up the lock as well


def _read(path: Path) -> bytes | None:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}") from None


def _write(path: Path, content: bytes) -> None:
    partial = path.with_name(f".{path.name}.partial")
    try:
        descriptor = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        partial.replace(path)
    except OSError as error:
        raise UsageError(f"{path} cannot be written: {error.strerror}") from None
