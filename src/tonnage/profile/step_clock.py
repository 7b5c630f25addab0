"""Times steps beside the profiler, which would slow the host down: by events on the device where there is one."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable
from typing import Any

import torch
from torch.utils.data import dataloader

from tonnage.profile.turns import Turns, restore


class StepClock:
    """Notes moments; nothing waits for the device until `finish`."""

    def __init__(self, turns: Turns) -> None:
        self._turns = turns
        self._on_gpu = torch.cuda.is_initialized()
        self._ends: list[Any] = [self._mark()]
        self._spans: dict[str, list[list[tuple[Any, Any]]]] = {"backward": [[]], "optimizer": [[]]}
        self._open: dict[str, Any] = {}
        self._loader = LoaderWatch()
        self._waits: list[float] = []
        self.began = time.monotonic()
        turns.on_backward = lambda begins: self._note("backward", begins)
        turns.on_optimizer = lambda begins: self._note("optimizer", begins)

    @property
    def steps(self) -> int:
        return len(self._ends) - 1

    def end_step(self) -> None:
        self._ends.append(self._mark())
        self._waits.append(self._loader.take())
        for spans in self._spans.values():
            spans.append([])

    def finish(self) -> list[dict[str, float]]:
        """One row a step."""
        self._turns.on_backward = self._turns.on_optimizer = lambda begins: None
        self._loader.remove()
        if self._on_gpu:
            self._ends[-1].synchronize()
        seconds = [self._between(a, b) for a, b in itertools.pairwise(self._ends)]
        return [
            {
                "step_seconds": step,
                "backward_span_seconds": self._sum(self._spans["backward"][number]),
                "optimizer_span_seconds": self._sum(self._spans["optimizer"][number]),
                "loader_seconds": self._waits[number],
            }
            for number, step in enumerate(seconds)
        ]

    def _mark(self) -> Any:
        if not self._on_gpu:
            return time.perf_counter()
        event: Any = torch.cuda.Event(enable_timing=True)
        event.record()
        return event

    def _note(self, name: str, begins: bool) -> None:
        if begins:
            self._open.setdefault(name, self._mark())
        elif name in self._open:
            self._spans[name][-1].append((self._open.pop(name), self._mark()))

    def _sum(self, spans: list[tuple[Any, Any]]) -> float:
        return sum(self._between(begin, end) for begin, end in spans)

    def _between(self, begin: Any, end: Any) -> float:
        return float(begin.elapsed_time(end)) / 1000 if self._on_gpu else end - begin


class LoaderWatch:
    """How long the loop waits for its data loader, and how many workers that has."""

    workers: int | None = None

    def __init__(self) -> None:
        self._seconds = 0.0
        self._original: Callable[[Any], Any] = dataloader._BaseDataLoaderIter.__next__
        watch, original = self, self._original

        def following(this: Any) -> Any:
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
