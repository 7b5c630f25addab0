"""A yardstick for packings of the openb list: the fewest GPUs that hold all its pods, without nodes, CPUs and memory.

    python benchmarks/allocation/pack_bound.py [--data FOLDER] [--write]

A linear program over all ways to fill one GPU (cutting stock). It knows all pods beforehand. A full cluster that holds pods in
the proportions of the list cannot have a larger share allocated; one that had to drop mostly bulky pods could.
"""

from __future__ import annotations

import argparse
import datetime
import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from pack import read
from scipy.optimize import linprog

from tonnage.allocate.packing.pods import WHOLE_GPU_MILLI, Pod

HERE = Path(__file__).parent


def demand_by_size(pods: tuple[Pod, ...]) -> Counter[int]:
    """How many GPUs are wanted at each number of thousandths."""
    sizes: Counter[int] = Counter()
    for pod in pods:
        sizes[pod.gpu_milli] += pod.gpu_count
    return +sizes


def fillings(sizes: list[int], free_milli: int) -> Iterator[tuple[int, ...]]:
    """Every way to put shares of these sizes on one GPU, as numbers of each."""
    if not sizes:
        yield ()
        return
    for number in range(free_milli // sizes[0] + 1):
        for rest in fillings(sizes[1:], free_milli - number * sizes[0]):
            yield (number, *rest)


def fewest_gpus(wanted: Counter[int]) -> float:
    sizes = sorted(wanted, reverse=True)
    ways = np.array(list(fillings(sizes, WHOLE_GPU_MILLI)), float)
    least = [wanted[size] for size in sizes]
    return float(linprog(np.ones(len(ways)), A_ub=-ways.T, b_ub=-np.array(least, float), method="highs").fun)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=HERE.parents[2] / "shared" / "data" / "jobs")
    parser.add_argument("--write", action="store_true", help="write results/pack-bound-DATE.jsonl")
    options = parser.parse_args()
    _, pods = read(options.data)
    demand_gpus = sum(pod.demand_milli for pod in pods) / 1000
    needed = fewest_gpus(demand_by_size(pods))
    line = json.dumps(
        {"workload": "openb", "demand_gpus": demand_gpus, "fewest_gpus": needed, "share": demand_gpus / needed}
    )
    print(line)
    if options.write:
        (HERE / "results" / f"pack-bound-{datetime.date.today().isoformat()}.jsonl").write_text(line + "\n")


if __name__ == "__main__":
    main()
