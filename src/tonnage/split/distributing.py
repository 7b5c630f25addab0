"""Distributions for each target, and fronts: the one way that CLI, Python and service take for networks on clusters."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf

from tonnage.errors import DoesNotFit, UsageError
from tonnage.split.critical import critical_seconds
from tonnage.split.distribution import Distribution
from tonnage.split.fitting import memory_problem
from tonnage.split.layout import Layout
from tonnage.split.metrics import Metrics, seconds_on
from tonnage.split.placing import place_chain
from tonnage.split.pool import Pool
from tonnage.split.targets import Target, value_of
from tonnage.split.throughput import split_for_throughput

_NEARLY = 1 + 1e-9


def best_for(pool: Pool, target: Target) -> Distribution:
    """The best of the pool for a target, with a bound that no distribution beats."""
    if target is Target.STEP and pool.training is None:
        raise UsageError("a training step can be asked of training alone", "add --train")
    memory_bound = _add_least_memory(pool) if target is Target.MEMORY else 0.0
    fitting = pool.fitting()
    if not fitting:
        raise DoesNotFit("every distribution found needs more memory than a device has, counted with its activations")
    layout, metrics = min(fitting.items(), key=lambda each: _rank(target, each[1]))
    bound = min(memory_bound or _bound(pool, target), value_of(target, metrics))
    return _distribution(pool, target, layout, metrics, bound)


def distribution_at(pool: Pool, target: Target, layout: Layout) -> Distribution:
    """One of the pool's, whatever its rank."""
    metrics = pool.add(layout)
    return _distribution(pool, target, layout, metrics, min(_bound(pool, target), value_of(target, metrics)))


def front(pool: Pool, targets: Sequence[Target]) -> list[Distribution]:
    """The distributions of the pool that no other one beats in all of the targets; the best for the first comes first."""
    if Target.MEMORY in targets:
        _add_least_memory(pool)
    points = [
        (tuple(value_of(target, metrics) for target in targets), layout, metrics)
        for layout, metrics in pool.fitting().items()
    ]
    points.sort(key=lambda point: (point[0], _rank(targets[0], point[2])))
    kept: list[tuple[tuple[float, ...], Layout, Metrics]] = []
    for point in points:
        if not any(all(a <= b * _NEARLY for a, b in zip(other[0], point[0], strict=True)) for other in kept):
            kept.append(point)
    return [
        _distribution(pool, targets[0], layout, metrics, min(_bound(pool, targets[0]), values[0]))
        for values, layout, metrics in kept
    ]


def _rank(target: Target, metrics: Metrics) -> tuple[float, ...]:
    """Equal values are told apart by what else one would like."""
    rest = (metrics.period_seconds, metrics.latency_seconds, metrics.energy_joules, metrics.devices)
    return (value_of(target, metrics), *rest)


def _distribution(pool: Pool, target: Target, layout: Layout, metrics: Metrics, bound: float) -> Distribution:
    names, operations = [device.name for device in pool.fabric.devices], pool.network.operations
    value = value_of(target, metrics)
    return Distribution(
        network=pool.network.name,
        target=target.value,
        value=value,
        bound=bound,
        proven_optimal=value <= bound * _NEARLY,
        assignment={operation.id: names[place] for operation, place in zip(operations, layout.places, strict=True)},
        stages=tuple(dict.fromkeys(names[place] for place in layout.places)),
        replicas={names[holders[0]]: tuple(names[device] for device in holders[1:]) for holders in layout.replicas},
        metrics=metrics,
    )


# -- bounds ---------------------------------------------------------------------------------------------------------------


def _bound(pool: Pool, target: Target) -> float:
    if target is Target.THROUGHPUT:
        return pool.answer.bound
    if target is Target.STEP and pool.training is not None:
        # Whatever is the slowest does its part for every micro-batch.
        return max(pool.training.micro_batches * pool.answer.bound, _critical_seconds(pool))
    if target is Target.LATENCY:
        recompute = pool.training is not None and pool.training.recompute
        return critical_seconds(pool.network, pool.fabric, recompute=recompute)
    if target is Target.ENERGY:
        return _least_joules(pool)
    if target is Target.NODES:
        return float(_least_devices(pool))
    return 0.0


def _critical_seconds(pool: Pool) -> float:
    """The longest way through the network with each operation on its fastest device and nothing moved: gradients may come
    back on other ways than they are counted in the latency."""
    network, devices = pool.network, pool.fabric.devices
    end = [0.0] * len(network.operations)
    begin = [0.0] * len(network.operations)
    consumers = network.consumers
    for position, operation in enumerate(network.operations):
        backward = network.is_training
        fastest = min(
            seconds_on(operation, device) + (seconds_on(operation, device, backward=True) if backward else 0.0)
            for device in devices
        )
        end[position] = begin[position] + fastest
        for consumer in consumers[position]:
            begin[consumer] = max(begin[consumer], end[position])
    return max(end)


def _least_joules(pool: Pool) -> float:
    """Each operation where it takes least, and no device in use ever idle."""
    total = 0.0
    for operation in pool.network.operations:
        costs = []
        for device in pool.fabric.devices:
            seconds = seconds_on(operation, device)
            if pool.network.is_training:
                seconds += seconds_on(operation, device, backward=True)
            costs.append(device.active_watts * seconds if seconds < inf else inf)
        total += min(costs)
    return total


def _least_devices(pool: Pool) -> int:
    """As many of the largest as hold all weights."""
    weights = sum(operation.weight_bytes for operation in pool.network.operations if not operation.weights)
    weights += sum(pool.network.weight_bytes.values())
    held, count = 0.0, 0
    for size in sorted((device.memory_bytes for device in pool.fabric.devices), reverse=True):
        held, count = held + size, count + 1
        if held >= weights:
            return count
    return count


def _add_least_memory(pool: Pool) -> float:
    """Adds the distribution that fills devices most evenly; a bound on the share of the fullest."""
    answer = split_for_throughput(memory_problem(pool.answer.problem), good_enough=1e-3)
    if answer is None:
        return 0.0
    pool.add(place_chain(pool.network, pool.fabric, answer.problem, answer.chain))
    whole = sum(device.memory_bytes for device in pool.fabric.devices)
    weights = sum(pool.network.weight_bytes.values()) or sum(each.weight_bytes for each in pool.network.operations)
    return weights / whole
