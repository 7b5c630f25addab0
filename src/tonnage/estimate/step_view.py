"""A step on one GPU as something to look at: when the host launches and the GPU runs each call, and a tree of modules.

Everything is plain and thinned out, so that a step of many thousand calls stays a small page: calls that would be narrower
than a pixel are drawn together, boxes of the tree that nobody could see are put into one.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from tonnage.estimate.kernels.work import KINDS
from tonnage.estimate.step import Step
from tonnage.estimate.step_time import StepTime
from tonnage.estimate.step_tree import PHASES, Box, CallSums, grow_tree
from tonnage.program.trace import Phase

PIXELS = 2400  # half ones of a wide page: what is narrower is not told apart
MOST_STRETCHES = 750  # of a lane
LONGEST = 20


@dataclass(frozen=True, slots=True)
class Stretch:
    """A call, or neighbours of one phase that are too short to be seen alone; the names are those of the longest.

    `ahead` marks what the host launches for a later step, while the GPU is still at this one."""

    start_seconds: float
    end_seconds: float
    phase: str
    operator: str
    module: str
    calls: int = 1
    ahead: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class LongCall:
    """One of the calls that take longest on the GPU."""

    operator: str
    module: str
    phase: str
    start_seconds: float
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class StepView:
    """A step in the middle of a run, from the moment at which the GPU begins with it."""

    gpu: str
    step_seconds: float
    busy_seconds: float  # of the GPU
    host_seconds: float  # of the host, waiting left out
    calls: int
    host: tuple[Stretch, ...]
    device: tuple[Stretch, ...]
    longest: tuple[LongCall, ...]
    tree: Box

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


def view_step(step: Step, times: StepTime, modules: Sequence[str], gpu: str) -> StepView | None:
    """None where nothing takes any time."""
    if times.step_seconds <= 0 or len(step.operator) == 0:
        return None
    calls = _Calls(step, times, modules)
    return StepView(
        gpu=gpu,
        step_seconds=times.step_seconds,
        busy_seconds=times.busy_seconds,
        host_seconds=times.host_seconds,
        calls=len(step.operator),
        host=_thinned(sorted(calls.on_host(), key=_start), times.step_seconds),
        device=_thinned(calls.on_device(), times.step_seconds),
        longest=calls.longest(),
        tree=grow_tree(calls.sums(), modules, step.operators, kinds_of(step)),
    )


def phases_of(step: Step) -> npt.NDArray[np.int64]:
    """Of each call, as a place in PHASES. Whatever is neither backward, optimizer nor a copy counts as forward, as it does
    in the seconds of each phase."""
    phases = np.zeros(len(step.phase), dtype=np.int64)
    phases[step.phase == Phase.BACKWARD] = PHASES.index("backward")
    phases[step.phase == Phase.OPTIMIZER] = PHASES.index("optimizer")
    phases[step.is_copy] = PHASES.index("copy")
    return phases


def kinds_of(step: Step) -> list[str]:
    """What each distinct operator does, by the first of its kernels."""
    kinds = [""] * len(step.operators)
    for operator, kind in zip(step.work_operator[::-1].tolist(), step.works.kind[::-1].tolist(), strict=True):
        kinds[operator] = KINDS[kind]
    return kinds


class _Calls:
    """The calls of a step with their names and times."""

    def __init__(self, step: Step, times: StepTime, modules: Sequence[str]) -> None:
        self.step, self.times = step, times
        self.phase = phases_of(step)
        self.operators = [operator.name for operator in step.operators]
        self.modules = modules

    def _stretch(self, call: int, start: float, end: float, ahead: bool = False) -> Stretch:
        operator, module = self.operators[self.step.operator[call]], self.modules[self.step.module[call]]
        return Stretch(start, end, PHASES[self.phase[call]], operator, module, ahead=ahead)

    def on_device(self) -> Iterator[Stretch]:
        seconds, starts = self.times.device_seconds, self.times.timeline.started.tolist()
        for call in np.flatnonzero(seconds > 0).tolist():
            yield self._stretch(call, starts[call], starts[call] + float(seconds[call]))

    def on_host(self) -> Iterator[Stretch]:
        """A host that is ahead of the GPU has launched this step's calls during an earlier step: in a loop that goes on,
        it launches those of a later one during this step, at the same distance."""
        length = self.times.step_seconds
        ends, seconds = self.times.timeline.launched.tolist(), self.times.launch_seconds.tolist()
        for call, (end, took) in enumerate(zip(ends, seconds, strict=True)):
            start, ahead = (end - took) % length, end - took < -1e-9
            if took > 0:
                yield self._stretch(call, start, min(start + took, length), ahead)

    def longest(self) -> tuple[LongCall, ...]:
        seconds, starts = self.times.device_seconds, self.times.timeline.started
        order = [int(call) for call in np.argsort(-seconds, kind="stable")[:LONGEST] if seconds[call] > 0]
        found = (self._stretch(call, float(starts[call]), 0.0) for call in order)
        return tuple(
            LongCall(
                operator=call.operator,
                module=call.module,
                phase=call.phase,
                start_seconds=call.start_seconds,
                seconds=float(seconds[place]),
            )
            for call, place in zip(found, order, strict=True)
        )

    def sums(self) -> CallSums:
        """Seconds of the GPU by module, operator and phase, in the order in which each pair appears first."""
        keys = np.stack([self.step.module, self.step.operator, self.phase], axis=1)
        distinct, first, which = np.unique(keys, axis=0, return_index=True, return_inverse=True)
        seconds = np.bincount(which.ravel(), weights=self.times.device_seconds, minlength=len(distinct))
        order = np.argsort(first)
        return [
            (int(m), int(o), int(p), float(s)) for (m, o, p), s in zip(distinct[order], seconds[order], strict=True)
        ]


def _start(stretch: Stretch) -> float:
    return stretch.start_seconds


def _thinned(stretches: Iterable[Stretch], length: float) -> tuple[Stretch, ...]:
    """No more than can be seen."""
    kept, narrow = list(stretches), length / PIXELS
    merged = _merged(kept, narrow)
    while len(merged) > MOST_STRETCHES and narrow < length:
        narrow *= 1.5
        merged = _merged(kept, narrow)
    if len(merged) > MOST_STRETCHES:  # phases take turns more often than can be seen
        merged = _merged(kept, 3 * length / MOST_STRETCHES, mixed=True)
    return tuple(merged)


def _merged(stretches: Sequence[Stretch], narrow: float, *, mixed: bool = False) -> list[Stretch]:
    """Neighbours of a kind (`mixed`: of any) that together are narrower than `narrow` become one, named as the longest."""
    merged: list[Stretch] = []
    longest = 0.0
    for stretch in stretches:
        own = stretch.end_seconds - stretch.start_seconds
        before = merged[-1] if merged else None
        if before is None or not _joins(before, stretch, narrow, mixed):
            merged.append(stretch)
            longest = own
            continue
        named, longest = (stretch, own) if own > longest else (before, longest)
        merged[-1] = Stretch(
            before.start_seconds, stretch.end_seconds, named.phase, named.operator, named.module,
            before.calls + stretch.calls, named.ahead,
        )  # fmt: skip
    return merged


def _joins(before: Stretch, after: Stretch, narrow: float, mixed: bool) -> bool:
    alike = mixed or (before.phase == after.phase and before.ahead == after.ahead)
    return alike and after.end_seconds - before.start_seconds <= narrow
