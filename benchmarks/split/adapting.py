"""A host that becomes three times slower, or a link that loses half its rate, while a distribution runs: is it noticed, how
long does the new plan take, and does it bring what it predicts?

    python adapting.py [--cases 0:12] [--samples 16]              as root; about a quarter of an hour

The rig is that of execution.py: hosts are network namespaces, stages compute for real, tensors cross links of limited rate.
For each case the best distribution runs undisturbed, then with the disturbance; `tonnage.stages.adapting` compares what was
measured with what was predicted, plans again from the last distribution with the speeds that it observed (it is told
nothing else), and the new distribution runs on the same disturbed hosts. The straggler is the host with the most work, the
slow link that of the host that moves most. `possible_seconds` is the period of a plan that knows the disturbance exactly.

Controls as in execution.py. The rows go to results/adapting-DATE.jsonl.
"""

import argparse
import json
import os
import platform
import signal
import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

import torch
from execution import (
    CLUSTERS,
    HERE,
    MBIT,
    TRIES,
    Bench,
    cluster_of,
    control,
    exported_model,
    hosts_of,
    is_quiet,
    payload_share,
)  # fmt: skip

from tonnage.hardware.cluster import Cluster, Link
from tonnage.split.distributing import best_for
from tonnage.split.distribution import Distribution
from tonnage.split.fabric_of import fabric_of
from tonnage.split.metrics import Metrics
from tonnage.split.network import Network
from tonnage.split.pool import Pool, make_pool
from tonnage.split.targets import Target
from tonnage.stages.adapting import Round, adapt
from tonnage.stages.carrying_out import Outcome, beside
from tonnage.stages.launchers import ProcessLauncher
from tonnage.stages.namespaces import Rig, switched_hosts
from tonnage.stages.run import run_distribution

SLOWER = 3.0
NARROWER = 2.0
# Links on which moving takes about as long as computing: halving one of those does harm.
CLUSTERS["4 on narrow links"] = ((8, 16 * MBIT), (8, 16 * MBIT), (8, 16 * MBIT), (8, 16 * MBIT))
CASES = [
    (model, cluster, disturbance)
    for model in ("resnet50", "bert", "residual", "t5")
    for cluster, disturbance in (
        ("3 equal", "straggler"), ("2 + 2 unequal", "straggler"), ("4 on narrow links", "link"),
    )
]  # fmt: skip


@dataclass
class Hosts:
    """A rig that is disturbed at some time."""

    bench: Bench
    rig: Rig
    cluster: Cluster
    disturbance: str
    victim: str = ""
    paces: dict[str, float] = field(default_factory=dict)
    runs: int = 0

    def carry(self, distribution: Distribution, pool: Pool) -> Outcome:
        """Runs it; from the second time on with the disturbance."""
        assert distribution.metrics is not None
        self.runs += 1
        if self.runs == 2:
            self._disturb(distribution.metrics)
        report = run_distribution(
            self.bench.exported,
            {str(operation): device for operation, device in distribution.assignment.items()},
            hosts=list(hosts_of(self.bench.cluster, self.rig, set(distribution.stages), self.paces)),
            samples=self.bench.samples,
            launcher=ProcessLauncher(),
            compare=True,
        )
        return Outcome(report=report, beside=tuple(beside(distribution.metrics, report, pool)))

    def is_narrow(self, link: Link) -> bool:
        return self.disturbance == "link" and self.victim in link.members

    def _disturb(self, metrics: Metrics) -> None:
        if self.disturbance == "straggler":
            self.victim = max(metrics.busy_seconds, key=lambda name: metrics.busy_seconds[name])
            self.paces[self.victim] = SLOWER
            return
        lane = max(metrics.lane_seconds, key=lambda name: metrics.lane_seconds[name])
        self.victim = next(name for name in lane.split("->") if name != "switch")
        rate = CLUSTERS[self.bench.cluster][int(self.victim[1:])][1]
        for ends in ((self.victim, ""), ("", self.victim)):
            self.rig.set_rate(*ends, rate / NARROWER)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", default=":")
    parser.add_argument("--samples", type=int, default=16)
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("stopped"))
    first, _, last = options.cases.partition(":")
    torch.set_num_threads(1)
    now = datetime.now(UTC)
    share = payload_share()
    rows = []
    for model, cluster, disturbance in CASES[int(first or 0) : int(last or 999)]:
        row = quietly(Bench(exported_model(model), cluster, share, options.samples), disturbance)
        rows.append(row | {"date": now.isoformat(timespec="seconds"), "torch": torch.__version__,
                           "python": platform.python_version(), "cores": os.cpu_count()})  # fmt: skip
        with (HERE / "results" / f"adapting-{now.date()}.jsonl").open("a") as file:
            file.write(json.dumps(rows[-1]) + "\n")
        show(row)
    summary(rows)


def quietly(bench: Bench, disturbance: str) -> dict[str, Any]:
    for _ in range(TRIES):
        network = bench.network()
        before = control(network)
        row = case(bench, network, disturbance)
        after = control(bench.network())
        if is_quiet(before, after):
            return row | {"controls": [asdict(before), asdict(after)]}
        print(f"(not quiet: {before}, {after}: again)", flush=True)
    raise SystemExit("the machine is not quiet: nothing is reported")


def case(bench: Bench, network: Network, disturbance: str) -> dict[str, Any]:
    cluster = cluster_of(bench.cluster, bench.share)
    pool = make_pool(network, fabric_of(cluster), wide=False)
    rates = {f"h{index}": rate for index, (_, rate) in enumerate(CLUSTERS[bench.cluster])}
    with switched_hosts(rates) as rig:
        hosts = Hosts(bench, rig, cluster, disturbance)
        rounds = list(adapt(best_for(pool, Target.THROUGHPUT), pool, cluster, hosts.carry, rounds=3))
    periods = [list(_periods(each)) for each in rounds]
    found = rounds[1].replanned
    return {
        "model": bench.exported.name, "cluster": bench.cluster, "disturbance": disturbance, "victim": hosts.victim,
        "operations": len(network.operations), "before": periods[0], "disturbed": periods[1], "after": periods[2],
        "replan_seconds": rounds[1].replan_seconds, "is_noticed": found is not None,
        "moved_bytes": sum(found.migration.moved_bytes.values()) if found else 0,
        "error": periods[2][0] / periods[2][1] - 1,
        "possible_seconds": possible(network, hosts, cluster),
        "is_equal": all(bool(each.outcome and each.outcome.report.is_equal) for each in rounds),
    }  # fmt: skip


def _periods(each: Round) -> Iterator[float]:
    """Predicted and measured."""
    assert each.outcome is not None
    yield each.outcome.beside[0].predicted
    yield each.outcome.beside[0].measured


def possible(network: Network, hosts: Hosts, cluster: Cluster) -> float:
    """The best period with the disturbance written into the cluster."""
    nodes = tuple(replace(node, speed=node.speed / hosts.paces.get(node.name, 1.0)) for node in cluster.nodes)
    links = tuple(_narrower(link) if hosts.is_narrow(link) else link for link in cluster.links)
    pool = make_pool(network, fabric_of(replace(cluster, nodes=nodes, links=links)), wide=False)
    return best_for(pool, Target.THROUGHPUT).value


def _narrower(link: Link) -> Link:
    return replace(link, bandwidth_bytes_second=round(link.bandwidth_bytes_second / NARROWER))


def show(row: dict[str, Any]) -> None:
    before, disturbed, after = (f"{1e3 * row[when][1]:.0f}" for when in ("before", "disturbed", "after"))
    print(
        f"| {row['model']} | {row['cluster']} | {row['disturbance']} {row['victim']} | {before} | {disturbed} | "
        f"{row['replan_seconds']:.2f} s | {1e3 * row['after'][0]:.0f} | {after} | {row['error']:+.1%} | "
        f"{1e3 * row['possible_seconds']:.0f} | {'equal' if row['is_equal'] else 'DIFFERENT'} |",
        flush=True,
    )


def summary(rows: list[dict[str, Any]]) -> None:
    slowest = max(row["replan_seconds"] for row in rows)
    within = sum(abs(row["error"]) <= 0.1 for row in rows)
    print(f"{len(rows)} cases: planned again in at most {slowest:.2f} s; {within} within 10 % of the new prediction")


if __name__ == "__main__":
    main()
