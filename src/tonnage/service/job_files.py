"""Job traces and throughputs from files, compressed or not."""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO

from tonnage.allocate.simulate.jobs import Jobs
from tonnage.allocate.simulate.throughputs import parse_throughputs
from tonnage.allocate.simulate.trace_lines import parse_trace
from tonnage.allocate.speeds import SpeedTable
from tonnage.errors import InvalidFile, NotFound

_GZIP = b"\x1f\x8b"


def read_jobs(path: str | Path, table: SpeedTable) -> Jobs:
    """Raises `NotFound`, `InvalidFile` or, for a class that has no speed on so many GPUs, `DoesNotFit`."""
    with _text(path) as lines:
        return parse_trace(lines, str(path), table)


def read_throughputs(path: str | Path) -> SpeedTable:
    """Raises `NotFound` or `InvalidFile`."""
    with _text(path) as lines:
        return parse_throughputs(lines.read(), str(path))


@contextmanager
def _text(path: str | Path) -> Iterator[TextIO]:
    try:
        with open(path, "rb") as raw:
            packed = raw.read(2) == _GZIP
        opened = gzip.open if packed else open
        with opened(path, "rt", encoding="utf-8-sig", newline="\n") as lines:
            yield lines
    except FileNotFoundError:
        raise NotFound(f"no such file: {path}") from None
    except UnicodeDecodeError as error:
        raise InvalidFile(f"{path}: not text in UTF-8: {error.reason}") from None
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise InvalidFile(f"{path}: the compressed file is damaged: {error}") from None
    except OSError as error:
        raise InvalidFile(f"{path}: cannot be read: {error.strerror or error}") from None
