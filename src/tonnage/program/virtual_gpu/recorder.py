"""Collects what happens on the virtual GPU and turns it into a Trace."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from itertools import pairwise

import numpy as np

from tonnage.program.trace import Category, Event, Operator, Origin, Phase, Trace

UNTAGGED = -1


class Recorder:
    """The event list in the making. Knows blocks, calls and steps; knows nothing of torch."""

    def __init__(self) -> None:
        self.event_kind = array("b")
        self.event_subject = array("i")
        self.block_bytes = array("q")
        self.block_tag = array("b")
        self.block_module = array("i")
        self.block_call = array("i")
        self.block_phase = array("b")
        self.block_survives = array("b")  # did a backward pass begin or go on while the block was alive?
        self._block_birth = array("i")
        self._backward_calls = 0
        self.call_operator = array("i")
        self.call_phase = array("b")
        self.call_module = array("i")
        self.call_views = array("i")
        self.call_entered = array("i")
        self.call_host_operators = array("i")
        self.call_host_bytes = array("q")
        self.call_host_random = array("q")
        self._is_aside = False
        self._forget_host()
        self.operators: list[Operator] = []
        self.modules: list[str] = [""]
        self._module_index: dict[str, int] = {"": 0}
        self.allocated_bytes = 0
        self.peak_bytes = 0
        self.steps = 0
        self.kept_bytes: list[int] = []  # in use at the end of each step
        self.phase = Phase.SETUP
        self.warnings: list[str] = []
        self.storage_bytes = 0
        self.checkpoints = 0
        self._mark = (0, 0, 0, 0, 0, 1)
        self._closed = False

    def allocate(self, nbytes: int, module: int, phase: Phase) -> int:
        block = len(self.block_bytes)
        self.block_bytes.append(nbytes)
        self.block_tag.append(UNTAGGED)
        self.block_module.append(module)
        self.block_call.append(len(self.call_operator))
        self.block_phase.append(phase)
        self.block_survives.append(1)
        self._block_birth.append(self._backward_calls)
        self._event(Event.ALLOCATE, block)
        self.allocated_bytes += nbytes
        if self.allocated_bytes > self.peak_bytes:
            self.peak_bytes = self.allocated_bytes
        return block

    def free(self, block: int) -> None:
        if self._closed:
            return
        self.block_survives[block] = self._backward_calls > self._block_birth[block]
        self.allocated_bytes -= self.block_bytes[block]
        self._event(Event.FREE, block)

    def call(self, operator: int, module: int, phase: Phase) -> None:
        self._event(Event.CALL, len(self.call_operator))
        self._backward_calls += phase == Phase.BACKWARD
        self.call_operator.append(operator)
        self.call_phase.append(phase)
        self.call_module.append(module)
        self.call_views.append(self._views)
        self.call_entered.append(self._entered)
        self.call_host_operators.append(self._host_operators)
        self.call_host_bytes.append(self._host_bytes)
        self.call_host_random.append(self._host_random)
        self._forget_host()

    # -- what the host does between calls -------------------------------------------------------------------------------

    @contextmanager
    def aside(self) -> Iterator[None]:
        """Not the program's own work: a data loader's, which a real run does elsewhere or ahead of time, and ours, when
        we look up values that a real run would have on the GPU."""
        before, self._is_aside = self._is_aside, True
        try:
            yield
        finally:
            self._is_aside = before

    def view(self) -> None:
        self._views += not self._is_aside

    def enter(self) -> None:
        self._entered += 1

    def host_operator(self, nbytes: int, random_numbers: int) -> None:
        if not self._is_aside:
            self._host_operators += 1
            self._host_bytes += nbytes
            self._host_random += random_numbers

    def _forget_host(self) -> None:
        self._views = self._entered = self._host_operators = self._host_bytes = self._host_random = 0

    def end_step(self) -> None:
        self._event(Event.STEP, self.steps)
        self.steps += 1
        self.kept_bytes.append(self.allocated_bytes)

    def empty_cache(self) -> None:
        self._event(Event.EMPTY_CACHE, 0)

    def reset_peak(self) -> None:
        self.peak_bytes = self.allocated_bytes
        self._event(Event.RESET_PEAK, 0)

    def tag(self, block: int, category: Category) -> None:
        """Say what a block is for. The first word counts, but what was copied from the host may turn out to be weights."""
        if self.block_tag[block] in (UNTAGGED, Category.INPUTS):
            self.block_tag[block] = category

    def warn(self, text: str) -> None:
        if text not in self.warnings:
            self.warnings.append(text)

    def module(self, path: str) -> int:
        index = self._module_index.get(path)
        if index is None:
            index = self._module_index[path] = len(self.modules)
            self.modules.append(path)
        return index

    def mark(self) -> None:
        """Remember this moment, in case what follows is not wanted."""
        events, blocks, calls = len(self.event_kind), len(self.block_bytes), len(self.call_operator)
        self._mark = (events, blocks, calls, self.steps, len(self.operators), len(self.modules))

    def rewind(self) -> None:
        """Forget everything since the mark, and take no more."""
        self._closed = True
        events, blocks, calls, self.steps, operators, modules = self._mark
        del self.operators[operators:], self.modules[modules:]
        del self.event_kind[events:], self.event_subject[events:]
        for name in ("operator", "phase", "module", "views", "entered", "host_operators", "host_bytes", "host_random"):
            del getattr(self, f"call_{name}")[calls:]
        for column in (self.block_bytes, self.block_tag, self.block_module, self.block_call, self.block_phase):
            del column[blocks:]
        del self.block_survives[blocks:], self._block_birth[blocks:]

    def growth(self) -> int:
        """Bytes by which each of the last steps left more in use than the one before; 0 if memory comes to rest."""
        gains = [after - before for before, after in pairwise(self.kept_bytes[-4:])]
        steady = len(gains) == 3 and min(gains) > 0 and max(gains) <= 4 * min(gains)
        return min(gains) if steady else 0

    def trace(self, origin: Origin) -> Trace:
        return Trace(
            origin=origin,
            operators=tuple(self.operators),
            modules=tuple(self.modules),
            event_kind=np.array(self.event_kind, dtype=np.int8),
            event_subject=np.array(self.event_subject, dtype=np.int32),
            block_bytes=np.array(self.block_bytes, dtype=np.int64),
            block_category=np.fromiter(self._categories(origin.mode == "training"), np.int8, len(self.block_bytes)),
            block_module=np.array(self.block_module, dtype=np.int32),
            block_call=np.array(self.block_call, dtype=np.int32),
            call_operator=np.array(self.call_operator, dtype=np.int32),
            call_phase=np.array(self.call_phase, dtype=np.int8),
            call_module=np.array(self.call_module, dtype=np.int32),
            call_views=np.array(self.call_views, dtype=np.int32),
            call_entered=np.array(self.call_entered, dtype=np.int32),
            call_host_operators=np.array(self.call_host_operators, dtype=np.int32),
            call_host_bytes=np.array(self.call_host_bytes, dtype=np.int64),
            call_host_random=np.array(self.call_host_random, dtype=np.int64),
        )

    def _categories(self, training: bool) -> Iterable[Category]:
        """The tag where there is one; else an activation is what the forward pass makes and leaves for later."""
        for tag, born, survives in zip(self.block_tag, self.block_phase, self.block_survives, strict=True):
            if tag != UNTAGGED:
                yield Category(tag)
            elif born == Phase.FORWARD and (survives or not training):
                yield Category.ACTIVATIONS
            else:
                yield Category.TEMPORARIES

    def _event(self, kind: Event, subject: int) -> None:
        self.event_kind.append(kind)
        self.event_subject.append(subject)
