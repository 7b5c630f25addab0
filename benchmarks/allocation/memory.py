"""How often tasks that share a GPU need more than its memory, beside the probability that the plan was made for.

    python benchmarks/allocation/memory.py [--runs 1000] [--seed 1] [--split all|tune|test] [--write]
    python benchmarks/allocation/memory.py --show benchmarks/allocation/results/memory-DATE.jsonl

Each run draws tasks from the configurations whose memory was estimated and then measured on an H200 (benchmarks/accuracy),
half of them from one family; plans them with `allocate_tasks` on GPUs of several sizes, each of which holds some of the
tasks with little to spare; and plays the plan with memory that the planner did not know. Tasks want little of a GPU's time, so
that memory alone decides who shares. The same problem is also planned without any margin and with the sum of all high
bounds. What the tasks really need is told in four ways:

    own        what the very configuration was measured with
    margin     an error of another configuration, in parts of the margin of the estimate
    relative   an error of another configuration, in parts of the estimate: as if it did not know where it is in doubt
    stated     a normal error that is outside of the estimate's interval as often as it says, the same for a whole family

Measured errors are drawn by family: all tasks of one family err as configurations of one other family do, equal tasks alike.
The last table fills GPUs to the last byte: how often groups exceed just what `memory_needed` says of them.
"""

import argparse
import json
import platform
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import scipy
from scipy.stats import binomtest

from tonnage import __version__
from tonnage.allocate.plan import Plan
from tonnage.allocate.problem import Device, Problem, Profile, Task
from tonnage.allocate.profiles import deviation_bytes
from tonnage.allocate.sharing import memory_needed
from tonnage.allocate.solve import allocate_tasks
from tonnage.estimate.estimate import Interval
from tonnage.estimate.intervals import COVERAGE

HERE = Path(__file__).parent
ESTIMATED = HERE.parent / "accuracy" / "results" / "predictions-h200-2026-11-15.jsonl"
RISKS = (0.01, 0.05, 0.1)
TRUTHS = ("own", "margin", "relative", "stated")
TASKS, GPUS, LIMIT_GROUPS = 12, 3, 20_000
ROOM = (1.0, 1.1)  # memory of a GPU, beside the estimates of some tasks that shall fit
COLUMNS = ("tasks", "sharing_tasks", "makespan_seconds", "alone", "groups", *(f"exceeded_{truth}" for truth in TRUTHS))
Row = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Configuration:
    """A program with its arguments, estimated and measured."""

    name: str
    family: str
    device: Interval
    measured_bytes: int

    @property
    def margin_bytes(self) -> float:
        return self.device.high - self.device.value

    @property
    def error_bytes(self) -> float:
        return self.measured_bytes - self.device.value

    @property
    def profile(self) -> Profile:
        return Profile(
            step_seconds=1.0,
            memory_bytes=int(self.device.value),
            memory_deviation_bytes=deviation_bytes(self.device, COVERAGE),
        )


def read_configurations(split: str) -> list[Configuration]:
    rows = map(json.loads, ESTIMATED.read_text().splitlines())
    return [
        Configuration(
            name=row["name"],
            family=row["program"],
            device=Interval(**row["device"]),
            measured_bytes=row["device_measured"],
        )
        for row in rows
        if row["error"] is None and split in ("all", row["split"])
    ]


class Chance:
    """All that is random, from one seed."""

    def __init__(self, configurations: Sequence[Configuration], seed: int) -> None:
        self.generator = np.random.default_rng(seed)
        self.configurations = configurations
        self.families = defaultdict[str, list[Configuration]](list)
        for each in configurations:
            self.families[each.family].append(each)

    def one_of(self, configurations: Sequence[Configuration]) -> Configuration:
        return configurations[int(self.generator.integers(len(configurations)))]

    def some(self, count: int) -> list[Configuration]:
        """Half of them from the family of the first."""
        first = self.one_of(self.configurations)
        home = self.families[first.family]
        others = [self.generator.random() < 0.5 for _ in range(count - 1)]
        return [first, *(self.one_of(self.configurations if other else home) for other in others)]

    def truths(self, configurations: Sequence[Configuration]) -> dict[str, dict[str, float]]:
        """Bytes that each of them needs, by name, in each way to tell."""
        lender: dict[str, str] = {}
        normal = {family: self.generator.normal() for family in dict.fromkeys(each.family for each in configurations)}
        found: dict[str, dict[str, float]] = {truth: {} for truth in TRUTHS}
        for each in {each.name: each for each in configurations}.values():
            like = self._another(each, lender)
            best = each.device.value
            found["own"][each.name] = each.measured_bytes
            found["margin"][each.name] = best + like.error_bytes / like.margin_bytes * each.margin_bytes
            found["relative"][each.name] = best * (1.0 + like.error_bytes / like.device.value)
            found["stated"][each.name] = best + normal[each.family] * each.profile.memory_deviation_bytes
        return found

    def _another(self, each: Configuration, lender: dict[str, str]) -> Configuration:
        """Large families lend their errors more often, so that each configuration does so as often as any other."""
        others = [other for other in self.configurations if other is not each]
        family = lender.setdefault(each.family, self.one_of(others).family)
        return self.one_of([other for other in self.families[family] if other is not each] or others)

    def problem(self, configurations: Sequence[Configuration], most_together: int) -> Problem:
        best = np.array([each.device.value for each in configurations])
        held = [self.generator.choice(best, most_together, replace=False).sum() for _ in range(GPUS)]
        devices = [
            Device(
                place=f"node/gpu{index}", gpu=f"model{index}", memory_bytes=int(size * self.generator.uniform(*ROOM))
            )
            for index, size in enumerate(held)
        ]
        models = dict.fromkeys(device.gpu for device in devices)
        tasks = []
        for number, each in enumerate(configurations):
            busy = float(self.generator.uniform(0.05, 1.0 / most_together))
            steps = float(np.exp(self.generator.uniform(np.log(60.0), np.log(3600.0))))
            profiles = dict.fromkeys(models, replace(each.profile, busy=busy))
            tasks.append(Task(name=f"{each.name}#{number}", steps=steps, profiles=profiles))
        return Problem(devices=tuple(devices), tasks=tuple(tasks), most_together=most_together)


def ways(problem: Problem, configurations: Sequence[Configuration]) -> Iterator[tuple[str, Problem]]:
    """The problem as it is for each risk, and with memory that is taken for certain."""
    for risk in RISKS:
        yield f"risk {risk:g}", replace(problem, risk=risk)
    yield "no margin", certain(problem, [each.device.value for each in configurations])
    yield "high bounds", certain(problem, [each.device.high for each in configurations])


def certain(problem: Problem, memory: Sequence[float]) -> Problem:
    tasks = [
        replace(
            task,
            profiles={
                gpu: replace(profile, memory_bytes=int(needed), memory_deviation_bytes=0.0)
                for gpu, profile in task.profiles.items()
            },
        )
        for task, needed in zip(problem.tasks, memory, strict=True)
    ]
    return replace(problem, tasks=tuple(tasks))


def groups(plan: Plan) -> Iterator[tuple[str, list[str]]]:
    """Places, and the tasks that have them at the same time; each such group once."""
    by_place = defaultdict(list)
    for each in plan.assignments:
        by_place[each.gpus[0]].append(each)
    for place, there in by_place.items():
        present = (
            tuple(other.task for other in there if other.start_seconds <= each.start_seconds < other.end_seconds)
            for each in there
        )
        yield from ((place, list(names)) for names in dict.fromkeys(present))


def played(problem: Problem, plan: Plan, truths: dict[str, dict[str, float]]) -> list[float]:
    """One value for each of the columns."""
    memory = {device.place: device.memory_bytes for device in problem.devices}
    counts: Counter[str] = Counter()
    for place, names in groups(plan):
        counts["groups" if len(names) > 1 else "alone"] += 1
        for truth, needed in truths.items():
            counts[f"exceeded_{truth}"] += sum(needed[name.partition("#")[0]] for name in names) > memory[place]
    counts["tasks"] = len(plan.assignments)
    counts["sharing_tasks"] = sum(bool(each.beside) for each in plan.assignments)
    return [plan.makespan_seconds if name == "makespan_seconds" else counts[name] for name in COLUMNS]


def run_of(number: int, chance: Chance) -> Row:
    """Alternately two and three tasks together."""
    drawn = chance.some(TASKS)
    truths = chance.truths(drawn)
    problem = chance.problem(drawn, most_together=2 + number % 2)
    return {
        "run": number,
        "most_together": problem.most_together,
        "ways": {
            way: played(asked, allocate_tasks(asked, keep_going=lambda: False), truths)
            for way, asked in ways(problem, drawn)
        },
    }


def at_the_limit(chance: Chance, size: int, *, equal: bool = False) -> Row:
    """Of random groups, or of several equal tasks, how many exceed what they are said to need."""
    exceeded: Counter[str] = Counter()
    for _ in range(LIMIT_GROUPS):
        drawn = [chance.one_of(chance.configurations)] * size if equal else chance.some(size)
        needed = [memory_needed([each.profile for each in drawn], risk) for risk in RISKS]
        for truth, by_name in chance.truths(drawn).items():
            real = sum(by_name[each.name] for each in drawn)
            exceeded.update(f"{risk:g} {truth}" for risk, most in zip(RISKS, needed, strict=True) if real > most)
    return {"group": f"{size} {'equal ' if equal else ''}tasks", "groups": LIMIT_GROUPS, "exceeded": dict(exceeded)}


def show(rows: list[Row]) -> None:
    runs = [row for row in rows if "run" in row]
    shortest = sum(row["ways"]["no margin"][COLUMNS.index("makespan_seconds")] for row in runs)
    print(
        f"{len(runs)} runs: groups of tasks on one GPU that exceed its memory, their rate (95 % confidence), runs with any"
    )
    for way in runs[0]["ways"]:
        table = np.array([row["ways"][way] for row in runs])
        total = dict(zip(COLUMNS, table.sum(axis=0), strict=True))
        share, longer = total["sharing_tasks"] / total["tasks"], total["makespan_seconds"] / shortest - 1
        count = int(total["groups"] + total["alone"])
        print(
            f"{way:12} {count} groups, {total['groups']:.0f} of several tasks; {share:.1%} of tasks share; "
            f"makespan {longer:+.1%}"
        )
        for truth in TRUTHS:
            exceeded = int(total[f"exceeded_{truth}"])
            any_of = int((table[:, COLUMNS.index(f"exceeded_{truth}")] > 0).sum())
            print(f"    {truth:9} {exceeded:5} {rate(exceeded, count)}  {any_of:4} runs")
    print("GPUs filled to the last byte: how often groups exceed what is said of them")
    for row in (row for row in rows if "group" in row):
        for risk in RISKS:
            cells = [f"{truth} {rate(row['exceeded'].get(f'{risk:g} {truth}', 0), row['groups'])}" for truth in TRUTHS]
            print(f"    {row['group']:13} risk {risk:<5g} {'   '.join(cells)}")


def rate(exceeded: int, count: int) -> str:
    """With the interval of Clopper and Pearson."""
    interval = binomtest(exceeded, count).proportion_ci(0.95, method="exact")
    return f"{exceeded / count:6.2%} ({interval.low:.2%} to {interval.high:.2%})"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--split", choices=("all", "tune", "test"), default="all", help="configurations to draw from")
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--show", type=Path, help="only print what was played before")
    options = parser.parse_args()
    if options.show:
        show([json.loads(line) for line in options.show.read_text().splitlines()])
        return
    chance = Chance(read_configurations(options.split), options.seed)
    rows = [run_of(number, chance) for number in range(options.runs)]
    rows += [at_the_limit(chance, size) for size in (1, 2, 3)]
    rows += [at_the_limit(chance, size, equal=True) for size in (2, 3)]
    show(rows)
    if options.write:
        today = datetime.now(UTC).date()
        head = {
            "date": str(today), "tonnage": __version__, "python": platform.python_version(), "numpy": np.__version__,
            "scipy": scipy.__version__, "seed": options.seed, "split": options.split, "estimated": ESTIMATED.name,
            "columns": COLUMNS,
        }  # fmt: skip
        path = HERE / "results" / f"memory-{options.split}-{today}.jsonl"
        path.write_text("".join(json.dumps(row) + "\n" for row in [head, *rows]))


if __name__ == "__main__":
    main()
