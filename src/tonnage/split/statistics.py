"""A fabric as it is under runtime statistics: slower devices, less memory, narrower lanes, without what is lost."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from math import inf

from tonnage.errors import DoesNotFit, UsageError
from tonnage.hardware.catalogue import nearest
from tonnage.split.devices import Device, End, Fabric, Lane, Way
from tonnage.split.observations import LinkStatistics, PlaceStatistics, Spread, Statistics, current, merged

__all__ = ["LinkStatistics", "PlaceStatistics", "Spread", "Statistics", "fabric_under", "merged"]

LEAST_SHARE = 0.05  # of a device that others use to the full: the scheduler of every system still gives some
_AGREES = 1.02  # a way that is predicted this little above what was observed is explained
_INPUTS, _OUTPUTS = "inputs", "outputs"  # kinds of the devices that stand for the ends


def fabric_under(
    fabric: Fabric,
    statistics: Statistics,
    *,
    now: float,
    pessimistic: bool = False,
    ignore_old: Callable[[str], None] | None = None,
) -> Fabric:
    """Devices and lanes as they were observed, by medians or, `pessimistic`, by 95th percentiles.

    Refuses statistics of unknown places, and old ones unless `ignore_old` is there to be told which are left out.
    """
    known = {name for device in fabric.devices for name in (device.name, device.node)}
    refuse_unknown(known | {end for lane in fabric.lanes for end in lane.ends}, statistics)
    new = current(statistics, now=now, told=ignore_old)
    places = {entry.place: entry for entry in new.places}
    links = {(entry.source, entry.target): entry for entry in new.links}
    inputs, outputs = (end.node if end is not None else None for end in (fabric.inputs, fabric.outputs))
    refuse_lost_ends(inputs, outputs, places)
    rest = _without_lost(_ends_as_devices(fabric), places, links)
    devices = tuple(_device_under(device, places.get(device.name), pessimistic) for device in rest.devices)
    return _devices_as_ends(_ways_under(replace(rest, devices=devices), links, pessimistic))


def refuse_unknown(known: set[str], statistics: Statistics) -> None:
    """Statistics of places that are none."""
    named = [entry.place for entry in statistics.places]
    named += [end for entry in statistics.links for end in (entry.source, entry.target)]
    for name in named:
        if name not in known:
            meant = nearest(name, known)
            hint = f"did you mean {meant}?" if meant else "are they of another cluster?"
            raise UsageError(f"there are statistics of {name!r}, which is not in the cluster", hint)


def refuse_lost_ends(inputs: str | None, outputs: str | None, places: Mapping[str, PlaceStatistics]) -> None:
    """Without the node of an end nothing can go on, wherever the network is."""
    for node, what in ((inputs, "inputs come from"), (outputs, "outputs end at")):
        if node is not None and node in places and places[node].is_lost:
            raise UsageError(f"{what} {node}, which is lost", "name another node in the cluster file")


# -- ends -----------------------------------------------------------------------------------------------------------------


def _is_end(device: Device) -> bool:
    return device.kind in (_INPUTS, _OUTPUTS)


def _ends_as_devices(fabric: Fabric) -> Fabric:
    """The ends as devices after all others: what was observed holds for their ways as well."""
    devices, ways = list(fabric.devices), dict(fabric.ways)
    if fabric.inputs is not None:
        ways |= {(len(devices), place): way for place, way in fabric.inputs.ways.items()}
        devices.append(Device(name=fabric.inputs.node, node=fabric.inputs.node, kind=_INPUTS))
    if fabric.outputs is not None:
        ways |= {(place, len(devices)): way for place, way in fabric.outputs.ways.items()}
        devices.append(Device(name=fabric.outputs.node, node=fabric.outputs.node, kind=_OUTPUTS))
    return replace(fabric, devices=tuple(devices), ways=ways)


def _devices_as_ends(fabric: Fabric) -> Fabric:
    """And back again."""
    ends = {place for place, device in enumerate(fabric.devices) if _is_end(device)}
    inputs, outputs = dict[int, Way](), dict[int, Way]()
    for (source, target), way in fabric.ways.items():
        if source in ends:
            inputs[target] = way
        elif target in ends:
            outputs[source] = way
    return replace(
        fabric,
        devices=tuple(device for place, device in enumerate(fabric.devices) if place not in ends),
        ways={pair: way for pair, way in fabric.ways.items() if not ends & set(pair)},
        inputs=End(node=fabric.inputs.node, ways=inputs) if fabric.inputs is not None else None,
        outputs=End(node=fabric.outputs.node, ways=outputs) if fabric.outputs is not None else None,
    )


# -- what is lost ---------------------------------------------------------------------------------------------------------


def _without_lost(
    fabric: Fabric, places: Mapping[str, PlaceStatistics], links: Mapping[tuple[str, str], LinkStatistics]
) -> Fabric:
    gone = {name for name, entry in places.items() if entry.is_lost}
    cut = {pair for pair, entry in links.items() if entry.is_lost}
    kept = [index for index, device in enumerate(fabric.devices) if not gone & {device.name, device.node}]
    if all(_is_end(fabric.devices[index]) for index in kept):
        raise DoesNotFit(f"all {sum(not _is_end(device) for device in fabric.devices)} devices are lost")
    broken = {index for index, lane in enumerate(fabric.lanes) if _is_broken(lane, gone, cut)}
    position = {index: new for new, index in enumerate(kept)}
    ways = {
        (position[source], position[target]): way
        for (source, target), way in fabric.ways.items()
        if source in position
        and target in position
        and not broken & set(way.lanes)
        and not set(_pairs(fabric.devices[source], fabric.devices[target])) & cut
    }
    return replace(fabric, devices=tuple(fabric.devices[index] for index in kept), ways=ways)


def _is_broken(lane: Lane, gone: set[str], cut: set[tuple[str, str]]) -> bool:
    """A lane of two ends goes with its link or with either of them; on one of several ends others still meet."""
    return len(lane.ends) == 2 and (bool(gone & set(lane.ends)) or (lane.ends[0], lane.ends[1]) in cut)


def _pairs(source: Device, target: Device) -> tuple[tuple[str, str], tuple[str, str]]:
    """What statistics of a way between two devices may be called: of the devices, or of their nodes."""
    return (source.name, target.name), (source.node, target.node)


# -- what is slower -------------------------------------------------------------------------------------------------------


def _device_under(device: Device, seen: PlaceStatistics | None, pessimistic: bool) -> Device:
    if seen is None:
        return device
    share = 1.0
    if seen.speed is not None:  # it has the load in it
        share = seen.speed.value(pessimistic)
    elif seen.load is not None:
        share = max(1 - seen.load, LEAST_SHARE)
    available = inf if seen.available_bytes is None else seen.available_bytes
    return replace(device, speed=device.speed * share, memory_bytes=min(device.memory_bytes, available))


@dataclass(frozen=True, slots=True)
class _Seen:
    """A way with the bandwidth that was observed on it, and its lanes that the observation speaks of."""

    pair: tuple[int, int]
    ends: tuple[str, str]
    lanes: tuple[int, ...]
    bytes_second: float


def _ways_under(fabric: Fabric, links: Mapping[tuple[str, str], LinkStatistics], pessimistic: bool) -> Fabric:
    ways, seen = dict(fabric.ways), list[_Seen]()
    for (source, target), way in fabric.ways.items():
        ends = fabric.devices[source], fabric.devices[target]
        entry = next((links[pair] for pair in _pairs(*ends) if pair in links), None)
        if entry is None or entry.is_lost:
            continue
        if entry.latency_seconds is not None:
            ways[source, target] = replace(way, latency_seconds=entry.latency_seconds.value(pessimistic))
        if entry.bandwidth_bytes_second is not None:
            named = entry.source, entry.target
            is_of_nodes = named != (ends[0].name, ends[1].name)
            over = tuple(lane for lane in way.lanes if not (is_of_nodes and _is_inside(fabric.lanes[lane])))
            seen.append(_Seen((source, target), named, over, entry.bandwidth_bytes_second.value(pessimistic)))
    return _with_own_lanes(replace(fabric, lanes=_lanes_under(fabric.lanes, seen), ways=ways), seen)


def _is_inside(lane: Lane) -> bool:
    """Inside one node: what was observed between nodes says nothing of it."""
    return len({end.partition("/")[0] for end in lane.ends}) == 1


def _lanes_under(lanes: tuple[Lane, ...], seen: Iterable[_Seen]) -> tuple[Lane, ...]:
    """A lane is as slow as the best of the observed ways over it: what one way lacks may be another lane's fault."""
    rates: dict[int, float] = {}
    for way in seen:
        nominal = min((lanes[lane].bytes_second for lane in way.lanes), default=inf)
        for lane in way.lanes:
            least = lanes[lane].bytes_second * min(way.bytes_second / nominal, 1.0)
            rates[lane] = max(rates.get(lane, 0.0), least, way.bytes_second)
    return tuple(replace(lane, bytes_second=rates.get(index, lane.bytes_second)) for index, lane in enumerate(lanes))


def _with_own_lanes(fabric: Fabric, seen: Iterable[_Seen]) -> Fabric:
    """A way that is slower than all its lanes explain gets a lane of its own with the observed bandwidth."""
    lanes, ways = list(fabric.lanes), dict(fabric.ways)
    own: dict[tuple[str, str], int] = {}
    for each in seen:
        explained = min((lanes[lane].bytes_second for lane in each.lanes), default=inf)
        if explained <= each.bytes_second * _AGREES:
            continue
        if each.ends not in own:
            own[each.ends] = len(lanes)
            name = f"observed {each.ends[0]}->{each.ends[1]}"
            lanes.append(Lane(name=name, bytes_second=each.bytes_second, ends=each.ends))
        way = ways[each.pair]
        ways[each.pair] = replace(way, lanes=(*way.lanes, own[each.ends]))
    return replace(fabric, lanes=tuple(lanes), ways=ways)
