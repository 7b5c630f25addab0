"""What a run tells about devices and links, in numbers; and what it cannot tell."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from worlds import always, cluster_of, report_of

from tonnage.hardware import Cluster, read_cluster
from tonnage.split.devices import Fabric
from tonnage.split.fabric_of import fabric_of
from tonnage.split.observations import LinkStatistics, Statistics
from tonnage.stages.carrying_out import Beside, Outcome
from tonnage.stages.observing import observed
from tonnage.stages.report import LinkTimes, Spread, links_of
from tonnage.stages.timings import Timings, Transferred

GB = 1e9


@pytest.fixture
def cluster(tmp_path: Path) -> Cluster:
    return cluster_of(tmp_path, speeds=(2, 1, 1))


def slower(fabric: Fabric, speed: float = 1.0, rate: float = 1.0) -> Fabric:
    """All devices and lanes at these shares."""
    return replace(
        fabric,
        devices=tuple(replace(device, speed=device.speed * speed) for device in fabric.devices),
        lanes=tuple(replace(lane, bytes_second=lane.bytes_second * rate) for lane in fabric.lanes),
    )


def seen(cluster: Cluster, planned: Fabric, *links: LinkTimes, **computed: tuple[float, Spread]) -> Statistics:
    """`computed` are predicted and measured seconds, by device."""
    beside = tuple(Beside(what=name, predicted=expected, measured=0.0) for name, (expected, _) in computed.items())
    report = report_of(1.0, {name: measured for name, (_, measured) in computed.items()}, links)
    return observed(Outcome(report=report, beside=beside), planned, cluster, taken_at=100.0, valid_seconds=60.0)


def sent(nbytes: float, seconds: float, *, messages: float = 1, way: str = "n0 n1", p95: float = 0.0) -> LinkTimes:
    source, target = way.split()
    spread = Spread(median=seconds, p95=p95 or seconds, count=10)
    return LinkTimes(source=source, target=target, bytes_sample=nbytes, seconds=spread, messages_sample=messages)


def rate(found: Statistics, way: str = "n0 n1") -> float | None:
    rates = {f"{each.source} {each.target}": each.bandwidth_bytes_second for each in found.links}
    spread = rates.get(way)
    return None if spread is None else spread.median


def test_a_speed_is_predicted_by_measured(cluster: Cluster) -> None:
    found = seen(cluster, fabric_of(cluster), n0=(0.5, Spread(median=1.0, p95=2.0, count=9)))
    (entry,) = found.places
    assert (entry.place, entry.taken_at, entry.valid_seconds) == ("n0", 100.0, 60.0)
    assert entry.speed is not None
    assert (entry.speed.median, entry.speed.p95) == (0.5, 0.25)


def test_a_speed_is_beside_the_file_s_whatever_was_planned(cluster: Cluster) -> None:
    (entry,) = seen(cluster, slower(fabric_of(cluster), speed=0.5), n0=(1.0, always(4.0))).places
    assert entry.speed is not None
    assert entry.speed.median == 0.125


def test_a_few_microseconds_say_nothing_of_a_speed(cluster: Cluster) -> None:
    (entry,) = seen(cluster, slower(fabric_of(cluster), speed=0.5), n0=(5e-6, always(60e-6))).places
    assert entry.speed is not None
    assert entry.speed.median == 0.5  # as planned


def test_a_stage_that_computes_nothing_tells_nothing(cluster: Cluster) -> None:
    assert seen(cluster, fabric_of(cluster), n0=(0.0, always(1.0)), n1=(1.0, always(0.0))).places == ()


def test_a_bandwidth_is_bytes_by_seconds(cluster: Cluster) -> None:
    (entry,) = seen(cluster, fabric_of(cluster), sent(0.5 * GB, 1.0, p95=2.0)).links
    assert isinstance(entry, LinkStatistics)
    assert (entry.source, entry.target) == ("n0", "n1")
    assert entry.bandwidth_bytes_second is not None
    assert (entry.bandwidth_bytes_second.median, entry.bandwidth_bytes_second.p95) == (0.5 * GB, 0.25 * GB)


@pytest.mark.parametrize("messages", [1, 20])
def test_tiny_messages_say_nothing_of_a_bandwidth(cluster: Cluster, messages: float) -> None:
    assert rate(seen(cluster, fabric_of(cluster), sent(4000 * messages, 0.004 * messages, messages=messages))) is None


def test_messages_of_a_sample_are_counted() -> None:
    """Two samples with two values each; weights are of steps, and not counted."""
    rows = [Transferred(number, "value", "n0", 1000, 0.5) for number in (0, 0, 1, 1)]
    rows.append(Transferred(0, "weight", "n0", 9000, 1.0))
    (link,) = links_of({"n1": Timings(transferred=rows)}, range(2), range(1))
    assert (link.messages_sample, link.bytes_sample, link.seconds.median, link.bytes_update) == (2, 2000, 1.0, 9000)


def test_a_short_transfer_may_be_all_waking_up(cluster: Cluster) -> None:
    assert rate(seen(cluster, fabric_of(cluster), sent(100_000, 0.0009))) == GB  # as planned, not 111 MB/s


def test_what_waited_in_buffers_makes_no_link_quicker_than_it_is(cluster: Cluster) -> None:
    assert rate(seen(cluster, fabric_of(cluster), sent(1_000_000, 0.0001))) == GB


@pytest.mark.parametrize(("nbytes", "seconds"), [(2 * GB, 2.0), (100_000, 0.0001)])
def test_a_link_that_is_well_again_is_noticed(cluster: Cluster, nbytes: float, seconds: float) -> None:
    assert rate(seen(cluster, slower(fabric_of(cluster), rate=0.25), sent(nbytes, seconds))) == GB


def test_two_that_share_a_bus_are_not_taken_for_a_slow_one(tmp_path: Path) -> None:
    path = tmp_path / "bus.yaml"
    path.write_text(
        "nodes: [{name: n, count: 4, cpu: {cores: 1}, memory: 1 GiB}]\n"
        "links: [{kind: bus, between: [all], bandwidth: 1 GB/s, shared: true}]\n"
    )
    cluster = read_cluster(path)
    two = [sent(GB, 2.0, way="n-0 n-1"), sent(GB, 2.0, way="n-2 n-3")]
    assert rate(seen(cluster, fabric_of(cluster), *two), "n-0 n-1") == GB
    slow = [replace(each, seconds=always(8.0)) for each in two]
    assert rate(seen(cluster, fabric_of(cluster), *slow), "n-0 n-1") == GB / 4


def test_what_is_no_link_of_the_cluster_is_left_out(cluster: Cluster) -> None:
    assert seen(cluster, fabric_of(cluster), sent(GB, 1.0, way="controller n1")).links == ()
