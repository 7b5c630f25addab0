"""The last complete step of a Trace, call by call, with the work of each operator."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from tonnage.errors import InvalidFile
from tonnage.estimate.kernels.operators import works_of
from tonnage.estimate.kernels.table import WorkTable
from tonnage.estimate.kernels.work import Rules, Work
from tonnage.estimate.measured import digest
from tonnage.program.trace import D2H, H2D, Event, Operator, Trace

_USUAL_LAUNCHES = 8
_MOST_TURNS = 32
_COPIED = ("aten::_to_copy", "aten::copy_")


@dataclass(frozen=True, kw_only=True, eq=False)
class Step:
    """Columns have one entry per call; `operator` points into `operators`, the distinct ones of this step. `kept` tells
    which of the calls that the Trace has for this step are here."""

    turns: int  # of the loop, for which these calls stand together
    kept: npt.NDArray[np.bool_]
    operators: tuple[Operator, ...]
    operator: npt.NDArray[np.int64]
    phase: npt.NDArray[np.int8]
    module: npt.NDArray[np.int32]
    views: npt.NDArray[np.int32]
    entered: npt.NDArray[np.int32]
    host_operators: npt.NDArray[np.int32]  # since the call before, as are the next two
    host_bytes: npt.NDArray[np.int64]
    host_random: npt.NDArray[np.int64]
    is_copy: npt.NDArray[np.bool_]
    listed: npt.NDArray[np.int64]  # by operator: tensors beyond the usual few
    rules: Rules
    works: WorkTable
    work_operator: npt.NDArray[np.int64]  # whose work it is, as an index into `operators`

    @property
    def more_launches(self) -> npt.NDArray[np.float64]:
        """By operator: launches beyond the few that the cost of an operator includes."""
        return np.asarray(np.maximum(self.by_operator(self.works.launches) - _USUAL_LAUNCHES, 0.0))

    @cached_property
    def calls(self) -> npt.NDArray[np.int64]:
        """How often each operator is called."""
        return np.bincount(self.operator, minlength=len(self.operators))

    @cached_property
    def copies(self) -> dict[str, npt.NDArray[np.int64]]:
        """The calls that copy to the GPU, and those that copy from it."""
        names = np.array(self.operator_names or ("",))[self.operator]
        return {name: np.flatnonzero(names == name) for name in (H2D, D2H)}

    @cached_property
    def copying(self) -> tuple[int, ...]:
        """The operators that copy to the GPU or from it."""
        return tuple(index for index, name in enumerate(self.operator_names) if name in (H2D, D2H))

    @cached_property
    def digests(self) -> tuple[str | None, ...]:
        """By operator: the key of what was measured of it."""
        return tuple(digest(operator, self.rules) for operator in self.operators)

    @property
    def operator_names(self) -> tuple[str, ...]:
        return tuple(operator.name for operator in self.operators)

    def of_all_calls(self, ends: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        """Moments at which calls end, also for those that are not here: they take no time."""
        place = np.cumsum(self.kept) - 1
        return np.where(place >= 0, ends[np.maximum(place, 0)], 0.0) if len(ends) else np.zeros(len(self.kept))

    def by_operator(self, work_values: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        """Values of works added up for each distinct operator."""
        return np.bincount(self.work_operator, weights=work_values, minlength=len(self.operators)).astype(np.float64)


def last_step(trace: Trace) -> Step:
    """Everything of the last complete step."""
    return step_of(trace, trace.last_step_calls())


def steady_steps(trace: Trace) -> Step:
    """All steps but the first together, as a benchmark takes the mean of steps 2 to N + 1; the last ones if there are many.
    Steps differ: in generation the cache grows, some programs do more in every second step."""
    ends = np.flatnonzero(trace.event_kind == Event.STEP)
    if len(ends) < 3:
        return last_step(trace)
    first = max(len(ends) - 1 - _MOST_TURNS, 0)
    span = slice(int(ends[first]), int(ends[-1]))
    calls = trace.event_subject[span][trace.event_kind[span] == Event.CALL]
    return step_of(trace, calls, len(ends) - 1 - first)


def step_of(trace: Trace, calls: npt.NDArray[np.int32], turns: int = 1) -> Step:
    """A step made of these calls. Copies from the host are seen twice, as a copy and as the operator that asked for it:
    the operator is left out."""
    names = np.array([operator.name for operator in trace.operators] or [""])[trace.call_operator[calls]]
    after_copy = np.concatenate([[False], names[:-1] == H2D]) if len(calls) else np.zeros(0, bool)
    kept = ~(after_copy & np.isin(names, _COPIED))
    calls = calls[kept]
    distinct, operator = np.unique(trace.call_operator[calls], return_inverse=True)
    return assemble(
        operators=tuple(trace.operators[index] for index in distinct),
        operator=operator.astype(np.int64),
        phase=trace.call_phase[calls],
        module=trace.call_module[calls],
        views=trace.call_views[calls],
        entered=trace.call_entered[calls],
        host_operators=trace.call_host_operators[calls],
        host_bytes=trace.call_host_bytes[calls],
        host_random=trace.call_host_random[calls],
        footprint=_footprint(trace),
        rules=Rules(trace.origin.matmul_allow_tf32, trace.origin.cudnn_allow_tf32),
        kept=kept,
        turns=turns,
    )


def assemble(
    *,
    operators: tuple[Operator, ...],
    operator: npt.NDArray[np.int64],
    phase: npt.NDArray[np.int8],
    module: npt.NDArray[np.int32],
    views: npt.NDArray[np.int32],
    entered: npt.NDArray[np.int32],
    host_operators: npt.NDArray[np.int32] | None = None,
    host_bytes: npt.NDArray[np.int64] | None = None,
    host_random: npt.NDArray[np.int64] | None = None,
    footprint: float,
    rules: Rules,
    kept: npt.NDArray[np.bool_] | None = None,
    turns: int = 1,
) -> Step:
    """A step from its calls, with the works of its operators."""
    found = [(index, work) for index, op in enumerate(operators) for work in _works(op, rules)]
    return Step(
        turns=turns,
        kept=np.ones(len(operator), dtype=np.bool_) if kept is None else kept,
        operators=operators,
        operator=operator,
        phase=phase,
        module=module,
        views=views,
        entered=entered,
        host_operators=np.zeros(len(operator), np.int32) if host_operators is None else host_operators,
        host_bytes=np.zeros(len(operator), np.int64) if host_bytes is None else host_bytes,
        host_random=np.zeros(len(operator), np.int64) if host_random is None else host_random,
        is_copy=np.isin(np.array([op.name for op in operators] or [""])[operator], (H2D, D2H)),
        listed=np.array([max(len(op.inputs) - 8, 0) for op in operators], dtype=np.int64),
        rules=rules,
        works=WorkTable.of([work for _, work in found], footprint),
        work_operator=np.array([index for index, _ in found], dtype=np.int64),
    )


def _works(operator: Operator, rules: Rules) -> tuple[Work, ...]:
    if operator.name in (H2D, D2H):
        return ()
    try:
        return works_of(operator, rules)
    except (LookupError, TypeError, ValueError, ArithmeticError):
        # No program does this; a trace that was not written by Tonnage can say anything.
        raise InvalidFile(f"the trace holds a call of {operator.name} that makes no sense") from None


def _footprint(trace: Trace) -> float:
    """The most bytes that were in use at once: what a program touches before it comes back to the same byte."""
    kind, subject = trace.event_kind, trace.event_subject
    change = np.zeros(len(kind), dtype=np.int64)
    for event, sign in ((Event.ALLOCATE, 1), (Event.FREE, -1)):
        chosen = kind == event
        change[chosen] = sign * trace.block_bytes[subject[chosen]]
    return float(max(np.cumsum(change).max(initial=0), 1))
