"""Writes what a profile has found: the flame graph, files for other tools, the trace itself."""

from __future__ import annotations

import gzip
import shutil
from pathlib import Path
from typing import IO

from tonnage.errors import UsageError
from tonnage.profile.flamegraph import draw
from tonnage.profile.report import PYTHON_STACKS, ProfileReport


def draw_report(report: ProfileReport) -> str:
    found = report.indicators
    about = f"{report.stacks_are} of a step, by phase, module and operator"
    return draw(report.stacks, found.program, PYTHON_STACKS if report.stacks_are == PYTHON_STACKS else about)


def write_text(path: Path, text: str) -> None:
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise UsageError(f"{path} cannot be written: {error.strerror}") from None


def copy_trace(source: Path, target: Path) -> None:
    """Packed if its name ends in .gz; Perfetto and Chrome read both."""
    try:
        with source.open("rb") as given, _opened(target) as taken:
            shutil.copyfileobj(given, taken, 1 << 20)
    except OSError as error:
        raise UsageError(f"the trace cannot be written to {target}: {error.strerror}") from None


def _opened(target: Path) -> IO[bytes]:
    if target.suffix == ".gz":
        return gzip.GzipFile(target, "wb", compresslevel=5)  # type: ignore[return-value]  # it is one
    return target.open("wb")
