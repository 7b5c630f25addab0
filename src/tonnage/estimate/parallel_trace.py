"""What a Trace says about training on several GPUs: gradients in the order in which backward makes them, and whose
parameters they belong to. Times come from elsewhere: `StepShape.timeline` joins the two."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby

import numpy as np
import numpy.typing as npt

from tonnage.errors import UsageError
from tonnage.estimate.parallel import Gradient, Timeline, Unit
from tonnage.program.trace import Category, Event, IntArray, Phase, Trace

ROOT = "model"  # the unit of everything that belongs to no repeated block


@dataclass(frozen=True, slots=True, kw_only=True)
class TracedGradient:
    """A gradient with the call after which it is complete."""

    call: int
    nbytes: int
    module: str


@dataclass(frozen=True, slots=True, kw_only=True)
class StepShape:
    """One step of a Trace. `first_call` is its first; `phases` and `modules` have an entry for each of its calls."""

    first_call: int
    phases: tuple[Phase, ...]
    modules: tuple[str, ...]
    backward_call: int  # the first call of the backward pass that ends the step
    gradients: tuple[TracedGradient, ...]
    parameter_bytes: int

    @property
    def gradient_bytes(self) -> int:
        return sum(gradient.nbytes for gradient in self.gradients)

    def module_bytes(self) -> dict[str, int]:
        """Bytes of trained parameters by module, known by their gradients."""
        sizes: dict[str, int] = {}
        for gradient in self.gradients:
            sizes[gradient.module] = sizes.get(gradient.module, 0) + gradient.nbytes
        return sizes

    def units(self) -> tuple[Unit, ...]:
        """Without times: blocks that a network repeats (`layers.3`), and all the rest as one, which is gathered first."""
        sizes = dict.fromkeys([ROOT, *map(unit_name, self.modules)], 0)
        for module, nbytes in self.module_bytes().items():
            sizes[unit_name(module)] = sizes.get(unit_name(module), 0) + nbytes
        frozen = max(self.parameter_bytes - sum(sizes.values()), 0)  # no gradient tells whose they are
        return tuple(
            Unit(name=name, parameter_bytes=size + frozen * (name == ROOT), gradient_bytes=size)
            for name, size in sizes.items()
            if size or name == ROOT
        )

    def timeline(self, call_end_seconds: Sequence[float]) -> Timeline:
        """`call_end_seconds` tells when each call of the step ends on one GPU, counted from the step's start."""
        ends = np.asarray(call_end_seconds, dtype=np.float64)
        if len(ends) != len(self.phases):
            raise UsageError(f"the step has {len(self.phases)} calls, not {len(ends)}")
        phases = np.array(self.phases)
        first = self.backward_call - self.first_call
        backward = np.flatnonzero(phases == Phase.BACKWARD)
        begin = float(ends[first - 1]) if first else 0.0
        end = float(ends[backward[-1]])
        seconds = np.diff(ends, prepend=0.0)
        updates = (phases == Phase.OPTIMIZER) & (np.arange(len(phases)) > backward[-1])
        return Timeline(
            forward_seconds=begin,
            backward_seconds=end - begin,
            optimizer_seconds=float(ends[-1]) - end,
            update_seconds=float(seconds[updates].sum()),
            gradients=tuple(
                Gradient(ready_seconds=float(ends[g.call - self.first_call]) - begin, nbytes=g.nbytes, module=g.module)
                for g in self.gradients
            ),
            units=self._timed_units(seconds, first),
        )

    def _timed_units(self, seconds: npt.NDArray[np.float64], first_backward: int) -> tuple[Unit, ...]:
        forward: dict[str, float] = {}
        backward: dict[str, float] = {}
        for place, (module, duration) in enumerate(zip(self.modules, seconds.tolist(), strict=True)):
            if self.phases[place] in (Phase.FORWARD, Phase.BACKWARD):
                times = forward if place < first_backward else backward
                times[unit_name(module)] = times.get(unit_name(module), 0.0) + duration
        return tuple(
            Unit(
                name=unit.name,
                parameter_bytes=unit.parameter_bytes,
                gradient_bytes=unit.gradient_bytes,
                forward_seconds=forward.get(unit.name, 0.0),
                backward_seconds=backward.get(unit.name, 0.0),
            )
            for unit in self.units()
        )


def unit_name(module: str) -> str:
    """The block of a list that a module is in: `encoder.layers.3` for `encoder.layers.3.norm`, `model` if in none."""
    parts = module.split(".")
    number = next((place for place, part in enumerate(parts) if part.isdigit()), None)
    return ROOT if number is None else ".".join(parts[: number + 1])


def from_trace(trace: Trace) -> StepShape:
    """The last step of a training Trace in which gradients were made."""
    gradient_blocks = np.flatnonzero(trace.block_category == Category.GRADIENTS)
    if len(gradient_blocks) == 0:
        raise UsageError("the program makes no gradients, so there is nothing for several GPUs to exchange")
    step_of_call = _step_of_call(trace)
    made_in = step_of_call[np.minimum(trace.block_call[gradient_blocks], len(step_of_call) - 1)]
    step = int(made_in.max())
    calls = np.flatnonzero(step_of_call == step)
    chosen = gradient_blocks[made_in == step]
    backward_call = _last_backward(trace, calls)
    gradients = [_gradient(trace, int(block), calls, backward_call) for block in chosen]
    parameters = trace.block_category == Category.PARAMETERS
    return StepShape(
        first_call=int(calls[0]),
        phases=tuple(Phase(int(phase)) for phase in trace.call_phase[calls]),
        modules=tuple(trace.modules[module] for module in trace.call_module[calls]),
        backward_call=backward_call,
        gradients=tuple(sorted(gradients, key=lambda gradient: gradient.call)),
        parameter_bytes=int(trace.block_bytes[parameters].sum()),
    )


def _step_of_call(trace: Trace) -> IntArray:
    calls = np.flatnonzero(trace.event_kind == Event.CALL)
    ends = np.flatnonzero(trace.event_kind == Event.STEP)
    return np.searchsorted(ends, calls)


def _last_backward(trace: Trace, calls: IntArray) -> int:
    """The first call of the last unbroken backward pass; programs that accumulate gradients have several."""
    runs = [(phase, list(group)) for phase, group in groupby(calls.tolist(), key=lambda call: trace.call_phase[call])]
    forwards = [group[-1] for phase, group in runs if phase == Phase.FORWARD]
    starts = [group[0] for phase, group in runs if phase == Phase.BACKWARD]
    after = [start for start in starts if not forwards or start > forwards[-1]]
    return int(after[0] if after else starts[-1])


def _gradient(trace: Trace, block: int, calls: IntArray, backward_call: int) -> TracedGradient:
    """One made in an earlier pass is complete when its module has last worked in this one."""
    call, module = int(trace.block_call[block]), int(trace.block_module[block])
    if call < backward_call:
        own = calls[(trace.call_module[calls] == module) & (trace.call_phase[calls] == Phase.BACKWARD)]
        late = own[own >= backward_call]
        call = int(late[-1]) if len(late) else backward_call
    return TracedGradient(call=call, nbytes=int(trace.block_bytes[block]), module=trace.modules[module])
