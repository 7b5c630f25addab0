"""Asks the agents of a cluster for their nodes and for every link between them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Protocol

from tonnage.errors import TonnageError, UsageError
from tonnage.hardware.cluster import Cluster
from tonnage.split.observations import Spread
from tonnage.stages.agent_client import AgentClient, SeenNode, SeenTransfer
from tonnage.stages.agent_wire import agent_address

Pair = tuple[str, str]
Say = Callable[[str], None]
ECHOES = 50


class AsksAgent(Protocol):
    """What is asked of the agent of a node."""

    @property
    def address(self) -> str: ...
    def look(self, paces: int) -> SeenNode: ...
    def send(self, target: str, seconds: float, echoes: int) -> SeenTransfer: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Effort:
    """How thoroughly to measure."""

    repeats: int = 5
    transfer_seconds: float = 0.3
    at_once: bool = False  # links that have no node in common


@dataclass(frozen=True, slots=True, kw_only=True)
class SeenLink:
    """From one node to another."""

    bandwidth_bytes_second: Spread
    latency_seconds: Spread


@dataclass(slots=True, kw_only=True)
class Seen:
    """What was measured, and why the rest was not, by the name of the node or link."""

    nodes: dict[str, SeenNode] = field(default_factory=dict)
    links: dict[Pair, SeenLink] = field(default_factory=dict)
    lost_nodes: dict[str, str] = field(default_factory=dict)
    lost_links: dict[Pair, str] = field(default_factory=dict)

    @property
    def failures(self) -> list[str]:
        links = [f"{source}->{target}: {reason}" for (source, target), reason in self.lost_links.items()]
        return [f"{node}: {reason}" for node, reason in self.lost_nodes.items()] + links


def agents_of(cluster: Cluster, token: bytes) -> dict[str, AgentClient]:
    """The agent of each node; raises `UsageError` where one has no address, or the address of another."""
    agents: dict[str, AgentClient] = {}
    taken: dict[tuple[str, int], str] = {}
    for node in cluster.nodes:
        if node.address is None:
            raise UsageError(f"node {node.name} has no address", "add `address: HOST` or `address: HOST:PORT` to it")
        at = agent_address(node.address)
        if at in taken:
            raise UsageError(f"nodes {taken[at]} and {node.name} have the same address, {node.address}")
        taken[at] = node.name
        agents[node.name] = AgentClient(node.address, token)
    return agents


def differences(cluster: Cluster, seen: Seen) -> list[str]:
    """Where the GPUs of a node are not those of the file, a sentence."""
    found = []
    for name, node in seen.nodes.items():
        stated, there = [gpu.name for gpu in cluster.node(name).gpus], [gpu.name for gpu in node.gpus]
        if stated != there:
            found.append(f"{name} has {_listed(there)}; the file says {_listed(stated)}")
    return found


def _listed(gpus: list[str]) -> str:
    return ", ".join(f"{count} x {name}" for name, count in Counter(gpus).items()) or "no GPUs"


def see(agents: Mapping[str, AsksAgent], effort: Effort, say: Say, *, links: bool = True) -> Seen:
    """The nodes, and the links between those that answered."""
    seen = see_nodes(agents, effort, say)
    if links:
        see_links(agents, seen, effort, say)
    return seen


def see_nodes(agents: Mapping[str, AsksAgent], effort: Effort, say: Say) -> Seen:
    """One after the other: nodes that share a machine shall not slow each other."""
    seen = Seen()
    for name, agent in agents.items():
        say(f"looking at {name}")
        try:
            seen.nodes[name] = agent.look(effort.repeats)
        except TonnageError as error:
            seen.lost_nodes[name] = error.message
    return seen


def see_links(agents: Mapping[str, AsksAgent], seen: Seen, effort: Effort, say: Say) -> None:
    """Every ordered pair of the nodes that answered."""
    pairs = [(source, target) for source in seen.nodes for target in seen.nodes if source != target]
    done = 0
    for together in _rounds(pairs, effort.at_once):
        say(f"link {done + 1} of {len(pairs)}: {', '.join('->'.join(pair) for pair in together)}")
        done += len(together)
        with ThreadPoolExecutor(len(together)) as pool:
            for pair, found in zip(together, pool.map(lambda each: _see(agents, each, effort), together), strict=True):
                if isinstance(found, SeenLink):
                    seen.links[pair] = found
                else:
                    seen.lost_links[pair] = found


def _see(agents: Mapping[str, AsksAgent], pair: Pair, effort: Effort) -> SeenLink | str:
    """The link, or why there is none."""
    source, target = pair
    try:
        found = [
            agents[source].send(agents[target].address, effort.transfer_seconds, ECHOES) for _ in range(effort.repeats)
        ]
    except TonnageError as error:
        return error.message
    trips = [seconds for transfer in found for seconds in transfer.round_trip_seconds]
    return SeenLink(
        bandwidth_bytes_second=spread(transfer.bytes_second for transfer in found),
        latency_seconds=spread((seconds / 2 for seconds in trips), longer_is_worse=True),
    )


def _rounds(pairs: Sequence[Pair], at_once: bool) -> list[list[Pair]]:
    """Pairs that have no node in common may go together."""
    if not at_once:
        return [[pair] for pair in pairs]
    rounds: list[list[Pair]] = []
    for pair in pairs:
        free = (each for each in rounds if not {name for other in each for name in other} & set(pair))
        chosen = next(free, None)
        if chosen is None:
            rounds.append([pair])
        else:
            chosen.append(pair)
    return rounds


def spread(values: Iterable[float], *, longer_is_worse: bool = False) -> Spread:
    """The median, and the value that 95 % are as good as."""
    ordered = sorted(values)
    return Spread(median=_quantile(ordered, 0.5), p95=_quantile(ordered, 0.95 if longer_is_worse else 0.05))


def _quantile(ordered: Sequence[float], part: float) -> float:
    """Between two neighbours in proportion."""
    position = part * (len(ordered) - 1)
    below = int(position)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (ordered[above] - ordered[below]) * (position - below)
