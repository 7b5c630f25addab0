"""What was measured goes into the cluster file, and everything else stays."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from seen import GIB, link, node

from tonnage.hardware import Cluster, read_cluster
from tonnage.stages.contention import RECEIVES, SENDS, Together
from tonnage.stages.fill_in import filled_in
from tonnage.stages.measuring import Pair, Seen, SeenLink

NODES = """
name: rig
nodes:
  - {name: a, count: 2, cpu: {cores: 4}, memory: 1 GiB, labels: {rack: r1}, price_usd_hour: 2}
  - {name: b, cpu: {cores: 4}, memory: 1 GiB, gpus: [{model: T4}]}
"""
ALL = ("a-0", "a-1", "b")
MBIT = 125_000.0


def all_links(rate: float = 100 * MBIT, **other: float) -> dict[Pair, SeenLink]:
    """All alike, but for `other`, by the node that sends."""
    return {(x, y): link(other.get(x.replace("-", "_"), rate)) for x in ALL for y in ALL if x != y}


def seen(links: dict[Pair, SeenLink] | None = None) -> Seen:
    return Seen(
        nodes={"a-0": node(2.0, memory_bytes=9 * GIB), "a-1": node(4.0), "b": node(8.0)},
        links=all_links() if links is None else links,
    )


def filled(folder: Path, text: str, found: Seen, together: list[Together] | None = None) -> tuple[Any, Cluster]:
    path = folder / "cluster.yaml"
    path.write_text(text)
    content = filled_in(yaml.safe_load(text), read_cluster(path), found, together or [], "a-0")
    path.write_text(yaml.safe_dump(content))
    return content, read_cluster(path)


def test_memory_and_speed_are_filled_in_and_the_rest_stays(tmp_path: Path) -> None:
    content, cluster = filled(tmp_path, NODES, seen())
    assert content["nodes"][0] == {
        "name": "a", "count": 2, "cpu": {"cores": 4}, "memory": "8192 MiB", "labels": {"rack": "r1"},
        "price_usd_hour": 2, "speed": 1.5,
    }  # fmt: skip
    assert cluster.node("a-1").memory_bytes == 8 * GIB


def test_the_speed_of_processors_is_not_that_of_gpus(tmp_path: Path) -> None:
    assert "speed" not in filled(tmp_path, NODES, seen())[0]["nodes"][1]


def test_a_node_that_did_not_answer_stays_as_it_was(tmp_path: Path) -> None:
    found = seen({("a-0", "a-1"): link(), ("a-1", "a-0"): link()})
    del found.nodes["b"]
    content, _ = filled(tmp_path, NODES, found)
    assert content["nodes"][1]["memory"] == "1 GiB"
    assert content["links"][0]["between"] == ["a-0", "a-1"]


def test_a_file_without_links_gets_a_matrix(tmp_path: Path) -> None:
    content, cluster = filled(tmp_path, NODES, seen(all_links(b=40 * MBIT)))
    assert content["links"] == [
        {
            "kind": "ethernet",
            "between": ["a-0", "a-1", "b"],
            "bandwidth_matrix": [
                [None, "100.0 Mbit/s", "100.0 Mbit/s"],
                ["100.0 Mbit/s", None, "100.0 Mbit/s"],
                ["40.00 Mbit/s", "40.00 Mbit/s", None],
            ],
            "latency_matrix": [
                [None, "100.0 us", "100.0 us"],
                ["100.0 us", None, "100.0 us"],
                ["100.0 us", "100.0 us", None],
            ],
        }
    ]
    assert cluster.bandwidth_bytes_second("b", "a-1") == 40 * MBIT
    assert cluster.latency_seconds("b", "a-1") == pytest.approx(1e-4)


def test_links_that_the_file_has_keep_their_other_fields(tmp_path: Path) -> None:
    text = NODES + "links: [{kind: roce, between: [all], bandwidth: 1 GB/s, latency: 3 us}]\n"
    content, cluster = filled(tmp_path, text, seen())
    assert {key: content["links"][0].get(key) for key in ("kind", "between", "bandwidth", "latency")} == {
        "kind": "roce", "between": ["all"], "bandwidth": None, "latency": None,
    }  # fmt: skip
    assert cluster.bandwidth_bytes_second("a-0", "b") == 100 * MBIT


def test_a_pair_that_was_not_measured_keeps_what_the_file_says(tmp_path: Path) -> None:
    text = NODES + "links: [{kind: roce, bandwidth: 1 GB/s, latency: 3 us}]\n"
    links = all_links()
    del links["a-0", "b"]
    _, cluster = filled(tmp_path, text, seen(links))
    assert cluster.bandwidth_bytes_second("a-0", "b") == 10**9
    assert cluster.latency_seconds("a-0", "b") == pytest.approx(3e-6)


def test_a_switch_divides_the_way_into_hops(tmp_path: Path) -> None:
    text = NODES + "switches: [s]\nlinks: [{kind: ethernet, between: [all, s], bandwidth: 1 GB/s}]\n"
    text = text.replace("[all, s]", "[a, s]") + "  \n"
    text = text.replace("links: [", "links: [{kind: ethernet, between: [b, s], bandwidth: 1 GB/s}, ")
    links = all_links()
    links["a-0", "b"], links["b", "a-0"], links["a-1", "b"], links["b", "a-1"] = [link(50 * MBIT, 3e-4)] * 4
    _, cluster = filled(tmp_path, text, seen(links))
    assert cluster.bandwidth_bytes_second("a-0", "a-1") == 100 * MBIT
    assert cluster.bandwidth_bytes_second("a-0", "b") == 50 * MBIT
    assert cluster.latency_seconds("a-0", "a-1") == pytest.approx(1e-4)
    assert cluster.latency_seconds("b", "s") == pytest.approx(1.5e-4)


def test_a_shared_link_stays_one(tmp_path: Path) -> None:
    text = NODES + "links: [{kind: bus, bandwidth: 1 GB/s, shared: true}]\n"
    content, _ = filled(tmp_path, text, seen())
    assert content["links"] == [
        {"kind": "bus", "shared": True, "bandwidth": "100.0 Mbit/s", "latency": "100.0 us"}
    ]  # fmt: skip


def test_ways_out_that_are_shared_become_a_switch(tmp_path: Path) -> None:
    found = seen(all_links(b=40 * MBIT))
    out = Together(
        shared_by=SENDS,
        pairs=(("b", "a-0"), ("b", "a-1")),
        alone_bytes_second=80 * MBIT,
        together_bytes_second=42 * MBIT,
    )
    into = Together(
        shared_by=RECEIVES, pairs=(("a-0", "b"), ("a-1", "b")), alone_bytes_second=200 * MBIT,
        together_bytes_second=190 * MBIT,
    )  # fmt: skip
    content, cluster = filled(tmp_path, NODES, found, [out, into])
    assert content["switches"] == ["network"]
    assert cluster.bandwidth_bytes_second("b", "network") == 40 * MBIT
    assert cluster.bandwidth_bytes_second("network", "b") == 190 * MBIT
    assert cluster.bandwidth_bytes_second("a-0", "b") == 100 * MBIT
    assert cluster.latency_seconds("a-0", "b") == pytest.approx(1e-4)
