"""Plans of `tonnage allocate` on seeded random problems: gap to the bound, beside placing tasks one by one as they come.

    python plans.py [--seeds 101,102] [--seconds 10] [--only NAME] [--write]

Every plan is checked by the independent checker. Four models of GPUs with 16 to 80 GiB; tasks take 2 to 20 GiB and keep a GPU
busy for a part of the time, so that many can share one. `--write` adds the rows to results/plans-DATE.jsonl.
"""

import argparse
import json
import platform
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import scipy

from tonnage.allocate.company import Company
from tonnage.allocate.objectives import Objective, value_of
from tonnage.allocate.precedence import in_order
from tonnage.allocate.problem import Device, Problem, Profile, Task
from tonnage.allocate.solve import allocate_tasks
from tonnage.allocate.timetable import Timetable

GIB = 1 << 30
MODELS = {"80 GiB": (80, 1.0), "40 GiB": (40, 0.55), "24 GiB": (24, 0.4), "16 GiB": (16, 0.2)}
OBJECTIVES = ("makespan", "completion", "fairness", "cost")


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    name: str
    tasks: int
    gpus: int
    busy: tuple[float, float] = (0.2, 1.0)
    gangs: float = 0.0  # part of the tasks that want two or four GPUs
    weights: tuple[float, ...] = (1.0,)


KINDS = (
    Kind(name="alone, 200 x 16", tasks=200, gpus=16, busy=(1.0, 1.0)),
    Kind(name="alone, 5,000 x 1,000", tasks=5_000, gpus=1_000, busy=(1.0, 1.0)),
    Kind(name="shared, 20 x 4", tasks=20, gpus=4),
    Kind(name="shared, 60 x 8", tasks=60, gpus=8),
    Kind(name="shared, 200 x 16", tasks=200, gpus=16),
    Kind(name="half busy, 200 x 16", tasks=200, gpus=16, busy=(0.3, 0.6)),
    Kind(name="weighted, 200 x 16", tasks=200, gpus=16, weights=(1.0, 1.0, 4.0)),
    Kind(name="gangs, 100 x 16", tasks=100, gpus=16, gangs=0.2),
    Kind(name="shared, 1,000 x 100", tasks=1_000, gpus=100),
)


def random_problem(kind: Kind, seed: int) -> Problem:
    chance, names = np.random.default_rng(seed), list(MODELS)
    devices = tuple(
        Device(
            place=f"node{number // 4}/gpu{number % 4}",
            gpu=names[number % 4],
            memory_bytes=MODELS[names[number % 4]][0] * GIB,
            node=f"node{number // 4}",
            price_usd_hour=3.0 * MODELS[names[number % 4]][1],
        )
        for number in range(kind.gpus)
    )
    return Problem(devices=devices, tasks=tuple(_task(kind, number, chance) for number in range(kind.tasks)))


def _task(kind: Kind, number: int, chance: np.random.Generator) -> Task:
    busy, memory, step = chance.uniform(*kind.busy), chance.uniform(2, 20) * GIB, 10 ** chance.uniform(0, 2)
    profiles = {
        gpu: Profile(
            step_seconds=step / speed * chance.uniform(0.8, 1.25),
            memory_bytes=int(memory),
            busy=busy,
        )
        for gpu, (gib, speed) in MODELS.items()
        if memory <= gib * GIB
    }
    return Task(
        name=f"task{number}",
        steps=int(chance.integers(20, 200)),
        profiles=profiles,
        gpus=int(chance.choice([2, 4])) if chance.random() < kind.gangs else 1,
        weight=float(chance.choice(kind.weights)),
    )


def one_by_one(problem: Problem, objective: Objective) -> float:
    """As they come, each where it does best at that moment. Gangs do not share their GPUs, as in all plans."""
    table = Timetable(Company(problem), objective, {})
    for task in in_order(problem.tasks):
        table.place(replace(task, may_share=task.gpus == 1))
    return value_of(problem, objective, table.assignments())


def measure(kind: Kind, seed: int, name: str, seconds: float) -> dict[str, Any]:
    problem, objective = random_problem(kind, seed), Objective(name)
    wall, cpu = time.monotonic(), time.process_time()
    plan = allocate_tasks(problem, objective, keep_going=lambda: time.monotonic() - wall < seconds)
    return {
        "kind": kind.name,
        "seed": seed,
        "objective": name,
        "value": plan.value,
        "bound": plan.bound,
        "gap": plan.gap,
        "wall_seconds": time.monotonic() - wall,
        "cpu_seconds": time.process_time() - cpu,
        "one_by_one_gap": one_by_one(problem, objective) / plan.bound - 1.0 if kind.tasks <= 1_000 else None,
    }


def rows(seeds: list[int], seconds: float, only: str) -> Iterator[dict[str, Any]]:
    for kind in KINDS:
        for name in OBJECTIVES if only in kind.name else ():
            for seed in seeds:
                yield measure(kind, seed, name, seconds)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", default="101,102")
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--only", default="", help="part of the name of a kind of problem")
    parser.add_argument("--write", action="store_true")
    asked = parser.parse_args()
    today = datetime.now(UTC).date().isoformat()
    about = {"date": today, "python": platform.python_version(), "numpy": np.__version__, "scipy": scipy.__version__}
    for row in rows([int(seed) for seed in asked.seeds.split(",")], asked.seconds, asked.only):
        beside = "" if row["one_by_one_gap"] is None else f"one by one {row['one_by_one_gap']:7.1%}"
        print(
            f"{row['kind']:22} {row['objective']:10} seed {row['seed']}  gap {row['gap']:7.2%}  {beside:20}  "
            f"{row['cpu_seconds']:5.1f} CPU s  {row['wall_seconds']:5.1f} s",
            flush=True,
        )
        if asked.write:
            with (Path(__file__).parent / "results" / f"plans-{today}.jsonl").open("a") as file:
                file.write(json.dumps({**about, **row}) + "\n")


if __name__ == "__main__":
    main()
