"""The policy for completion beside fairness and first come, first served: mixes of GPUs x what arrives x seeds.

    python benchmarks/allocation/simulate_grid.py [--data FOLDER] [--seeds 2] [--jobs 100] [--write]

Jobs are drawn from the published trace, or with gangs and a heavy tail. They arrive all at once or at a Poisson rate.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
from collections.abc import Iterator
from dataclasses import replace
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np
import scipy
from simulate import DATA, HERE, HOUR, play
from synthetic_trace import Workload, arrivals, make_jobs

from tonnage.allocate.simulate.jobs import Jobs
from tonnage.allocate.simulate.scenario import Scenario, on_gpus
from tonnage.allocate.speeds import SpeedTable
from tonnage.service.job_files import read_jobs, read_throughputs

MIXES = {
    "three types": {"v100": 8, "p100": 16, "k80": 24},
    "few fast": {"v100": 8, "k80": 64},
    "fewer fast": {"v100": 8, "p100": 8, "k80": 96},
    "many fast": {"v100": 32, "k80": 8},
    "one type": {"p100": 32},
}
LOADS = (0.0, 0.5, 1.0, 2.0)
POLICIES = ("completion", "fairness", "fifo")
LIMIT = 1.03  # completion beside fairness


def drawn(trace: Jobs, workload: Workload, table: SpeedTable, gpus: dict[str, int], seed: int) -> Jobs:
    """Jobs of the trace, with replacement, that arrive at a load."""
    random = np.random.default_rng(seed)
    which = random.integers(trace.size, size=workload.jobs)
    mine, capacity = on_gpus(table, gpus)
    when = arrivals(workload, mine, capacity, trace.classes[which], trace.steps[which], random)
    return replace(trace, classes=trace.classes[which], steps=trace.steps[which], arrival_seconds=when,
                   weights=trace.weights[which])  # fmt: skip


def cases(trace: Jobs, table: SpeedTable, options: argparse.Namespace) -> Iterator[tuple[dict[str, Any], Jobs]]:
    for mix, gpus in MIXES.items():
        for load in LOADS:
            for seed in range(1, options.seeds + 1):
                workload = Workload(jobs=options.jobs, load=load)
                name = {"mix": mix, "gpus": gpus, "load": load, "seed": seed}
                yield {**name, "lengths": "trace"}, drawn(trace, workload, table, gpus, seed)
                yield {**name, "lengths": "gangs"}, make_jobs(workload, *on_gpus(table, gpus), seed=seed)


def compare(case: dict[str, Any], jobs: Jobs, table: SpeedTable) -> dict[str, Any]:
    found = {policy: play(jobs, table, case["gpus"], Scenario(policy=policy)) for policy in POLICIES}
    means = {policy: summary.mean_completion_seconds for policy, summary in found.items()}
    ratio = means["completion"] / means["fairness"]
    hours = "  ".join(f"{policy} {mean / HOUR:7.2f} h" for policy, mean in means.items())
    print(f"{case['mix']:12} {case['lengths']:6} load {case['load']:3.1f} seed {case['seed']}  {hours}  ratio {ratio:.3f}",
          flush=True)  # fmt: skip
    return {**case, "jobs": jobs.size, "mean_completion_seconds": means, "beside_fairness": ratio}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=DATA, help="where trace and throughputs are")
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--jobs", type=int, default=100)
    parser.add_argument("--write", action="store_true", help="write results/simulate-grid-DATE.jsonl")
    options = parser.parse_args()
    table = read_throughputs(options.data / "throughputs_k80_p100_v100.json.gz")
    trace = read_jobs(options.data / "batch_100_jobs.trace", table)
    rows = [compare(case, jobs, table) for case, jobs in cases(trace, table, options)]
    ratios = [row["beside_fairness"] for row in rows]
    print(f"\ncompletion beside fairness: mean {np.mean(ratios):.3f}, best {min(ratios):.3f}, worst {max(ratios):.3f}; "
          f"above {LIMIT}: {sum(ratio > LIMIT for ratio in ratios)} of {len(ratios)}")  # fmt: skip
    if options.write:
        head = {"date": date.today().isoformat(), "cores": os.cpu_count(), "machine": platform.machine(),
                "python": platform.python_version(), "numpy": np.__version__, "scipy": scipy.__version__}  # fmt: skip
        path = HERE / "results" / f"simulate-grid-{head['date']}.jsonl"
        path.write_text("".join(json.dumps(each) + "\n" for each in (head, *rows)))
        print(path.relative_to(HERE.parents[1]))


if __name__ == "__main__":
    main()
