"""Copies a trace to where the user wants it, packed if its name ends in .gz; Perfetto and Chrome read both."""

from __future__ import annotations

import gzip
import shutil
from pathlib import Path
from typing import IO

from tonnage.errors import UsageError


def copy_trace(source: Path, target: Path) -> None:
    try:
        with source.open("rb") as given, _opened(target) as taken:
            shutil.copyfileobj(given, taken, 1 << 20)
    except OSError as error:
        raise UsageError(f"the trace cannot be written to {target}: {error.strerror}") from None


def _opened(target: Path) -> IO[bytes]:
    if target.suffix == ".gz":
        return gzip.GzipFile(target, "wb", compresslevel=5)  # type: ignore[return-value]  # it is one
    return target.open("wb")
