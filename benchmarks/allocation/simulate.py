"""Policies on a published trace beside their anchors, on seeded traces, and on 100,000 jobs.

    python benchmarks/allocation/simulate.py [--data FOLDER] [--long-jobs 100000] [--write]

The published figures are those of a public scheduler's own simulator on the same trace, speeds and GPUs (rounds of 360 s);
the bounds are linear programs. The two constants of the policy for completion were chosen on the published trace and on seven of
the traces with the first seed; those with the second were not looked at before. Seconds are processor time.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from datetime import date
from math import inf
from pathlib import Path
from typing import Any

import numpy as np
import scipy
from synthetic_trace import Workload, make_jobs

from tonnage.allocate.simulate.jobs import Jobs, known
from tonnage.allocate.simulate.policies import Completion
from tonnage.allocate.simulate.scenario import Scenario, on_gpus, simulate
from tonnage.allocate.simulate.simulator import Simulator
from tonnage.allocate.simulate.summary import Summary
from tonnage.allocate.speeds import SpeedTable
from tonnage.service.job_files import read_jobs, read_throughputs

HERE = Path(__file__).parent
DATA = HERE.parents[2] / "shared" / "data" / "jobs"
GPUS = {"v100": 8, "p100": 16, "k80": 24}
LARGE = {"v100": 300, "p100": 500, "k80": 700}
HOUR = 3600.0
LONG_RUNS = (
    ("completion", 0.9), ("completion", 1.3), ("completion", 2.0), ("makespan", 2.0), ("fairness", 2.0), ("blind", 2.0),
    ("fifo", 2.0),
)  # fmt: skip
SEEDS = (100, 200)
TAILS = (1.0, 1.05, 1.1, 1.2, 1.35, inf)
GPU_MIXES = {"three types": GPUS, "p100 only": {"p100": 32}, "few fast": {"v100": 8, "k80": 64}}
WORKLOADS = {
    "light": Workload(jobs=150, load=0.6),
    "busy": Workload(jobs=150, load=1.0),
    "overload": Workload(jobs=150, load=2.0),
    "at once, short tail": Workload(jobs=150, load=0.0, spread=0.7),
    "single GPUs, heavy tail": Workload(jobs=150, load=1.2, spread=2.0, gang_shares=((1, 1.0),)),
    "priorities": Workload(jobs=150, load=1.2, weights=(1.0, 4.0)),
}


@dataclass(frozen=True, kw_only=True)
class Bar:
    """A figure, what it must not exceed, and what others reach."""

    name: str
    figure: float
    limit: float
    anchor: str

    @property
    def holds(self) -> bool:
        return self.figure <= self.limit


def play(jobs: Jobs, table: SpeedTable, gpus: dict[str, int], scenario: Scenario) -> Summary:
    return simulate(jobs, table, gpus, scenario, clock=time.process_time)


def line(name: str, summary: Summary, note: str = "") -> None:
    print(f"  {name:34} mean {summary.mean_completion_seconds / HOUR:7.2f} h   p99 {summary.p99_completion_seconds / HOUR:7.2f} h   "
          f"makespan {summary.makespan_seconds / HOUR:7.2f} h   {summary.preemptions:6,} preemptions   {summary.solver_cpu_seconds:6.2f} s   {note}",
          flush=True)  # fmt: skip


def row(part: str, name: str, summary: Summary, **more: object) -> dict[str, Any]:
    return {"part": part, "name": name, **asdict(summary), **more}


# -- the published trace --------------------------------------------------------------------------------------------------


def published(jobs: Jobs, table: SpeedTable) -> tuple[list[dict[str, Any]], list[Bar]]:
    print("\nbatch_100_jobs.trace on 8 V100, 16 P100, 24 K80")
    print("  published: fairness without types 10.49 h, with types 9.90 h, with packing 8.98 h; makespan 16.33 h")
    print("  bounds: mean 6.35 h without packing, makespan 17.71 h without and 15.97 h with packing")
    scenarios = {
        "completion": Scenario(),
        "completion, no packing": Scenario(packing=False),
        "completion, restart 60 s": Scenario(restart_seconds=60.0),
        "completion, restart 300 s": Scenario(restart_seconds=300.0),
        "completion, predicted, error 0.3": Scenario(durations="predicted", error=0.3),
        "blind": Scenario(policy="blind"),
        "fairness": Scenario(policy="fairness"),
        "makespan": Scenario(policy="makespan"),
        "makespan, no packing": Scenario(policy="makespan", packing=False),
        "fifo": Scenario(policy="fifo"),
    }
    found = {name: play(jobs, table, GPUS, scenario) for name, scenario in scenarios.items()}
    for name, summary in found.items():
        line(name, summary)
    return [row("published trace", name, summary) for name, summary in found.items()], bars(found)


def bars(found: dict[str, Summary]) -> list[Bar]:
    mean, makespan = found["completion"], found["makespan"]
    assert makespan.makespan_bound_seconds is not None
    above = makespan.makespan_seconds / makespan.makespan_bound_seconds
    restarted = found["completion, restart 60 s"].mean_completion_seconds / HOUR
    return [
        Bar(name="mean completion, h", figure=mean.mean_completion_seconds / HOUR, limit=7.0, anchor="published 8.98"),
        Bar(name="its p99, h", figure=mean.p99_completion_seconds / HOUR, limit=19.5, anchor="-"),
        Bar(name="makespan, h", figure=makespan.makespan_seconds / HOUR, limit=16.05, anchor="published 16.33"),
        Bar(name="makespan beside its bound", figure=above, limit=1.005, anchor="bound 15.97 h"),
        Bar(name="solver of the makespan, CPU s", figure=makespan.solver_cpu_seconds, limit=2.0, anchor="published 38"),
        Bar(name="mean with 60 s restart, h", figure=restarted, limit=0.8 * 8.98, anchor="0.8 of 8.98"),
    ]


def curve(jobs: Jobs, table: SpeedTable) -> Iterator[dict[str, Any]]:
    print("\nmean against p99, by tail")
    for tail in TAILS:
        summary = play(jobs, table, GPUS, Scenario(tail=tail))
        line("no tail" if tail == inf else f"tail {tail:g}", summary)
        yield row("curve", "completion", summary, tail=None if tail == inf else tail)


# -- other traces ---------------------------------------------------------------------------------------------------------


def others(table: SpeedTable, seed: int) -> Iterator[dict[str, Any]]:
    for mix, gpus in GPU_MIXES.items():
        for name, workload in WORKLOADS.items():
            jobs = make_jobs(workload, *on_gpus(table, gpus), seed=seed)
            print(f"\n{name}, {mix}: {workload.jobs} jobs, seed {seed}")
            for label, scenario in {
                "completion": Scenario(),
                "completion, no packing": Scenario(packing=False),
                "completion, restart 300 s": Scenario(restart_seconds=300.0),
                "fairness": Scenario(policy="fairness"),
                "fifo": Scenario(policy="fifo"),
            }.items():
                summary = play(jobs, table, gpus, scenario)
                line(label, summary, f"weighted {summary.weighted_mean_completion_seconds / HOUR:.2f} h")
                yield row("seeded trace", label, summary, workload=name, gpus=gpus, seed=seed)


def prices_beside_programs(table: SpeedTable) -> Iterator[dict[str, Any]]:
    print("\nprices beside linear programs, 500 jobs")
    mine, capacity = on_gpus(table, {name: 4 * count for name, count in GPUS.items()})
    mine = mine.with_useful_pairs(1.05)
    for load in (0.0, 1.0, 2.0):
        jobs = make_jobs(Workload(jobs=500, load=load, spread=1.0), mine, capacity, seed=7)
        mean = {}
        for way, long in (("linear programs", 10**9), ("prices", 0)):
            begin = time.process_time()
            outcome = Simulator(mine, capacity, jobs, Completion(long=long), known(jobs)).run()
            mean[way] = float((outcome.completed_seconds - jobs.arrival_seconds).mean())
            seconds = time.process_time() - begin
            print(f"  load {load:3.1f}  {way:16} mean {mean[way] / HOUR:6.2f} h   {seconds:6.1f} s", flush=True)
            yield {
                "part": "prices",
                "load": load,
                "way": way,
                "mean_completion_seconds": mean[way],
                "cpu_seconds": seconds,
            }
        print(f"            ratio {mean['prices'] / mean['linear programs']:.3f}")


def long_trace(table: SpeedTable, count: int) -> Iterator[dict[str, Any]]:
    print(f"\n{count:,} jobs on {sum(LARGE.values()):,} GPUs")
    for policy, load in LONG_RUNS:
        jobs = make_jobs(Workload(jobs=count, load=load), *on_gpus(table, LARGE), seed=1)
        begin = time.process_time()
        summary = play(jobs, table, LARGE, Scenario(policy=policy, restart_seconds=60.0))
        seconds = time.process_time() - begin
        line(f"{policy}, load {load}, restart 60 s", summary, f"{seconds:.0f} s in all")
        yield row("long trace", policy, summary, load=load, gpus=LARGE, cpu_seconds=seconds)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=DATA, help="where trace and throughputs are")
    parser.add_argument("--long-jobs", type=int, default=100_000)
    parser.add_argument("--write", action="store_true", help="write results/simulate-DATE.jsonl")
    options = parser.parse_args()
    table = read_throughputs(options.data / "throughputs_k80_p100_v100.json.gz")
    jobs = read_jobs(options.data / "batch_100_jobs.trace", table)
    head = {
        "date": date.today().isoformat(), "cores": os.cpu_count(), "machine": platform.machine(),
        "python": platform.python_version(), "numpy": np.__version__, "scipy": scipy.__version__,
    }  # fmt: skip
    rows, judged = published(jobs, table)
    rows += curve(jobs, table)
    for seed in SEEDS:
        rows += others(table, seed)
    rows += prices_beside_programs(table)
    rows += long_trace(table, options.long_jobs)
    print("\nbars")
    for bar in judged:
        print(
            f"  {'pass' if bar.holds else 'MISS'}  {bar.name:32} {bar.figure:8.3f}  at most {bar.limit:.3f}   ({bar.anchor})"
        )
    rows += [{"part": "bar", **asdict(bar), "holds": bar.holds} for bar in judged]
    if options.write:
        path = HERE / "results" / f"simulate-{head['date']}.jsonl"
        path.parent.mkdir(exist_ok=True)
        path.write_text("".join(json.dumps(each) + "\n" for each in (head, *rows)))
        print(path.relative_to(HERE.parents[1]))


if __name__ == "__main__":
    main()
