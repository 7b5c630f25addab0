"""Agents in network namespaces measure the rates that the kernel was told to keep."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest
from agents import agent_command, cluster_text, running
from limited_hosts import address, limited_hosts, set_rate, why_not

from tonnage.hardware import Cluster, read_cluster
from tonnage.split.fabric_of import fabric_of
from tonnage.split.statistics import fabric_under
from tonnage.split.statistics_file import read_statistics

pytestmark = [pytest.mark.slow, pytest.mark.skipif(bool(why_not()), reason=f"NO NAMESPACES: {why_not()}")]

RATES_BITS_SECOND = (40_000_000, 160_000_000, 160_000_000)
PAYLOAD_SHARE = 0.955  # of the rate: what headers of Ethernet, IP and TCP leave


@dataclass(frozen=True)
class Rig:
    """Three hosts with agents, and the file that describes them."""

    hosts: list[str]
    file: Path
    token: Path

    def cluster(self, command: str, *words: str) -> str:
        """What `tonnage cluster` prints on the first host."""
        start = ["ip", "netns", "exec", self.hosts[0], sys.executable, "-m", "tonnage", "cluster", command]
        options = ["--token-file", str(self.token), "--repeats", "3", *words]
        result = subprocess.run(
            [*start, str(self.file), *options], capture_output=True, text=True, timeout=200, check=True
        )
        return result.stdout


@pytest.fixture(scope="module")
def rig(tmp_path_factory: pytest.TempPathFactory, token: Path) -> Iterator[Rig]:
    file = tmp_path_factory.mktemp("rates") / "cluster.yaml"
    addresses = [f"{address(number)}:8643" for number in range(3)]
    file.write_text(cluster_text(addresses))
    with limited_hosts(RATES_BITS_SECOND) as hosts, ExitStack() as stack:
        for host, listen in zip(hosts, addresses, strict=True):
            stack.enter_context(running(agent_command(listen, token, host)))
        yield Rig(hosts, file, token)


@pytest.fixture(scope="module")
def measured(rig: Rig) -> tuple[Cluster, str]:
    output = rig.file.with_name("measured.yaml")
    text = rig.cluster("measure", "--output", str(output))
    return read_cluster(output), text


@pytest.mark.parametrize(("source", "target"), [("a", "b"), ("a", "c"), ("b", "a"), ("c", "b")])
def test_a_measured_bandwidth_is_what_the_rate_leaves_for_data(
    measured: tuple[Cluster, str], source: str, target: str
) -> None:
    rate = RATES_BITS_SECOND["abc".index(source)] / 8
    found = measured[0].bandwidth_bytes_second(source, target)
    assert found == pytest.approx(PAYLOAD_SHARE * rate, rel=0.1)


def test_the_uplink_that_two_ways_share_is_noticed(measured: tuple[Cluster, str]) -> None:
    cluster, text = measured
    assert "the way out of b is shared" in text
    assert [link.members for link in cluster.path("a", "b")] == [("a", "network"), ("network", "b")]


def test_a_link_that_became_slower_shows_in_the_statistics(rig: Rig, measured: tuple[Cluster, str]) -> None:
    output = rig.file.with_name("statistics.json")
    set_rate(rig.hosts[1], RATES_BITS_SECOND[1] // 2)
    rig.cluster("statistics", "--seconds", "0.3", "--output", str(output))
    set_rate(rig.hosts[1], RATES_BITS_SECOND[1])
    statistics = read_statistics(output)
    now = fabric_under(fabric_of(measured[0]), statistics, now=statistics.places[0].taken_at)
    seconds = [now.transfer_seconds(source, target, 10**6) for source, target in ((1, 0), (2, 0))]
    assert seconds[0] == pytest.approx(10**6 / (PAYLOAD_SHARE * RATES_BITS_SECOND[1] / 16), rel=0.15)
    assert seconds[1] == pytest.approx(10**6 / (PAYLOAD_SHARE * RATES_BITS_SECOND[2] / 8), rel=0.15)
