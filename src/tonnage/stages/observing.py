"""What a run tells about the speed of devices and links, beside what the cluster file says of them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import inf, isfinite

from tonnage.hardware import Cluster
from tonnage.split.devices import Fabric, Way
from tonnage.split.fabric_of import fabric_of
from tonnage.split.observations import LinkStatistics, PlaceStatistics, Spread, Statistics
from tonnage.stages.carrying_out import Outcome
from tonnage.stages.report import LinkTimes

_CALLING_SECONDS = 1e-4  # what calls around a stage take: nothing smaller is told from the speed of its device
_WAKING_SECONDS = 1e-3  # what threads take to wake up and read a message, with room to spare
_FEW_PACKETS_BYTES = 1 << 16  # of which all may be there when the first is looked at


def observed(
    outcome: Outcome, planned: Fabric, cluster: Cluster, *, taken_at: float, valid_seconds: float
) -> Statistics:
    """Speeds of the devices in use, times those of the cluster file, and bandwidths of the links.

    `planned` is the fabric that the run was predicted for. What a run cannot tell is as it was planned.
    """
    looked = _Looked(outcome, planned, fabric_of(cluster))
    places = [
        PlaceStatistics(place=device, taken_at=taken_at, valid_seconds=valid_seconds, speed=speed)
        for device, speed in looked.speeds()
    ]
    links = [
        LinkStatistics(
            source=link.source, target=link.target, taken_at=taken_at, valid_seconds=valid_seconds,
            bandwidth_bytes_second=rate,
        )
        for link, rate in looked.rates()
    ]  # fmt: skip
    return Statistics(places=tuple(places), links=tuple(links))


def speed_shares(planned: Fabric, nominal: Fabric) -> dict[str, float]:
    """The speed that each device was planned with, times that of the cluster file."""
    usual = {device.name: device.speed for device in nominal.devices}
    return {device.name: device.speed / usual[device.name] for device in planned.devices}


@dataclass(frozen=True, slots=True)
class _Looked:
    outcome: Outcome
    planned: Fabric
    nominal: Fabric

    def speeds(self) -> Iterator[tuple[str, Spread]]:
        """The fabric that was planned for may have had other speeds than the file already."""
        predicted = {each.what: each.predicted for each in self.outcome.beside}
        shares = speed_shares(self.planned, self.nominal)
        for stage in self.outcome.report.stages:
            computed = stage.forward_seconds.median + stage.backward_seconds.median
            slowest = stage.forward_seconds.p95 + stage.backward_seconds.p95
            expected = predicted.get(stage.device, 0.0)
            if computed and expected:
                median, p95 = (shares[stage.device] * _ratio(expected, seconds) for seconds in (computed, slowest))
                yield stage.device, Spread(median=median, p95=p95)

    def rates(self) -> Iterator[tuple[LinkTimes, Spread]]:
        ways = {link: self.planned.way_between(link.source, link.target) for link in self.outcome.report.links}
        used = {link: way for link, way in ways.items() if way and link.bytes_sample and link.seconds.median}
        for link, way in used.items():
            if link.bytes_sample < _FEW_PACKETS_BYTES * link.messages_sample:
                continue
            others = [each for each in used if each != link and set(used[each].lanes) & set(way.lanes)]
            crowd = sum(each.bytes_sample for each in (link, *others))
            median, p95 = (self._rate(link, way, crowd, each) for each in (link.seconds.median, link.seconds.p95))
            if isfinite(median):
                yield link, Spread(median=median, p95=p95)

    def _rate(self, link: LinkTimes, way: Way, crowd: float, seconds: float) -> float:
        """What was planned, as far as the seconds of a transfer allow.

        It was at least what this link has carried in that time, though what waited in buffers seems quicker than the link
        is; and at most what all that share the way have, unless much of the time may be no transfer at all.
        """
        usual = self.nominal.way_between(link.source, link.target)
        least = min(link.bytes_sample / seconds, self.nominal.bytes_second(usual) if usual else inf)
        most = crowd / seconds if seconds >= _WAKING_SECONDS * link.messages_sample else inf
        return min(max(self.planned.bytes_second(way), least), most)


def _ratio(expected: float, measured: float) -> float:
    return 1.0 if abs(expected - measured) < _CALLING_SECONDS else expected / measured
