"""One simulation, from its options: which policy, what is known of the jobs' lengths, whether GPUs are shared."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import inf

import numpy as np

from tonnage.allocate.linear import load_solver
from tonnage.allocate.simulate.jobs import Belief, Jobs, blind, known, predicted
from tonnage.allocate.simulate.policies import Completion, Fairness, Fifo, Makespan, Policy, longest_exact_queue
from tonnage.allocate.simulate.simulator import Simulator
from tonnage.allocate.simulate.summary import Summary, summarise
from tonnage.allocate.speeds import Ints, SpeedTable
from tonnage.errors import NotFound, UsageError
from tonnage.hardware.catalogue import nearest

POLICIES = ("completion", "makespan", "fairness", "blind", "fifo")
DURATIONS = ("known", "predicted", "blind")
_USEFUL_PAIR = 1.05  # two on one GPU must make so much of what it makes with one of them


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    policy: str = "completion"
    durations: str = "known"
    error: float = 0.3  # deviation of the logarithm of predicted lengths
    seed: int = 0
    restart_seconds: float = 0.0
    tail: float = inf
    packing: bool = True

    @property
    def is_blind(self) -> bool:
        return "blind" in (self.policy, self.durations)

    def __post_init__(self) -> None:
        _require_one_of("policy", self.policy, POLICIES)
        _require_one_of("durations", self.durations, DURATIONS)
        if not 0.0 <= self.restart_seconds < inf:
            raise UsageError(f"the restart must take 0 seconds or more, not {self.restart_seconds}")
        if not self.tail >= 1.0:
            raise UsageError(f"the tail must be 1 or more, not {self.tail}", "1.2: within 1.2 times the shortest time")
        if not 0.0 <= self.error <= 10.0:
            raise UsageError(f"the error must be from 0 to 10, not {self.error}", "0.3: about 30 %")


def simulate(
    jobs: Jobs,
    table: SpeedTable,
    gpus: dict[str, int],
    scenario: Scenario,
    *,
    clock: Callable[[], float] = lambda: 0.0,
    progress: Callable[[int], None] = lambda done: None,
) -> Summary:
    """Plays the jobs on so many GPUs of each type; raises `DoesNotFit` if one of them can run nowhere."""
    load_solver()
    mine, capacity = on_gpus(table, gpus)
    mine.check_runs(jobs.classes)
    if not scenario.packing:
        mine = mine.without_pairs()
    simulator = Simulator(
        mine.with_useful_pairs(_USEFUL_PAIR),
        capacity,
        jobs,
        _policy(scenario, jobs),
        _belief(scenario, jobs, mine),
        scenario.restart_seconds,
        clock,
    )
    return summarise(scenario.policy, simulator.run(progress), jobs, mine, capacity)


def on_gpus(table: SpeedTable, gpus: dict[str, int]) -> tuple[SpeedTable, Ints]:
    """The speeds on these GPUs, and how many there are of each type."""
    for name in gpus:
        if name not in table.types:
            meant = nearest(name, table.types)
            raise NotFound(
                f"the throughputs have no GPU type {name}",
                f"did you mean {meant}?" if meant else f"they have {', '.join(table.types)}",
            )
    present = {name: count for name, count in gpus.items() if count}
    if not present or min(present.values()) < 0:
        raise UsageError("there must be at least one GPU", "for example v100:8,p100:16")
    capacity = np.array(list(present.values()), dtype=np.int64)
    return table.for_types(tuple(present)).restricted(capacity), capacity


def _policy(scenario: Scenario, jobs: Jobs) -> Policy:
    long = longest_exact_queue(jobs.size)
    if scenario.policy == "makespan":
        return Makespan(long=long)
    if scenario.policy == "fairness":
        return Fairness(long=long)
    if scenario.policy == "fifo":
        return Fifo()
    if scenario.is_blind:
        return Completion(tail=scenario.tail, long=long, patience=0.0)  # service attained orders them already
    return Completion(tail=scenario.tail, long=long)


def _belief(scenario: Scenario, jobs: Jobs, table: SpeedTable) -> Belief:
    if scenario.is_blind:
        return blind(jobs, table)
    if scenario.durations == "predicted":
        return predicted(jobs, table, scenario.error, scenario.seed)
    return known(jobs)


def _require_one_of(what: str, name: str, known_names: tuple[str, ...]) -> None:
    if name not in known_names:
        meant = nearest(name, known_names)
        hint = f"did you mean {meant}?" if meant else f"one of {', '.join(known_names)}"
        raise UsageError(f"no such {what}: {name}", hint)
