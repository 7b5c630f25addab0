"""How a benchmark run is shown while it goes on: a bar on a terminal, now and then a line elsewhere."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, TextIO

if TYPE_CHECKING:
    from rich.console import Console

    from tonnage.benchmark.progress import Progress, Watcher

LINE_SECONDS = 10.0


@contextmanager
def watching() -> Iterator[Watcher]:
    """On standard error, so that standard output has results alone."""
    from rich.console import Console

    console = Console(stderr=True)
    if not console.is_terminal:
        yield Lines(sys.stderr)
        return
    bar = Bar(console)
    with bar.live:
        yield bar


class Lines:
    """One line every ten seconds, and one for each note."""

    def __init__(self, stream: TextIO, clock: Callable[[], float] = time.monotonic) -> None:
        self._stream, self._clock = stream, clock
        self._said_at = clock()

    def show(self, progress: Progress) -> None:
        now = self._clock()
        if now - self._said_at >= LINE_SECONDS:
            self._said_at = now
            print(_line(progress), file=self._stream, flush=True)

    def note(self, text: str) -> None:
        print(f"note: {text}", file=self._stream, flush=True)


class Bar:
    """A bar with what is being measured, how long it has gone on and how long it will."""

    def __init__(self, console: Console) -> None:
        from rich.progress import BarColumn, MofNCompleteColumn, SpinnerColumn, TextColumn
        from rich.progress import Progress as Live

        self.live = Live(
            SpinnerColumn(),
            BarColumn(bar_width=30),
            MofNCompleteColumn(),
            TextColumn("{task.fields[times]}"),
            TextColumn("{task.description}", markup=False),
            console=console,
            transient=True,
        )
        self._task = self.live.add_task("starting", total=None, times="")

    def show(self, progress: Progress) -> None:
        self.live.update(
            self._task,
            total=progress.total,
            completed=progress.done,
            times=_times(progress),
            description=_current(progress),
        )

    def note(self, text: str) -> None:
        from rich.text import Text

        self.live.console.print(Text(f"note: {text}"))


def _line(progress: Progress) -> str:
    current = _current(progress)
    return f"{progress.done}/{progress.total}, {_times(progress)}" + (f": {current}" if current else "")


def _times(progress: Progress) -> str:
    elapsed = format_duration(progress.elapsed_seconds)
    if progress.remaining_seconds is None:
        return elapsed
    return f"{elapsed}, about {format_duration(progress.remaining_seconds)} left"


def _current(progress: Progress) -> str:
    from tonnage.benchmark.work import in_words

    return in_words(progress.current) if progress.current else ""


def format_duration(seconds: float) -> str:
    """`80` as `1 min 20 s`."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    return f"{whole // 3600} h {whole % 3600 // 60} min"
