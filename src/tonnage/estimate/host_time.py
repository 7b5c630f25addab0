"""What a step costs the host: launching operators, looking at tensors, entering modules.

Small models are bounded by this. Costs are those of one core of the machine that was measured; `speed` says how much
faster another machine is.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from tonnage.estimate.step import Step
from tonnage.estimate.timeline import Floats
from tonnage.program.trace import Phase


@dataclass(frozen=True, slots=True, kw_only=True)
class HostModel:
    """Seconds on the host. Operators cost what the dispatcher and the launch take, and more in forward, where Python and
    the recording of the graph come on top."""

    operators: Mapping[str, float] = field(default_factory=dict)
    operator: float = 20e-6  # one that was never measured
    forward: float = 1.0  # factors of the operators' own cost, by phase
    backward: float = 1.0
    optimizer: float = 1.0
    forward_call: float = 5e-6  # and what comes with every call
    backward_call: float = 5e-6
    optimizer_call: float = 5e-6
    view: float = 4e-6
    entered: float = 8e-6
    listed: float = 1e-6  # a tensor in the list of an operator that takes lists
    launch: float = 10e-6  # a launch beyond the few that most operators need, as in recurrent layers
    recorded: float = 4e-6  # what autograd adds to a forward call
    backward_start: float = 100e-6  # waking the thread that runs the backward pass
    optimizer_start: float = 100e-6  # gathering the parameters
    copy: float = 20e-6
    own_operator: float = 4e-6  # on tensors of the host itself
    own_byte: float = 0.15e-9  # that such an operator writes
    random_number: float = 2.2e-9
    speed: float = 1.0

    def seconds(self, step: Step) -> Floats:
        """Of each call of the step."""
        own = np.array([self.operators.get(name, self.operator) for name in step.operator_names])[step.operator]
        factor, extra = self._by_phase(step.phase)
        cost = own * factor + extra + step.views * self.view + step.entered * self.entered
        cost = np.where(step.is_copy, self.copy, cost)
        cost += (step.listed * self.listed + step.more_launches * self.launch)[step.operator]
        cost += step.host_operators * self.own_operator + step.host_bytes * self.own_byte
        cost += step.host_random * self.random_number
        if (step.phase == Phase.BACKWARD).any():
            cost[step.phase == Phase.FORWARD] += self.recorded
        cost[_first_of(Phase.BACKWARD, step.phase)] += self.backward_start
        cost[_first_of(Phase.OPTIMIZER, step.phase)] += self.optimizer_start
        return np.asarray(cost / self.speed)

    def _by_phase(self, phase: np.ndarray[tuple[int], np.dtype[np.int8]]) -> tuple[Floats, Floats]:
        factor = np.array([self.forward, self.forward, self.backward, self.optimizer, self.forward])
        extra = np.array(
            [self.forward_call, self.forward_call, self.backward_call, self.optimizer_call, self.forward_call]
        )
        return factor[phase], extra[phase]


def _first_of(
    wanted: Phase, phase: np.ndarray[tuple[int], np.dtype[np.int8]]
) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    """Where a phase begins; a backward pass does so several times with gradient accumulation."""
    inside = phase == wanted
    before = np.concatenate([[False], inside[:-1]])
    return np.asarray(inside & ~before)
