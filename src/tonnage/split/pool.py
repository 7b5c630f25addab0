"""Many good distributions of one network: the best for each number of devices, and for sums under limits of the period."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace

from tonnage.split.along import best_along, end_bytes
from tonnage.split.chains import Chain, Goal, best_chain, chains_of_each_use
from tonnage.split.checked import label
from tonnage.split.cluster_problem import Training, cluster_problem
from tonnage.split.devices import Fabric
from tonnage.split.family import Family
from tonnage.split.fitting import does_not_fit
from tonnage.split.lattice import all_sets, groups_in, prefixes
from tonnage.split.layout import Layout
from tonnage.split.metrics import Evaluation, Metrics
from tonnage.split.network import Network
from tonnage.split.orders import greedy_order, order_through
from tonnage.split.pipeline import training_step
from tonnage.split.placing import better_devices, place_chain
from tonnage.split.prices import Prices, best_prices
from tonnage.split.problem import Problem
from tonnage.split.sequences import pairs, sequences
from tonnage.split.throughput import Answer, split_for_throughput

KeepGoing = Callable[[], bool]
_MOST_SETS = 1200
_CAPS = 8
_COPY_ROUNDS = 3
_GOOD_ENOUGH = 1e-3  # for networks whose sets cannot all be listed


@dataclass(slots=True)
class Pool:
    """Distributions found so far with their metrics, and the answer with the best period by the solvers' rules."""

    network: Network
    fabric: Fabric
    training: Training | None
    answer: Answer
    most_replicas: int = 1  # devices that may hold one stage
    found: dict[Layout, Metrics] = field(default_factory=dict)

    def add(self, layout: Layout) -> Metrics:
        if layout not in self.found:
            self.found[layout] = measure(self.network, self.fabric, layout, self.training)
        return self.found[layout]

    def fitting(self) -> dict[Layout, Metrics]:
        """Those that fit into the memory of every device."""
        return {layout: metrics for layout, metrics in self.found.items() if metrics.memory_share <= 1}


def measure(network: Network, fabric: Fabric, layout: Layout, training: Training | None) -> Metrics:
    """The metrics of a distribution."""
    evaluation = evaluate(network, fabric, layout, training)
    if training is None or not network.is_training:
        return evaluation.metrics()
    schedule = training_step(evaluation, training.micro_batches, recompute=training.recompute)
    return replace(evaluation.metrics(schedule.in_flight), step_seconds=schedule.step_seconds)


def evaluate(network: Network, fabric: Fabric, layout: Layout, training: Training | None) -> Evaluation:
    how = training or Training(micro_batches=1)
    return Evaluation(
        network, fabric, layout.places,
        replicas=layout.replicas, recompute=how.recompute, micro_batches=how.micro_batches,
    )  # fmt: skip


def make_pool(
    network: Network,
    fabric: Fabric,
    *,
    training: Training | None = None,
    keep_going: KeepGoing = lambda: True,
    start: Sequence[Collection[int]] = (),
    wide: bool = True,
    replicas: bool = False,
) -> Pool:
    """A pool with the best period and, where `wide`, many others; raises `DoesNotFit`. With `replicas`, devices of one
    class may hold a stage together and take turns with samples."""
    asked = cluster_problem(network, fabric, training=training)
    most_replicas = max((each.count for each in asked.classes), default=1) if replicas else 1
    answer = split_for_throughput(
        asked,
        keep_going=keep_going,
        most_replicas=most_replicas,
        in_flight=in_flight(fabric, training),
        start=start,
        good_enough=_GOOD_ENOUGH,
    )
    if answer is None:
        raise does_not_fit(asked, lambda position: label(network.operations[position]))
    pool = Pool(network, fabric, training, answer, most_replicas)
    is_uneven = not _place(pool, answer.chain)
    if is_uneven and replicas:
        _without_replicas(pool, asked, keep_going)
    if is_uneven and network.is_training:
        _with_copies(pool, asked, keep_going)
    if is_uneven or wide:
        prices = best_prices(answer.problem)
        family = Family(answer.problem, _sets(answer.problem, answer.chain), prices.of_group)
        if is_uneven:
            _along_sequences(pool, family, keep_going)
        if wide and (fabric.inputs is not None or fabric.outputs is not None):
            _near_the_ends(pool, family, keep_going)
        for chain in _others(pool, family, prices, keep_going) if wide else ():
            _place(pool, chain)
    return pool


def _without_replicas(pool: Pool, asked: Problem, keep_going: KeepGoing) -> None:
    """The best with one device for each stage: where ways differ it may be better after all."""
    kept = in_flight(pool.fabric, pool.training)
    answer = split_for_throughput(asked, keep_going=keep_going, in_flight=kept, good_enough=_GOOD_ENOUGH)
    if answer is not None:
        layout = place_chain(pool.network, pool.fabric, answer.problem, answer.chain)
        pool.add(layout)
        pool.add(_better(pool, layout, answer.problem))


def _better(pool: Pool, layout: Layout, problem: Problem) -> Layout:
    return better_devices(evaluate(pool.network, pool.fabric, layout, pool.training), problem)


def _with_copies(pool: Pool, asked: Problem, keep_going: KeepGoing) -> None:
    """Each device that reads a tensor sends its gradient back by itself, which the solvers do not count: with as many as
    come back in the last answer they find others, some of them better."""
    for _ in range(_COPY_ROUNDS):
        before = min(pool.found.items(), key=lambda each: each[1].period_seconds)
        counted = _counted(asked, before[0].places)
        answer = split_for_throughput(
            counted,
            keep_going=keep_going,
            most_replicas=pool.most_replicas,
            in_flight=in_flight(pool.fabric, pool.training),
            good_enough=_GOOD_ENOUGH,
        )
        if answer is None or not keep_going():
            return
        layout = place_chain(pool.network, pool.fabric, answer.problem, answer.chain)
        pool.add(_better(pool, layout, answer.problem))
        if pool.add(layout).period_seconds >= before[1].period_seconds:
            return


def _counted(problem: Problem, places: Sequence[int]) -> Problem:
    """With the copies of each net that this distribution sends."""
    where = [places[members[0]] for members in problem.members]
    nets = [
        replace(net, copies=float(max(len({where[group] for group in net.members}) - 1, 1))) for net in problem.nets
    ]
    return replace(problem, nets=tuple(nets))


def in_flight(fabric: Fabric, training: Training | None) -> Callable[[int], int]:
    """Micro-batches that a stage keeps with so many devices before it, if all devices have a stage."""
    if training is None:
        return lambda used: 1
    count, most = len(fabric.devices), training.micro_batches
    return lambda used: max(min(count - used, most), 1)


def _place(pool: Pool, chain: Chain) -> bool:
    """The chain on devices, and on better ones of equal class where ways matter; whether it is as good as hoped there."""
    layout = place_chain(pool.network, pool.fabric, pool.answer.problem, chain)
    metrics = pool.add(layout)
    if metrics.period_seconds > chain.value * (1 + 1e-6):
        metrics = pool.add(_better(pool, layout, pool.answer.problem))
    return metrics.period_seconds <= chain.value * (1 + 1e-6)


def _others(pool: Pool, family: Family, prices: Prices, keep_going: KeepGoing) -> Iterator[Chain]:
    """The best for each use of devices, and for sums under several limits of the period."""
    kept, most = in_flight(pool.fabric, pool.training), pool.most_replicas
    by_use = chains_of_each_use(family, prices, most_replicas=most, in_flight=kept)
    yield from by_use
    for cap in _spread([chain.value for chain in by_use]):
        for goal in _goals(pool, cap):
            if not keep_going():
                return
            found = best_chain(family, prices, cap=cap * (1 + 1e-9), goal=goal, most_replicas=most, in_flight=kept)
            if found is not None:
                yield replace(found, value=cap)


def _along_sequences(pool: Pool, family: Family, keep_going: KeepGoing) -> None:
    """Where ways differ: chains along orders of devices in which neighbours are near each other."""
    best = min(metrics.period_seconds for metrics in pool.found.values())
    ends = end_bytes(family, pool.network, pool.fabric)
    for sequence in sequences(pool.network, pool.fabric):
        if not keep_going():
            return
        found = best_along(family, pool.fabric, sequence, ends, cap=best)
        if found is not None:
            best = min(best, _exactly_here(pool, found, sequence).period_seconds)


def _near_the_ends(pool: Pool, family: Family, keep_going: KeepGoing) -> None:
    """For one sample: chains of two devices, or along those orders, with the least sum of computing and moving."""
    best = min(metrics.latency_seconds for metrics in pool.found.values())
    ends = end_bytes(family, pool.network, pool.fabric)
    for sequence in (*pairs(pool.network, pool.fabric), *sequences(pool.network, pool.fabric)):
        if not keep_going():
            return
        found = best_along(family, pool.fabric, sequence, ends, cap=best, adds=True)
        if found is not None:
            best = min(best, _exactly_here(pool, found, sequence).latency_seconds)


def _exactly_here(pool: Pool, chain: Chain, sequence: Sequence[int]) -> Metrics:
    places = [-1] * len(pool.network.operations)
    for stage, device in zip(chain.stages, sequence, strict=True):
        for group in groups_in(stage.groups):
            for operation in pool.answer.problem.members[group]:
                places[operation] = device
    return pool.add(Layout(tuple(places)))


def _sets(problem: Problem, chain: Chain) -> list[int]:
    """All sets where they are few, else those along orders, one of which passes every boundary of the chain."""
    sets = all_sets(problem, _MOST_SETS)
    if sets is not None:
        return sets
    stage_of = {group: number for number, stage in enumerate(chain.stages) for group in groups_in(stage.groups)}
    through = order_through(problem, [stage_of[group] for group in range(problem.size)])
    return list({*prefixes(through), *prefixes(greedy_order(problem))})


def _spread(values: Iterable[float]) -> list[float]:
    """A few of the values, evenly over their order."""
    ordered = sorted(set(values))
    if len(ordered) <= _CAPS:
        return ordered
    return [ordered[round(index * (len(ordered) - 1) / (_CAPS - 1))] for index in range(_CAPS)]


def _goals(pool: Pool, period: float) -> Iterator[Goal]:
    """The latency of one sample, its energy, and devices in use, as sums over stages."""
    classes = pool.answer.problem.classes
    devices = {device.name: device for device in pool.fabric.devices}
    first = [devices[each.devices[0]] for each in classes]
    ones, nothing = tuple(1.0 for _ in classes), tuple(0.0 for _ in classes)
    # A tensor is moved once, and both its ends count it.
    yield Goal(
        adds=True,
        second=ones,
        unit=tuple((each.seconds_per_unit + each.seconds_per_unit_out) / 4 for each in classes),
        device=nothing,
    )
    if any(each.active_watts for each in first):
        extra = tuple(each.active_watts - each.idle_watts for each in first)
        yield Goal(adds=True, second=extra, unit=nothing, device=tuple(each.idle_watts * period for each in first))
    yield Goal(adds=True, second=nothing, unit=nothing, device=ones)
