"""The time of a data-parallel step: buckets of gradients are exchanged while backward goes on.

step = data_parallel(timeline, from_catalogue(find_gpu("H200"), 8))
step.step_seconds, step.exposed_seconds, step.efficiency
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from tonnage.estimate import collectives
from tonnage.estimate.collectives import Cost
from tonnage.estimate.lanes import Job, Lane, Schedule, Span, run
from tonnage.estimate.parallel import Gradient, ParallelOptions, ParallelStep, Sharding, Timeline, Unit
from tonnage.estimate.topology import Topology


def data_parallel(timeline: Timeline, topology: Topology, options: ParallelOptions | None = None) -> ParallelStep:
    """What a step takes when every GPU of `topology` does what one GPU does in `timeline`, and they exchange gradients."""
    options = options or ParallelOptions()
    plan = _Plan(timeline, topology, options)
    if options.sharding == Sharding.PARAMETERS:
        _gather_parameters(plan)
    else:
        _exchange_buckets(plan)
    spans = run(plan.schedule.jobs, options.slowing)
    computing = sum(job.seconds for job in plan.schedule.jobs if job.lane == Lane.GPU)
    step_seconds = max((span.end_seconds for span in spans), default=0.0)
    slowed = _slowed(plan.schedule.jobs, spans)
    exposed = max(step_seconds - computing, 0.0)
    passes = timeline.forward_seconds + timeline.backward_seconds
    single = options.accumulation_steps * passes + timeline.optimizer_seconds
    return ParallelStep(
        topology=topology,
        step_seconds=step_seconds,
        single_seconds=single,
        exposed_seconds=exposed,
        waiting_seconds=max(exposed - sum(slowed.values()), 0.0),
        slowed_seconds=slowed,
        saved_seconds=timeline.optimizer_seconds - timeline.optimizer_on(plan.optimizer_parts),
        communication_seconds=sum(cost.seconds for cost in plan.costs),
        sent_bytes=sum(cost.sent_bytes for cost in plan.costs),
        spans=spans,
        algorithms=tuple(dict.fromkeys(f"{cost.algorithm} {cost.protocol}" for cost in plan.costs)),
    )


def _slowed(jobs: Sequence[Job], spans: Sequence[Span]) -> dict[str, float]:
    """What the GPU's jobs took longer than they would alone, by phase."""
    slowed = dict.fromkeys(("forward", "backward", "optimizer"), 0.0)
    for job, span in zip(jobs, spans, strict=True):
        if job.lane == Lane.GPU:
            slowed[job.name] += max(span.end_seconds - span.start_seconds - job.seconds, 0.0)
    return slowed


@dataclass(frozen=True, slots=True)
class _Plan:
    """The jobs of a step in the making, and the collectives among them."""

    timeline: Timeline
    topology: Topology
    options: ParallelOptions
    schedule: Schedule = field(default_factory=Schedule)
    costs: list[Cost] = field(default_factory=list)

    def compute(self, name: str, seconds: float, *after: int) -> int:
        return self.schedule.add(Lane.GPU, name, seconds, *after)

    def send(self, name: str, cost: Cost, *after: int) -> int:
        if cost.seconds:
            self.costs.append(cost)
        return self.schedule.add(Lane.NETWORK, name, cost.seconds, *after)

    def all_reduce(self, nbytes: float) -> Cost:
        return collectives.all_reduce(nbytes, self.topology, self.options.library)

    def reduce_scatter(self, nbytes: float) -> Cost:
        return collectives.reduce_scatter(nbytes, self.topology, self.options.library)

    def all_gather(self, nbytes: float) -> Cost:
        return collectives.all_gather(nbytes, self.topology, self.options.library)

    @property
    def optimizer_parts(self) -> int:
        """With its state sharded, each GPU updates its part of the parameters: work that memory bounds, so a part of it."""
        return self.topology.ranks if self.options.sharding != Sharding.NONE else 1

    def optimizer(self, *after: int) -> int:
        return self.compute("optimizer", self.timeline.optimizer_on(self.optimizer_parts), *after)


# -- buckets: DDP, ZeRO-1, ZeRO-2 -----------------------------------------------------------------------------------------


def buckets(gradients: Sequence[Gradient], first_bytes: int, most_bytes: int) -> list[list[Gradient]]:
    """Filled in the order of `gradients`; a bucket is closed by the gradient that fills it, as in PyTorch's reducer.

    PyTorch begins with parameters in reverse order of registration and, after the first step, fills them anew in the
    order in which the gradients came. Steps after the first count, so that is the order to give.
    """
    filled: list[list[Gradient]] = [[]]
    limit, held = first_bytes, 0
    for gradient in gradients:
        filled[-1].append(gradient)
        held += gradient.nbytes
        if held >= limit:
            filled.append([])
            limit, held = most_bytes, 0
    return [bucket for bucket in filled if bucket]


def _exchange_buckets(plan: _Plan) -> None:
    timeline, options = plan.timeline, plan.options
    last: tuple[int, ...] = ()
    for number in range(options.accumulation_steps):
        is_last = number == options.accumulation_steps - 1
        plan.compute("forward", timeline.forward_seconds)
        if is_last or options.sharding == Sharding.GRADIENTS:
            last = _backward_with_exchange(plan)
        else:
            plan.compute("backward", timeline.backward_seconds)
    updated = plan.optimizer(*last)
    if options.sharding != Sharding.NONE:
        plan.send("gather parameters", plan.all_gather(timeline.gradient_bytes), updated)


def _backward_with_exchange(plan: _Plan) -> tuple[int, ...]:
    """Backward in pieces that end where a bucket is full; the exchange of each begins there, or at the end of all."""
    timeline, options = plan.timeline, plan.options
    filled = buckets(timeline.gradients, options.first_bucket_bytes, options.bucket_bytes)
    done = 0.0
    waiting: list[tuple[float, int]] = []
    for bucket in filled:
        ready = min(max(done, *(gradient.ready_seconds for gradient in bucket)), timeline.backward_seconds)
        piece = plan.compute("backward", ready - done)
        waiting.append((sum(gradient.nbytes for gradient in bucket) * options.on_the_way, piece))
        done = ready
    end = plan.compute("backward", timeline.backward_seconds - done)
    collective = plan.all_reduce if options.sharding == Sharding.NONE else plan.reduce_scatter
    sends = [
        plan.send(f"bucket {number}", collective(nbytes), piece if options.overlap else end)
        for number, (nbytes, piece) in enumerate(waiting)
    ]
    return tuple(sends[-1:])


# -- parameters gathered when needed: ZeRO-3, FSDP -------------------------------------------------------------------------


def _gather_parameters(plan: _Plan) -> None:
    units = _units(plan.timeline)
    computed: list[int] = []
    last: tuple[int, ...] = ()
    for _ in range(plan.options.accumulation_steps):
        for unit in units:
            gathered = _gather(plan, unit, computed, len(computed))
            computed.append(plan.compute("forward", unit.forward_seconds, gathered))
        last = _backward_gathering(plan, units[::-1], computed)
    plan.optimizer(*last)


def _backward_gathering(plan: _Plan, units: Sequence[Unit], computed: list[int]) -> tuple[int, ...]:
    """The units in reverse: parameters of the next one travel ahead of the gradients of this one."""
    begin = len(computed)
    gathers: list[int] = []
    sends: list[int] = []
    for place, unit in enumerate(units):
        for other in range(len(gathers), min(place + plan.options.overlap, len(units) - 1) + 1):
            gathers.append(_gather(plan, units[other], computed, begin + other))
        computed.append(plan.compute("backward", unit.backward_seconds, gathers[place]))
        scatter = plan.reduce_scatter(unit.gradient_bytes * plan.options.on_the_way)
        sends.append(plan.send(f"scatter {unit.name}", scatter, computed[-1]))
    return tuple(sends[-1:])


def _gather(plan: _Plan, unit: Unit, computed: list[int], place: int) -> int:
    """Fetch a unit's parameters while the unit before it computes, once those before that one are given up: two are held
    at a time. Without overlap nothing else goes on."""
    before = place - (2 if plan.options.overlap else 1)
    gate = (computed[before],) if before >= 0 else ()
    return plan.send(f"gather {unit.name}", plan.all_gather(unit.parameter_bytes), *gate)


def _units(timeline: Timeline) -> tuple[Unit, ...]:
    """The units, with what no unit accounts for spread evenly; one for everything where none are known."""
    if not timeline.units:
        size = timeline.gradient_bytes
        whole = Unit(name="model", parameter_bytes=size, gradient_bytes=size)
        return _units(replace(timeline, units=(whole,)))
    forward = timeline.forward_seconds - sum(unit.forward_seconds for unit in timeline.units)
    backward = timeline.backward_seconds - sum(unit.backward_seconds for unit in timeline.units)
    count = len(timeline.units)
    return tuple(
        replace(
            unit,
            forward_seconds=unit.forward_seconds + max(forward, 0.0) / count,
            backward_seconds=unit.backward_seconds + max(backward, 0.0) / count,
        )
        for unit in timeline.units
    )
