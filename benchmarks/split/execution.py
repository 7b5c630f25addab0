"""Runs distributions for real, on hosts with links of limited rate, and puts the predicted period beside the measured one.

    python execution.py [--cases 0:42] [--samples 16]             as root; about half an hour

A case is a model, a cluster and a way to split: the solver's best distribution, or cuts at random. Each host is a network
namespace (`tonnage.stages.namespaces`). A worker of a host that is n times slower than this machine waits until n times the
processor time that its part needs when nothing disturbs it has passed: it finds out at the beginning, by running its part
several times. So several hosts fit onto a few cores, and are not slower because of each other. Everything else is real: the
stages compute, and tensors cross the links.

A prediction knows the seconds of each operator, measured in this process with the whole network, the rate of the links, and
what TCP carries of a rate, measured at the beginning. Nothing is learned from the runs that are predicted.

Control measurements before and after each case (the operators once more, and how late a sleeper wakes up) must agree, else
the case is done again; where the machine does not get quiet nothing is reported.

The rows go to results/execution-DATE.jsonl.
"""

import argparse
import json
import os
import platform
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import torch
from models import MODELS

from tonnage.benchmark.time_models import current_model
from tonnage.hardware.cluster import Cluster, Link, Node
from tonnage.program.aliasing import aliasing_of
from tonnage.program.exported import Exported, export_module
from tonnage.split.devices import Fabric
from tonnage.split.fabric_of import fabric_of
from tonnage.split.metrics import Evaluation, Metrics
from tonnage.split.network import Network
from tonnage.split.pool import make_pool
from tonnage.stages.hosts import StageHost
from tonnage.stages.launchers import ProcessLauncher
from tonnage.stages.namespaces import Rig, switched_hosts
from tonnage.stages.networks import Kinds, network_of
from tonnage.stages.report import RunReport
from tonnage.stages.run import run_distribution

HERE = Path(__file__).parent
MBIT = 1e6
GIB = 1 << 30
NOISE = 1.08  # how much the controls around a case may differ
LATE_SECONDS = 1e-3
TRIES = 6
COST_SECONDS = 5.0  # for the measurement of operators
MODELS_RUN: dict[str, dict[str, int]] = {
    "resnet50": {"pixels": 96}, "bert": {"words": 16}, "gpt2": {"words": 8}, "llama": {"words": 32}, "t5": {"words": 16},
    "cells": {"pixels": 64}, "residual": {"pixels": 40},
}  # fmt: skip
# Hosts: how many times slower than this machine, and the rate of their links.
CLUSTERS: dict[str, tuple[tuple[float, float], ...]] = {
    "3 equal": ((12, 200 * MBIT),) * 3,
    "2 + 2 unequal": ((10, 200 * MBIT), (10, 200 * MBIT), (20, 50 * MBIT), (20, 50 * MBIT)),
    "3 on slow links": ((8, 10 * MBIT), (8, 10 * MBIT), (12, 5 * MBIT)),
}
SPLITS = ("best", "random")


@dataclass(frozen=True, slots=True)
class Case:
    model: str
    cluster: str
    split: str


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", default=":")
    parser.add_argument("--samples", type=int, default=16)
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("stopped"))  # so that the hosts are taken down
    first, _, last = options.cases.partition(":")
    cases = [Case(m, c, s) for m in MODELS_RUN for c in CLUSTERS for s in SPLITS][int(first or 0) : int(last or 999)]
    torch.set_num_threads(1)
    now = datetime.now(UTC)
    path = HERE / "results" / f"execution-{now.date()}.jsonl"
    share = payload_share()
    print(f"a link carries {share:.1%} of its rate", flush=True)
    rows: list[dict[str, Any]] = []
    for model, cluster in dict.fromkeys((case.model, case.cluster) for case in cases):
        splits = [case.split for case in cases if (case.model, case.cluster) == (model, cluster)]
        for row in quietly(Bench(exported_model(model), cluster, share, options.samples), splits):
            rows.append(row | {"date": now.isoformat(timespec="seconds"), "torch": torch.__version__,
                               "python": platform.python_version(), "cores": os.cpu_count()})  # fmt: skip
            with path.open("a") as file:
                file.write(json.dumps(rows[-1]) + "\n")
            show(rows[-1])
    summary(rows)


def show(row: dict[str, Any]) -> None:
    print(
        f"| {row['model']} | {row['cluster']} | {row['split']} | {row['stages']} stages | {row['bottleneck']} | "
        f"{row['predicted_seconds'] * 1e3:.1f} | {row['measured_seconds'] * 1e3:.1f} | {row['error']:+.1%} | "
        f"{'equal' if row['is_equal'] else 'DIFFERENT'} |",
        flush=True,
    )


def summary(rows: list[dict[str, Any]]) -> None:
    errors = sorted(abs(row["error"]) for row in rows)
    equal = sum(row["is_equal"] for row in rows)
    print(
        f"{len(rows)} cases: error median {np.median(errors):.1%}, p95 {np.quantile(errors, 0.95):.1%}; {equal} bit-equal"
    )


# -- is the machine quiet? ------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Control:
    """How the machine is: what the operators of the network take together, and how late a sleeper wakes up (p90)."""

    network_seconds: float
    late_seconds: float


def control(network: Network) -> Control:
    late = []
    for _ in range(50):
        begin = time.perf_counter()
        time.sleep(0.01)
        late.append(time.perf_counter() - begin - 0.01)
    return Control(sum(each.seconds["cpu"] for each in network.operations), sorted(late)[45])


def is_quiet(before: Control, after: Control) -> bool:
    works = sorted((before.network_seconds, after.network_seconds))
    return works[1] <= works[0] * NOISE and max(before.late_seconds, after.late_seconds) <= LATE_SECONDS


def quietly(bench: "Bench", splits: list[str]) -> Iterator[dict[str, Any]]:
    """The rows of a model on a cluster, each from a time when the machine was quiet."""
    for split in splits:
        for _ in range(TRIES):
            network = bench.network()
            before = control(network)
            row = bench.row(network, split)
            after = control(bench.network())
            if is_quiet(before, after):
                yield row | {"controls": [asdict(before), asdict(after)]}
                break
            print(f"(not quiet, error {row['error']:+.1%}: {before}, {after}: again)", flush=True)
        else:
            raise SystemExit("the machine is not quiet: nothing is reported")


# -- links ----------------------------------------------------------------------------------------------------------------

_RECEIVE = """
import socket, sys, time
server = socket.create_server((sys.argv[1], 7777)); print("ready", flush=True)
connection, _ = server.accept(); total = 0; begin = None
while True:
    data = connection.recv(1 << 20)
    if not data: break
    if begin is None and total > 1 << 20: begin, total = time.perf_counter(), 0
    total += len(data)
print(total / (time.perf_counter() - begin))
"""
_SEND = """
import socket, sys
connection = socket.create_connection((sys.argv[1], 7777), 5); data = bytes(1 << 20)
for _ in range(int(sys.argv[2])): connection.sendall(data)
connection.close()
"""


def payload_share() -> float:
    """What TCP carries of a link's rate as payload."""
    rate = 400 * MBIT
    with switched_hosts({"a": rate, "b": rate}) as rig:
        receiver = subprocess.Popen(
            [*rig.prefix("b"), sys.executable, "-c", _RECEIVE, rig.addresses["b"]], stdout=subprocess.PIPE, text=True
        )
        assert receiver.stdout is not None
        receiver.stdout.readline()
        subprocess.run([*rig.prefix("a"), sys.executable, "-c", _SEND, rig.addresses["b"], "100"], check=True)
        return 8 * float(receiver.stdout.readline()) / rate


# -- cases ----------------------------------------------------------------------------------------------------------------


def exported_model(name: str) -> Exported:
    torch.manual_seed(0)
    sizes = dict(MODELS_RUN[name])
    pixels = sizes.pop("pixels", 0)
    model, inputs = residual() if name == "residual" else MODELS[name](**sizes)
    if pixels:
        inputs = {"images": torch.rand(1, 3, pixels, pixels)}
    return export_module(model, inputs, name=name)


def residual() -> tuple[torch.nn.Module, Any]:
    """The network of examples/residual.py."""
    path = HERE.parents[1] / "examples" / "residual.py"
    names: dict[str, Any] = {"__name__": "residual"}
    exec(compile(path.read_text(), str(path), "exec"), names)
    model, inputs = names["build"]()
    return model, (inputs,)


def cluster_of(name: str, share: float) -> Cluster:
    hosts = CLUSTERS[name]
    nodes = tuple(
        Node(name=f"h{index}", group="h", cpu_cores=1, memory_bytes=16 * GIB, speed=1 / slower)
        for index, (slower, _) in enumerate(hosts)
    )
    links = tuple(
        Link(kind="ethernet", members=(f"h{index}", "switch"), bandwidth_bytes_second=round(rate * share / 8),
             latency_seconds=5e-5)
        for index, (_, rate) in enumerate(hosts)
    )  # fmt: skip
    return Cluster(name=name, nodes=nodes, switches=("switch",), links=links)


@dataclass
class Bench:
    """A model on a cluster."""

    exported: Exported
    cluster: str
    share: float
    samples: int

    def network(self) -> Network:
        """With costs by the clock of the processor when nothing disturbs it, as workers take it."""
        begin = time.perf_counter()
        with torch.no_grad():
            self.exported.module(*self.exported.arguments, **self.exported.keywords)
        repeats = max(10, round(COST_SECONDS / 2 / (time.perf_counter() - begin)))
        kinds = Kinds(model=current_model(), threads=1, repeats=repeats, clock=time.thread_time, typical=min)
        return network_of(self.exported, aliasing_of(self.exported.module), kinds)

    def row(self, network: Network, split: str) -> dict[str, Any]:
        fabric = fabric_of(cluster_of(self.cluster, self.share))
        places = best(network, fabric) if split == "best" else random_cuts(network, fabric, self.exported.name)
        metrics, report = self.run(network, fabric, places)
        period = report.period_seconds.median
        return {
            "model": self.exported.name, "cluster": self.cluster, "split": split,
            "operations": len(network.operations), "stages": len(set(places)), "bottleneck": metrics.bottleneck,
            "predicted_seconds": metrics.period_seconds, "measured_seconds": period,
            "error": metrics.period_seconds / period - 1, "predicted_latency_seconds": metrics.latency_seconds,
            "measured_latency_seconds": report.latency_seconds.median, "is_equal": bool(report.is_equal),
            "moved_bytes": metrics.moved_bytes, "busy_seconds": dict(metrics.busy_seconds),
            "measured_busy_seconds": {stage.device: stage.forward_seconds.median for stage in report.stages},
        }  # fmt: skip

    def run(self, network: Network, fabric: Fabric, places: list[int]) -> tuple[Metrics, RunReport]:
        names = [fabric.devices[place].name for place in places]
        rates = {f"h{index}": rate for index, (_, rate) in enumerate(CLUSTERS[self.cluster])}
        with switched_hosts(rates) as rig:
            report = run_distribution(
                self.exported,
                {str(operation.id): name for operation, name in zip(network.operations, names, strict=True)},
                hosts=list(hosts_of(self.cluster, rig, set(names))),
                samples=self.samples,
                launcher=ProcessLauncher(),
                compare=True,
            )
        return Evaluation(network, fabric, places).metrics(), report


def best(network: Network, fabric: Fabric) -> list[int]:
    pool = make_pool(network, fabric, wide=False)
    return list(min(pool.fitting().items(), key=lambda each: each[1].period_seconds)[0].places)


def random_cuts(network: Network, fabric: Fabric, seed: str) -> list[int]:
    """Shares of the work drawn at random, no device with nothing."""
    generator = random.Random(seed + str(len(fabric.devices)))
    return along(network, [0.3 + generator.random() for _ in fabric.devices])


def along(network: Network, shares: list[float]) -> list[int]:
    """Cuts along the order of the network, each device with its share of the work."""
    ends = [sum(shares[: index + 1]) / sum(shares) for index in range(len(shares))]
    total, done, places = sum(each.seconds["cpu"] for each in network.operations), 0.0, []
    together: dict[Any, int] = {}
    for operation in network.operations:
        place = next((index for index, end in enumerate(ends) if done / total < end), len(ends) - 1)
        if operation.together is not None:
            place = together.setdefault(operation.together, place)
        places.append(place)
        done += operation.seconds["cpu"]
    return places


def hosts_of(cluster: str, rig: Rig, used: set[str], extra: Mapping[str, float] | None = None) -> Iterator[StageHost]:
    """Those in use; some may be slower still, by a factor."""
    for index, (slower, _) in enumerate(CLUSTERS[cluster]):
        name = f"h{index}"
        if name in used:
            pace = slower * (extra or {}).get(name, 1.0)
            yield StageHost(device=name, address=rig.addresses[name], pace=pace, prefix=rig.prefix(name))


if __name__ == "__main__":
    main()
