"""How much of the GPUs every policy of `tonnage pack` allocates, on the openb list and on variants of it.

    python benchmarks/allocation/pack.py [--data FOLDER] [--seeds 10] [--variant-seeds 3] [--only NAME] [--write]

Every packing is checked by the independent checker. The published value for the openb list is the fragmentation gradient
descent's in its authors' simulator. Variants are drawn from the list with a fixed seed; each is named after what it has more of.
"""

from __future__ import annotations

import argparse
import datetime
import gzip
import json
import os
import platform
import statistics
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import numpy as np

from tonnage.allocate.packing.check import check_packing
from tonnage.allocate.packing.openb import parse_nodes, parse_pods
from tonnage.allocate.packing.pods import Node, Pod
from tonnage.allocate.packing.simulate import POLICIES, pack

HERE = Path(__file__).parent
PUBLISHED = {"openb": 0.9523}
DRAWN_GPUS = 6000  # demand of a drawn list, about that of the openb list
MODELS = ("T4", "T4", "T4", "V100M16|V100M32", "V100M16|V100M32", "G2", "G2", "P100", "P100|V100M16|V100M32", "G3")


@dataclass(frozen=True, kw_only=True)
class Row:
    workload: str
    policy: str
    seeds: int
    allocated_share: float
    lowest: float
    highest: float
    seconds_per_seed: float
    problems: int


def with_demand(pods: list[Pod], gpus: float, random: np.random.Generator) -> list[Pod]:
    """Pods drawn from these with about so much GPU demand."""
    mean = statistics.mean(pod.demand_milli for pod in pods) / 1000
    return [pods[index] for index in random.integers(0, len(pods), round(gpus / mean))]


def workloads(pods: tuple[Pod, ...]) -> Iterator[tuple[str, tuple[Pod, ...]]]:
    """The list itself and what is derived from it."""
    yield "openb", pods
    random = np.random.default_rng(7)
    idle = [pod for pod in pods if not pod.gpu_count]
    busy = [pod for pod in pods if pod.gpu_count]
    sharing = [pod for pod in busy if pod.gpu_milli < 1000]
    whole = [pod for pod in busy if pod.gpu_milli == 1000]
    single, several = [p for p in busy if p.gpu_count == 1], [p for p in busy if p.gpu_count > 1]
    for percent in (20, 50):
        many = with_demand(several, DRAWN_GPUS * percent / 100, random)
        yield f"multi-gpu-{percent}", (*idle, *many, *with_demand(single, DRAWN_GPUS * (1 - percent / 100), random))
    for percent in (40, 100):
        part = with_demand(sharing, DRAWN_GPUS * percent / 100, random)
        rest = with_demand(whole, DRAWN_GPUS * (1 - percent / 100), random)
        yield f"gpu-share-{percent}", (*idle, *part, *rest)
    for percent in (50, 250):
        yield (
            f"cpu-pods-{percent}",
            (*busy, *(idle[i] for i in random.integers(0, len(idle), len(idle) * percent // 100))),
        )
    yield "cpu-heavy", tuple(replace(pod, cpu_milli=pod.cpu_milli * 5 // 4) for pod in pods)
    yield "memory-heavy", tuple(replace(pod, memory_mib=pod.memory_mib * 8 // 5) for pod in pods)
    for percent in (10, 33):
        yield f"typed-{percent}", (*idle, *(typed(pod, percent, random) for pod in busy))


def typed(pod: Pod, percent: int, random: np.random.Generator) -> Pod:
    if random.random() * 100 >= percent:
        return pod
    models = MODELS[random.integers(len(MODELS))] if pod.gpu_count == 1 else "G2"
    return replace(pod, models=frozenset(models.split("|")))


def measure(name: str, policy: str, nodes: tuple[Node, ...], pods: tuple[Pod, ...], seeds: int) -> Row:
    start = time.perf_counter()
    packings = [pack(nodes, pods, policy, seed) for seed in range(seeds)]
    seconds = (time.perf_counter() - start) / seeds
    checked = [check_packing(nodes, packing.arrived(pods), packing.assignments) for packing in packings]
    shares = [found.allocated_share for found in checked]
    return Row(
        workload=name, policy=policy, seeds=seeds, allocated_share=statistics.mean(shares), lowest=min(shares),
        highest=max(shares), seconds_per_seed=round(seconds, 2), problems=sum(len(found.problems) for found in checked),
    )  # fmt: skip


def read(folder: Path) -> tuple[tuple[Node, ...], tuple[Pod, ...]]:
    def lines(name: str) -> list[str]:
        return gzip.decompress((folder / name).read_bytes()).decode().splitlines(keepends=True)

    return parse_nodes(lines("openb_nodes.csv.gz"), "nodes"), parse_pods(lines("openb_pods_default.csv.gz"), "pods")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=HERE.parents[2] / "shared" / "data" / "jobs")
    parser.add_argument("--seeds", type=int, default=10, help="for the openb list")
    parser.add_argument("--variant-seeds", type=int, default=3, help="for lists derived from it")
    parser.add_argument("--only", help="one workload")
    parser.add_argument("--write", action="store_true", help="write results/pack-DATE.jsonl")
    options = parser.parse_args()
    nodes, pods = read(options.data)
    today = datetime.date.today().isoformat()
    lines = [{"date": today, "cores": os.cpu_count(), "python": platform.python_version(), "numpy": np.__version__}]
    print(
        f"{'workload':14} {'policy':12} {'allocated':>9} {'lowest':>8} {'highest':>8} {'published':>9} {'s/seed':>7} {'problems':>8}"
    )
    for name, workload in workloads(pods):
        for policy in POLICIES if options.only in (None, name) else ():
            seeds = options.seeds if name == "openb" else options.variant_seeds
            row = measure(name, policy, nodes, workload, seeds)
            published = PUBLISHED.get(name) if policy == "fgd" else None
            shown = f"{published:9.2%}" if published else " " * 9
            print(f"{name:14} {policy:12} {row.allocated_share:9.2%} {row.lowest:8.2%} {row.highest:8.2%} {shown} "
                  f"{row.seconds_per_seed:7.2f} {row.problems:8}", flush=True)  # fmt: skip
            lines.append(asdict(row) | {"published": published})
    if options.write:
        target = HERE / "results" / f"pack-{today}.jsonl"
        target.parent.mkdir(exist_ok=True)
        target.write_text("".join(json.dumps(line) + "\n" for line in lines))


if __name__ == "__main__":
    main()
