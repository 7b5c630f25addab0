"""Every node and every direction of every link is asked for; what fails is named, and the rest is kept."""

from __future__ import annotations

from pathlib import Path

import pytest
from seen import FakeAgent, link, node, pace

from tonnage.errors import UsageError
from tonnage.hardware import Cluster, read_cluster
from tonnage.stages.contention import NETWORK, RECEIVES, SENDS, Together, see_contention
from tonnage.stages.measuring import Effort, Seen, agents_of, differences, see_links, see_nodes, spread
from tonnage.stages.statistics_now import statistics_of

EFFORT = Effort(repeats=3, transfer_seconds=0.1)


def quiet(_: str) -> None:
    pass


def three(rates: dict[str, dict[str, float]] | None = None) -> dict[str, FakeAgent]:
    everyone = dict.fromkeys("abc", 100.0)
    return {name: FakeAgent(name, (rates or {}).get(name, everyone), node()) for name in "abc"}


def cluster_of(folder: Path, text: str) -> Cluster:
    path = folder / "cluster.yaml"
    path.write_text(text)
    return read_cluster(path)


def measured(agents: dict[str, FakeAgent], effort: Effort = EFFORT) -> Seen:
    seen = see_nodes(agents, effort, quiet)
    see_links(agents, seen, effort, quiet)
    return seen


def test_both_directions_of_every_pair_are_measured() -> None:
    agents = three({"a": {"b": 50.0, "c": 100.0}, "b": {"a": 70.0, "c": 100.0}, "c": {"a": 1.0, "b": 2.0}})
    seen = measured(agents)
    rates = {pair: found.bandwidth_bytes_second.median for pair, found in seen.links.items()}
    assert rates == {
        ("a", "b"): 50, ("a", "c"): 100, ("b", "a"): 70, ("b", "c"): 100, ("c", "a"): 1, ("c", "b"): 2,
    }  # fmt: skip
    assert seen.links["a", "b"].latency_seconds.median == 1e-4
    assert agents["a"].busy == ["b"] * 3 + ["c"] * 3


def test_a_node_that_does_not_answer_is_named_and_left_out() -> None:
    agents = three()
    agents["b"].node = None
    seen = measured(agents)
    assert set(seen.links) == {("a", "c"), ("c", "a")}
    assert seen.failures == ["b: the agent at b does not answer: gone"]


def test_a_link_that_fails_is_named_and_the_rest_is_kept() -> None:
    seen = measured(three({"a": {"c": 100.0}}))
    assert len(seen.links) == 5
    assert seen.failures == ["a->b: the agent at b does not answer: gone"]


def test_links_without_a_node_in_common_may_be_measured_at_once() -> None:
    names = "abcd"
    agents = {name: FakeAgent(name, dict.fromkeys(names, 1.0), node()) for name in names}
    said: list[str] = []
    seen = see_nodes(agents, EFFORT, quiet)
    see_links(agents, seen, Effort(repeats=1, at_once=True), said.append)
    assert len(seen.links) == 12
    assert len(said) == 6
    assert said[0] == "link 1 of 12: a->b, c->d"


def test_95_percent_of_the_observations_are_as_good_as_p95() -> None:
    rates = spread([float(value) for value in range(1, 101)])
    assert rates.median == 50.5
    assert rates.p95 == pytest.approx(5.95)
    delays = spread([float(value) for value in range(1, 101)], longer_is_worse=True)
    assert delays.p95 == pytest.approx(95.05)
    assert spread([7.0]).p95 == 7.0


def test_a_node_without_an_address_is_named(tmp_path: Path) -> None:
    cluster = cluster_of(tmp_path, "nodes: [{name: a, cpu: {cores: 1}, memory: 1 GiB}]")
    with pytest.raises(UsageError, match="node a has no address"):
        agents_of(cluster, b"")


def test_two_nodes_with_one_address_are_named(tmp_path: Path) -> None:
    text = "nodes: [{name: a, count: 2, cpu: {cores: 1}, memory: 1 GiB, address: [x, 'x:8643']}]"
    with pytest.raises(UsageError, match="nodes a-0 and a-1 have the same address"):
        agents_of(cluster_of(tmp_path, text), b"")


def test_gpus_that_the_file_does_not_have_are_told(tmp_path: Path) -> None:
    size = "cpu: {cores: 1}, memory: 1 GiB"
    cluster = cluster_of(tmp_path, f"nodes: [{{name: a, {size}, gpus: [{{model: T4}}]}}, {{name: b, {size}}}]")
    assert differences(cluster, Seen(nodes={"a": node(gpus=1), "b": node()})) == []
    assert differences(cluster, Seen(nodes={"a": node(gpus=2), "b": node(gpus=1)})) == [
        "a has 2 x T4; the file says 1 x T4",
        "b has 1 x T4; the file says no GPUs",
    ]


# -- contention -----------------------------------------------------------------------------------------------------------


def test_each_node_sends_twice_at_once_and_receives_twice_at_once() -> None:
    agents = three()
    seen = measured(agents)
    found = see_contention(agents, seen, EFFORT, quiet)
    assert [(each.shared_by, each.node) for each in found] == [
        (kind, name) for name in "abc" for kind in (SENDS, RECEIVES)
    ]
    assert not any(each.is_contended for each in found)


def test_half_of_the_sum_is_contention_and_is_said() -> None:
    agents = three()
    seen = measured(agents)
    for agent in agents.values():
        agent.rates = dict.fromkeys("abc", 50.0)
    found = see_contention(agents, seen, EFFORT, quiet)[0]
    assert found.is_contended
    assert found.sentence == "a->b and a->c at once reach 50% of the sum of both alone: the way out of a is shared"


def test_pairs_with_nothing_in_common_show_a_shared_network() -> None:
    names = "abcd"
    agents = {name: FakeAgent(name, dict.fromkeys(names, 1.0), node()) for name in names}
    found = see_contention(agents, measured(agents), EFFORT, quiet)[-1]
    assert (found.shared_by, found.pairs) == (NETWORK, (("a", "b"), ("c", "d")))


def test_two_nodes_have_nothing_to_share() -> None:
    agents = {name: FakeAgent(name, {"a": 1.0, "b": 1.0}, node()) for name in "ab"}
    assert see_contention(agents, measured(agents), EFFORT, quiet) == []


def test_an_agent_that_fails_meanwhile_is_no_contention() -> None:
    agents = three()
    seen = measured(agents)
    agents["a"].rates = {}
    kinds = [each.node for each in see_contention(agents, seen, EFFORT, quiet) if each.shared_by == SENDS]
    assert kinds == ["b", "c"]


def test_a_sentence_names_who_receives() -> None:
    pairs = (("a", "c"), ("b", "c"))
    found = Together(shared_by=RECEIVES, pairs=pairs, alone_bytes_second=100, together_bytes_second=60)
    assert found.sentence.endswith("reach 60% of the sum of both alone: the way into c is shared")


# -- statistics -----------------------------------------------------------------------------------------------------------


def test_what_agents_say_becomes_statistics(tmp_path: Path) -> None:
    size = "cpu: {cores: 1}, memory: 1 GiB"
    text = f"nodes: [{{name: a, {size}, gpus: [{{model: T4}}]}}, {{name: b, {size}}}]"
    seen = Seen(nodes={"a": node(gpus=2, now=0.5)}, lost_nodes={"b": "gone"}, links={("a", "b"): link(5.0)})
    seen.lost_links["b", "a"] = "gone"
    found = statistics_of(seen, cluster_of(tmp_path, text), taken_at=7.0, valid_seconds=60.0)
    processors, gpu, lost = found.places
    assert (processors.place, processors.load, processors.taken_at) == ("a", 0.25, 7.0)
    assert processors.speed is not None
    assert processors.speed.median == pytest.approx(0.5)
    assert (gpu.place, gpu.load, gpu.available_bytes, gpu.speed) == ("a/gpu0", 0.5, 7, None)
    assert (lost.place, lost.is_lost) == ("b", True)
    assert [(each.source, each.target, each.is_lost) for each in found.links] == [("a", "b", False), ("b", "a", True)]


def test_the_score_weighs_products_and_copies_alike() -> None:
    assert pace(3.0).score == 3.0
