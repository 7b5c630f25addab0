"""A step as it was observed on real hardware, in the form in which a Trace gives it.

Rows of the database say how often each operator was called in each phase. Their order within a phase is that of their first
calls, which is all that the time-lines need.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby

import numpy as np

from tonnage.estimate.kernels.work import Rules
from tonnage.estimate.step import Step, assemble
from tonnage.program.trace import D2H, H2D, Operator, Phase
from tonnage.store.rows import HostRow, Measurement

OBSERVED_STEPS = 3  # of which the rows of a measurement are sums
_PHASES = {"forward": Phase.FORWARD, "backward": Phase.BACKWARD, "optimizer": Phase.OPTIMIZER, "copy": Phase.COPY}
_COPIES = ("aten::_to_copy", "aten::copy_", "aten::_local_scalar_dense")
_VIEW, _MODULE = "tonnage::view", "tonnage::module"


@dataclass(frozen=True, slots=True)
class _Calls:
    operator: Operator
    phase: Phase
    count: int


def observed_step(measurement: Measurement, rows: Sequence[HostRow]) -> Step:
    """The step of a sample workload from what was seen of it."""
    calls = list(_ordered(_calls(rows)))
    operators = tuple(dict.fromkeys(_identity(call.operator) for call in calls))
    index = {key: number for number, key in enumerate(operators)}
    numbers = [index[_identity(call.operator)] for call in calls for _ in range(call.count)]
    phase = np.array([call.phase for call in calls for _ in range(call.count)], dtype=np.int8)
    by_key = {_identity(call.operator): call.operator for call in calls}
    return assemble(
        operators=tuple(by_key[key] for key in operators),
        operator=np.array(numbers, dtype=np.int64),
        phase=phase,
        module=np.zeros(len(phase), dtype=np.int32),
        views=_spread_out(_counts(rows, _VIEW), phase),
        entered=_spread_out(_counts(rows, _MODULE), phase),
        footprint=float(measurement.allocated_bytes or 1),
        rules=Rules(),
    )


def _identity(operator: Operator) -> tuple[object, ...]:
    return operator.name, operator.inputs, operator.outputs, tuple(sorted(operator.attributes.items(), key=str))


def _calls(rows: Iterable[HostRow]) -> Iterator[_Calls]:
    """Calls of one step; copies between host and GPU under the names that a Trace has for them."""
    has_computed = False
    for row in rows:
        if row.operator.name in (_VIEW, _MODULE):
            continue
        operator = row.operator
        if row.phase == "copy" and operator.name in _COPIES:
            name = D2H if has_computed else H2D
            operator = replace(operator, name=name, inputs=operator.inputs[-1:], outputs=(), attributes={})
        has_computed = has_computed or row.phase != "copy"
        yield _Calls(operator, _PHASES.get(row.phase, Phase.FORWARD), max(round(row.calls / OBSERVED_STEPS), 1))


def _ordered(calls: Iterable[_Calls]) -> Iterator[_Calls]:
    """Copies to the GPU, forward, backward, optimizer, copies to the host."""
    order = {Phase.FORWARD: 1, Phase.BACKWARD: 2, Phase.OPTIMIZER: 3}
    return iter(sorted(calls, key=lambda call: order.get(call.phase, 0 if call.operator.name == H2D else 4)))


def _counts(rows: Iterable[HostRow], name: str) -> dict[Phase, int]:
    chosen = sorted((_PHASES.get(row.phase, Phase.FORWARD), row.calls) for row in rows if row.operator.name == name)
    return {
        phase: round(sum(calls for _, calls in group) / OBSERVED_STEPS)
        for phase, group in groupby(chosen, key=lambda pair: pair[0])
    }


def _spread_out(
    counts: dict[Phase, int], phase: np.ndarray[tuple[int], np.dtype[np.int8]]
) -> np.ndarray[tuple[int], np.dtype[np.int32]]:
    """So many in each phase, evenly over its calls."""
    found = np.zeros(len(phase), dtype=np.int32)
    for number, count in counts.items():
        places = np.flatnonzero(phase == number)
        if len(places):
            found[places] = np.diff(np.linspace(0, count, len(places) + 1).round().astype(np.int32))
    return found
