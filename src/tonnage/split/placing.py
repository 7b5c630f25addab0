"""From the classes of a chain's stages to the very devices, where the ways between them are not all alike."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import combinations
from math import inf

from tonnage.split.chains import Chain
from tonnage.split.devices import NO_WAY, Fabric, Way
from tonnage.split.ends import legs, seconds_in, seconds_out, way_out
from tonnage.split.layout import Layout
from tonnage.split.metrics import Evaluation
from tonnage.split.network import Network
from tonnage.split.problem import Problem

_MOST_ROUNDS = 100


def place_chain(network: Network, fabric: Fabric, problem: Problem, chain: Chain) -> Layout:
    """Each stage on a device of its class, or on several, near the one before it, the first near the inputs, and the last
    near where outputs end."""
    position = {device.name: place for place, device in enumerate(fabric.devices)}
    free = [[position[name] for name in each.devices] for each in problem.classes]
    places = [-1] * len(network.operations)
    replicas: list[tuple[int, ...]] = []
    before: int | None = None
    for stage in chain.stages:
        choices = free[stage.device_class]
        is_last = stage is chain.stages[-1]
        nearest = sorted(choices, key=lambda place: (_seconds(network, fabric, before, place, is_last), place))
        holders = tuple(nearest[: stage.replicas])
        free[stage.device_class] = [place for place in choices if place not in holders]
        for group, members in enumerate(problem.members):
            if stage.groups >> group & 1:
                for operation in members:
                    places[operation] = holders[0]
        if stage.replicas > 1:
            replicas.append(holders)
        before = holders[0]
    return Layout(tuple(places), tuple(replicas))


def _seconds(network: Network, fabric: Fabric, before: int | None, place: int, is_last: bool) -> float:
    there = seconds_in(network, fabric, place) if before is None else fabric.transfer_seconds(before, place, 1 << 20)
    return there + (seconds_out(network, fabric, place) if is_last else 0.0)


def better_devices(evaluation: Evaluation, problem: Problem) -> Layout:
    """Exchanges devices of equal class, used or not, so that the busiest lane carries less."""
    traffic = _Traffic(evaluation)
    exchanges = list(_exchanges(evaluation, problem))
    best = list(range(len(evaluation.fabric.devices)))
    value = traffic.busiest(best)
    for _ in range(_MOST_ROUNDS):
        tried = [(traffic.busiest(_exchanged(best, pair)), pair) for pair in exchanges]
        least, pair = min(tried, default=(value, (0, 0)))
        if not least < value:
            break
        best, value = _exchanged(best, pair), least
    return evaluation.layout.moved(best)


class _Traffic:
    """Bytes of one sample between devices and at the ends, and the lanes they would take if the devices stood elsewhere."""

    def __init__(self, evaluation: Evaluation) -> None:
        self._fabric = evaluation.fabric
        self._readers, self._leaving = evaluation.ends.readers, evaluation.ends.leaving
        self._bytes: dict[tuple[int, int], float] = {}
        for source, target, nbytes in evaluation.traffic:
            self._bytes[source, target] = self._bytes.get((source, target), 0.0) + nbytes

    def busiest(self, where: Sequence[int]) -> tuple[float, float]:
        """Seconds of the busiest lane; of two ways to be as busy, the one with less on other lanes is better."""
        lanes: dict[int, float] = {}
        for way, nbytes in self._ways(where):
            if way == NO_WAY:
                return inf, inf
            for lane in way.lanes:
                lanes[lane] = lanes.get(lane, 0.0) + nbytes / self._fabric.lanes[lane].bytes_second
        return max(lanes.values(), default=0.0), sum(seconds * seconds for seconds in lanes.values())

    def _ways(self, where: Sequence[int]) -> Iterator[tuple[Way, float]]:
        for (source, target), nbytes in self._bytes.items():
            yield self._fabric.ways.get((where[source], where[target]), NO_WAY), nbytes
        for nbytes, readers in self._readers:
            for _, _, way in legs(self._fabric, (where[place] for place in readers)):
                yield way, nbytes
        for place, nbytes in self._leaving.items():
            yield way_out(self._fabric, where[place]), nbytes


def _exchanged(where: list[int], pair: tuple[int, int]) -> list[int]:
    first, second = pair
    found = list(where)
    found[first], found[second] = found[second], found[first]
    return found


def _exchanges(evaluation: Evaluation, problem: Problem) -> Iterator[tuple[int, int]]:
    position = {device.name: place for place, device in enumerate(evaluation.fabric.devices)}
    used = evaluation.layout.devices
    for each in problem.classes:
        for first, second in combinations([position[name] for name in each.devices], 2):
            if first in used or second in used:
                yield first, second
