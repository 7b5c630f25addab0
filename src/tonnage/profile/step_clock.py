"""Times steps beside the profiler, which would slow the host down: by events on the device where there is one."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable
from typing import Any

import torch
from torch.utils.data import dataloader

from tonnage.profile.roots import Roots
from tonnage.profile.turns import Turns, restore


class StepClock:
    """Notes moments; nothing waits for the device until `finish`.

    Forward lasts from the call of a module until backward begins, the loop asks for data or the step ends. What happens
    inside another phase, such as the closure of an optimizer, is taken out of it.
    """

    def __init__(self, turns: Turns) -> None:
        self._turns = turns
        self._on_gpu = torch.cuda.is_initialized()
        self._ends: list[Any] = [self._mark()]
        self._spans: list[dict[str, list[tuple[Any, Any]]]] = [_no_spans()]
        self._open: list[str] = []  # phases, the innermost last
        self._since: Any = None
        self._loader = LoaderWatch(self._end_forward)
        self._roots = Roots(self._begin_forward, turns.compiled if turns.compiles else None)
        self._waits: list[float] = []
        self.began = time.monotonic()
        turns.on_backward = lambda begins: self._note("backward", begins)
        turns.on_optimizer = lambda begins: self._note("optimizer", begins)

    @property
    def steps(self) -> int:
        return len(self._ends) - 1

    def end_step(self) -> None:
        self._end_forward()
        self._roots.settle()
        self._ends.append(self._mark())
        self._waits.append(self._loader.take())
        self._spans.append(_no_spans())

    def finish(self) -> list[dict[str, float]]:
        """One row a step."""
        self._turns.on_backward = self._turns.on_optimizer = lambda begins: None
        self._loader.remove()
        self._roots.remove()
        if self._on_gpu:
            self._ends[-1].synchronize()
        return [
            {"step_seconds": self._between(begin, end), "loader_seconds": self._waits[number]}
            | {
                f"{phase}_span_seconds": sum(self._between(*span) for span in spans)
                for phase, spans in self._spans[number].items()
            }
            for number, (begin, end) in enumerate(itertools.pairwise(self._ends))
        ]

    def _mark(self) -> Any:
        if not self._on_gpu:
            return time.perf_counter()
        event: Any = torch.cuda.Event(enable_timing=True)
        event.record()
        return event

    def _begin_forward(self) -> None:
        if self._open[-1:] not in (["forward"], ["backward"]):
            self._begin("forward")

    def _end_forward(self) -> None:
        if self._open[-1:] == ["forward"]:
            self._end("forward")

    def _note(self, phase: str, begins: bool) -> None:
        self._end_forward()
        if begins:
            self._begin(phase)
        elif phase in self._open:
            self._end(phase)

    def _begin(self, phase: str) -> None:
        self._cut()
        self._open.append(phase)

    def _end(self, phase: str) -> None:
        self._cut()
        while self._open.pop() != phase:
            pass

    def _cut(self) -> None:
        """What was open ends here, and if it goes on, goes on from here."""
        now = self._mark()
        if self._open:
            self._spans[-1][self._open[-1]].append((self._since, now))
        self._since = now

    def _between(self, begin: Any, end: Any) -> float:
        return float(begin.elapsed_time(end)) / 1000 if self._on_gpu else end - begin


def _no_spans() -> dict[str, list[tuple[Any, Any]]]:
    return {"forward": [], "backward": [], "optimizer": []}


class LoaderWatch:
    """How long the loop waits for its data loader, and how many workers that has."""

    workers: int | None = None

    def __init__(self, on_wait: Callable[[], None]) -> None:
        self._seconds = 0.0
        self._original: Callable[[Any], Any] = dataloader._BaseDataLoaderIter.__next__
        watch, original = self, self._original

        def following(this: Any) -> Any:
            on_wait()
            began = time.perf_counter()
            try:
                return original(this)
            finally:
                watch._seconds += time.perf_counter() - began
                LoaderWatch.workers = int(this._num_workers)

        self._ours = following
        dataloader._BaseDataLoaderIter.__next__ = following

    def take(self) -> float:
        seconds, self._seconds = self._seconds, 0.0
        return seconds

    def remove(self) -> None:
        restore(dataloader._BaseDataLoaderIter, "__next__", self._ours, self._original)
