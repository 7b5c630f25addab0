"""Latency of one sample: values, bounds and CPU seconds on the public files, on variants of them and on random networks.

    python latency.py [--data FOLDER] [--only NAME] [--write]

Every value is recomputed by the independent checker. Bars are printed with pass or miss; the other rows show where the gap
goes: networks with many branches, little memory, few accelerators. The first row pays for compiling the loops once.
`--data` is the folder with `networks/`; without it only the random networks are run. `--write` adds the rows to
results/latency-DATE.jsonl.
"""

import argparse
import json
import platform
import time
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numba
import numpy as np
import ortools
import scipy

from tonnage.split.latency.check import broken_rules, latency_of
from tonnage.split.latency.problem import LatencyProblem
from tonnage.split.latency.public import latency_problem
from tonnage.split.latency.solve import solve_latency
from tonnage.split.public_format import read_public

HERE = Path(__file__).parent
BARS = {"layer_bert24_inference": 100.2185, "layer_gnmt_inference": 225.648, "op_bert_l-3_inference": 414.4}
BAR_GAP, BAR_SECONDS = 0.15, 60.0
VARIANTS = (
    (2, 1.0),
    (3, 0.45),
    (6, 0.25),
    (4, 0.15),
)  # accelerators, and memory of one as a part of the network's size
RANDOM = ((20, 4, 3), (30, 5, 3), (40, 4, 4), (100, 5, 5), (400, 40, 4), (1000, 3, 6), (2000, 2000, 4))
Row = dict[str, Any]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=HERE.parents[2] / "shared" / "data")
    parser.add_argument("--only", default="", help="part of the name of a row")
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args()
    packages = {"numpy": np.__version__, "scipy": scipy.__version__, "numba": numba.__version__}
    machine = {"python": platform.python_version(), **packages, "ortools": ortools.__version__}
    rows = []
    for name, problem in problems(options.data):
        if options.only in name:
            rows.append({"name": name, **measured(problem, BARS.get(name)), **machine})
            print(shown(rows[-1]), flush=True)
    if options.write:
        path = HERE / "results" / f"latency-{datetime.now(UTC).date()}.jsonl"
        with path.open("a") as file:
            file.writelines(json.dumps(row) + "\n" for row in rows)


def problems(data: Path) -> Iterator[tuple[str, LatencyProblem]]:
    for name in BARS:
        path = data / "networks" / "latency" / f"{name}.json.gz"
        if path.exists():
            yield name, latency_problem(read_public(path))
    for path in sorted((data / "networks" / "throughput").glob("*_inference.json.gz")):
        problem = latency_problem(read_public(path))
        for accelerators, part in VARIANTS:
            memory = part * sum(problem.size_bytes)
            name = f"{path.name.removesuffix('.json.gz')}, {accelerators} x {part:.0%}"
            yield name, replace(problem, accelerators=accelerators, memory_bytes=memory)
    for nodes, width, accelerators in RANDOM:
        name = f"random, {nodes} nodes, {width} wide, {accelerators} accelerators"
        yield name, random_problem(nodes, width, accelerators, seed=nodes)


def random_problem(nodes: int, width: int, accelerators: int, seed: int) -> LatencyProblem:
    """Layers of equal width; a node has one or two inputs in the layer before, and one in five costs nothing."""
    random = np.random.default_rng(seed)
    layers = max(nodes // width, 1)
    layer = [min(node * layers // nodes, layers - 1) for node in range(nodes)]
    edges = set()
    for node in range(nodes):
        before = [other for other in range(nodes) if layer[other] == layer[node] - 1]
        for source in random.choice(before, size=min(len(before), 1 + int(random.random() < 0.4)), replace=False):
            edges.add((int(source), node))
    seconds = random.exponential(1.0, nodes) * (random.random(nodes) < 0.8)
    sizes = np.floor(100 * random.exponential(1.0, nodes))
    return LatencyProblem(
        accelerator_seconds=tuple(map(float, seconds)),
        cpu_seconds=tuple(map(float, seconds * 10 * random.uniform(0.3, 1.7, nodes))),
        size_bytes=tuple(map(float, sizes)),
        transfer_seconds=tuple(map(float, random.exponential(0.5, nodes))),
        edges=tuple(sorted(edges)),
        classes=tuple(range(nodes)),
        accelerators=accelerators,
        memory_bytes=float(np.floor(0.4 * sizes.sum())),
    )


def measured(problem: LatencyProblem, bar: float | None) -> Row:
    start_cpu, start = time.process_time(), time.monotonic()
    answer = solve_latency(problem)
    cpu_seconds, wall_seconds = time.process_time() - start_cpu, time.monotonic() - start
    broken = broken_rules(problem, answer.assignment)
    value = latency_of(problem, answer.assignment)
    assert not broken, broken
    assert abs(value - answer.value) <= 1e-9 * value
    row: Row = {
        "nodes": problem.nodes,
        "accelerators": problem.accelerators,
        "value": value,
        "bound": answer.bound,
        "gap": answer.gap,
        "proven": answer.proven,
        "cpu_seconds": round(cpu_seconds, 3),
        "wall_seconds": round(wall_seconds, 3),
    }
    if bar is not None:
        good = value <= bar * (1 + 1e-6) and answer.gap <= BAR_GAP and cpu_seconds <= BAR_SECONDS
        row |= {"bar": bar, "passes": good}
    return row


def shown(row: Row) -> str:
    verdict = {None: "", True: "pass", False: "MISS"}[row.get("passes")]
    proven = "proven" if row["proven"] else f"gap {row['gap']:.2%}"
    return f"{row['name']:52} {row['value']:12.4f}  {row['bound']:12.4f}  {proven:12} {row['cpu_seconds']:7.1f} s  {verdict}"


if __name__ == "__main__":
    main()
