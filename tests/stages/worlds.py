"""Clusters of three nodes around a switch, and runs on them as their devices and links really are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tonnage.errors import Unreachable
from tonnage.hardware import Cluster, read_cluster
from tonnage.split.devices import Fabric
from tonnage.split.distribution import Distribution
from tonnage.split.layout import Layout
from tonnage.split.metrics import Evaluation
from tonnage.split.pool import Pool, measure
from tonnage.stages.carrying_out import Outcome, beside
from tonnage.stages.hosts import LostWorkers
from tonnage.stages.report import NOTHING, LinkTimes, RunReport, Spread, StageTimes


def cluster_of(
    folder: Path, *, speeds: Sequence[float] = (1, 1, 1), rates: Sequence[str] = ("1 GB/s", "1 GB/s", "1 GB/s")
) -> Cluster:
    """Nodes n0, n1, ..., each with a link of its own to the switch."""
    path = folder / "cluster.yaml"
    nodes = [
        f"{{name: n{number}, cpu: {{cores: 1}}, memory: 8 GiB, speed: {each}}}" for number, each in enumerate(speeds)
    ]
    links = [f"{{kind: e, between: [n{number}, s], bandwidth: {each}}}" for number, each in enumerate(rates)]
    path.write_text(f"nodes: [{', '.join(nodes)}]\nswitches: [s]\nlinks: [{', '.join(links)}]\n")
    return read_cluster(path)


def always(seconds: float) -> Spread:
    return Spread(median=seconds, p95=seconds, count=10)


def stage_times(device: str, seconds: Spread) -> StageTimes:
    return StageTimes(
        device=device, stage=device, segments=1, operations=1, weight_bytes=0, peak_bytes=0, forward_seconds=seconds,
        backward_seconds=NOTHING, update_seconds=NOTHING, processor_seconds=seconds,
    )  # fmt: skip


def report_of(
    period: float, stages: Mapping[str, Spread], links: Sequence[LinkTimes] = (), *, mode: str = "inference"
) -> RunReport:
    return RunReport(
        network="chain", mode=mode, transport="sockets", samples=10, micro_batches=1, period_seconds=always(period),
        latency_seconds=NOTHING, stages=tuple(stage_times(*each) for each in stages.items()), links=tuple(links),
    )  # fmt: skip


def really(distribution: Distribution, pool: Pool, fabric: Fabric) -> Outcome:
    """What a run measures on devices and links that are those of `fabric`."""
    assert distribution.metrics is not None
    position = {device.name: place for place, device in enumerate(fabric.devices)}
    places = tuple(position[distribution.assignment[operation.id]] for operation in pool.network.operations)
    metrics = measure(pool.network, fabric, Layout(places), pool.training)
    sent: dict[tuple[str, str], int] = {}
    evaluation = Evaluation(pool.network, fabric, places)
    for each in (*evaluation.transfers, *evaluation.answers):
        pair = (fabric.devices[each.source].name, fabric.devices[each.target].name)
        sent[pair] = sent.get(pair, 0) + each.nbytes
    links = []
    for (source, target), nbytes in sent.items():
        way = fabric.way_between(source, target)
        assert way is not None
        seconds = always(nbytes / fabric.bytes_second(way))
        links.append(LinkTimes(source=source, target=target, bytes_sample=nbytes, seconds=seconds))
    report = report_of(
        metrics.step_seconds or metrics.period_seconds,
        {device: always(seconds) for device, seconds in metrics.busy_seconds.items()},
        links,
        mode="training" if pool.training else "inference",
    )
    return Outcome(report=report, beside=tuple(beside(distribution.metrics, report, pool)))


def died(device: str) -> LostWorkers:
    return LostWorkers(f"the worker of {device} died", [device])


@dataclass
class World:
    """How devices and links are in each round; the last is how they stay. Some rounds may fail."""

    fabrics: Sequence[Fabric]
    failures: Mapping[int, Unreachable] = field(default_factory=dict)
    runs: list[Distribution] = field(default_factory=list)

    def carry(self, distribution: Distribution, pool: Pool) -> Outcome:
        number = len(self.runs)
        self.runs.append(distribution)
        if number in self.failures:
            raise self.failures[number]
        return really(distribution, pool, self.fabrics[min(number, len(self.fabrics) - 1)])
