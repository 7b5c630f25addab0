"""The simulator keeps its books: steps, GPUs, time, restarts and preemptions, under every policy."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from speed_tables import jobs, table
from synthetic_trace import Workload, make_jobs

from tonnage.allocate.queue import Columns
from tonnage.allocate.simulate.jobs import Jobs, known
from tonnage.allocate.simulate.machines import Machines
from tonnage.allocate.simulate.policies import Completion, Fairness, Fifo, Makespan, Policy
from tonnage.allocate.simulate.scenario import POLICIES, Scenario, simulate
from tonnage.allocate.simulate.simulator import Outcome, Simulator
from tonnage.allocate.simulate.summary import makespan_bound_seconds
from tonnage.allocate.speeds import Ints
from tonnage.errors import DoesNotFit

GPUS = {"v100": 8, "p100": 8, "k80": 16}
CAPACITY = np.array([8, 8, 16])
MAKERS = {
    "completion": Completion,
    "tail": lambda: Completion(tail=1.1),
    "priced": lambda: Completion(long=0),
    "makespan": Makespan,
    "fairness": Fairness,
    "fairness of long queues": lambda: Fairness(long=0),
    "makespan of long queues": lambda: Makespan(long=0),
    "fifo": Fifo,
}
every_policy = pytest.mark.parametrize("name", MAKERS)
traces = st.builds(
    make_jobs,
    st.builds(
        Workload,
        jobs=st.integers(1, 25),
        load=st.sampled_from([0.0, 0.3, 0.9, 2.0]),
        spread=st.sampled_from([0.1, 1.0, 2.5]),
        weights=st.sampled_from([(1.0,), (1.0, 5.0, 0.2)]),
    ),
    st.just(table()),
    st.just(CAPACITY),
    st.integers(0, 10_000),
)


class Watched(Machines):
    """Notes whether ever more GPUs were in use than there are, and the steps that each job made."""

    most_used = 0.0

    def advance(self, seconds: float) -> Ints:
        self.most_used = max(self.most_used, float((self._used - self.capacity).max()))
        return super().advance(seconds)


def play(trace: Jobs, policy: Policy, restart_seconds: float = 0.0) -> tuple[Outcome, Watched]:
    simulator = Simulator(table(), CAPACITY, trace, policy, known(trace), restart_seconds)
    simulator.machines = Watched(table(), CAPACITY, trace, restart_seconds)
    return simulator.run(), simulator.machines


@every_policy
@settings(deadline=None, max_examples=8)
@given(trace=traces, restart_seconds=st.sampled_from([0.0, 60.0, 300.0, 5000.0]))
def test_every_job_makes_exactly_its_steps_on_gpus_that_are_there(
    name: str, trace: Jobs, restart_seconds: float
) -> None:
    outcome, machines = play(trace, MAKERS[name](), restart_seconds)
    assert machines.made == pytest.approx(trace.steps, rel=1e-6)
    assert machines.most_used <= 1e-9
    assert not np.isnan(outcome.completed_seconds).any()


@every_policy
@settings(deadline=None, max_examples=5)
@given(trace=traces)
def test_no_job_is_faster_than_alone_on_the_gpus_that_suit_it(name: str, trace: Jobs) -> None:
    outcome, _ = play(trace, MAKERS[name]())
    least = trace.steps / table().best[trace.classes]
    assert (outcome.completed_seconds - trace.arrival_seconds >= least * (1 - 1e-6) - 1e-6).all()


@settings(deadline=None, max_examples=15)
@given(trace=traces, name=st.sampled_from(sorted(MAKERS)))
def test_no_makespan_is_below_the_bound(trace: Jobs, name: str) -> None:
    outcome, _ = play(trace, MAKERS[name]())
    makespan = outcome.completed_seconds.max() - trace.arrival_seconds[0]
    bound = makespan_bound_seconds(trace, table(), CAPACITY)
    assert bound is not None
    assert makespan >= bound * (1 - 1e-4)


def test_a_job_that_ends_is_not_preempted() -> None:
    outcome, _ = play(jobs([0, 1, 0], [100.0, 1000.0, 50.0], [0.0, 10.0, 3000.0]), Completion())
    assert outcome.preemptions == 0


def test_fifo_stops_nobody() -> None:
    trace = make_jobs(Workload(jobs=60, load=1.5), table(), CAPACITY, 1)
    assert play(trace, Fifo())[0].preemptions == 0


def test_a_job_that_is_moved_loses_the_restart() -> None:
    machines = Machines(table(), CAPACITY, jobs([1], [1000.0]), 60.0)
    machines.add(np.array([0]), np.array([2]))
    machines.advance(100.0)
    machines.switch(np.array([0]), _columns(types=[0], firsts=[0], seconds=[-1]))
    machines.advance(100.0)
    assert machines.made[0] == pytest.approx(100 * 2.0 + 40 * 4.0)
    assert machines.preemptions == 1


def test_of_two_jobs_that_come_together_one_is_moved() -> None:
    machines = Machines(table(), CAPACITY, jobs([1, 1], [1e6, 1e6]), 60.0)
    machines.add(np.array([0, 1]), np.array([0, 0]))
    machines.advance(10.0)
    machines.switch(np.array([0, 1]), _columns(types=[0], firsts=[0], seconds=[1]))
    assert machines.preemptions == 1
    assert machines.free().tolist() == [7, 8, 16]


def test_who_shared_goes_on_alone_when_the_other_ends() -> None:
    machines = Machines(table(), CAPACITY, jobs([1, 1], [28.0, 1e6]), 60.0)
    machines.switch(np.array([0, 1]), _columns(types=[0], firsts=[0], seconds=[1]))
    assert machines.advance(10.0).tolist() == [0]
    assert machines.speeds.tolist() == [4.0]


def _columns(types: list[int], firsts: list[int], seconds: list[int]) -> Columns:
    nothing = np.zeros(len(types))
    return Columns(
        types=np.array(types), firsts=np.array(firsts), seconds=np.array(seconds), first_speeds=nothing,
        second_speeds=nothing, gpus=np.ones(len(types), dtype=np.int64),
    )  # fmt: skip


@pytest.mark.parametrize("policy", POLICIES)
def test_the_same_trace_gives_the_same_figures(policy: str) -> None:
    trace = make_jobs(Workload(jobs=40, load=1.2), table(), CAPACITY, 3)
    scenario = Scenario(policy=policy, durations="predicted", restart_seconds=30.0)
    assert simulate(trace, table(), GPUS, scenario) == simulate(trace, table(), GPUS, scenario)


@pytest.mark.parametrize(("load", "most"), [(0.0, 0.95), (0.7, 1.01), (1.5, 1.0)])
def test_completion_is_better_than_fairness_and_first_come_where_jobs_wait(load: float, most: float) -> None:
    trace = make_jobs(Workload(jobs=80, load=load), table(), CAPACITY, 11)
    mean = {
        policy: simulate(trace, table(), GPUS, Scenario(policy=policy)).mean_completion_seconds
        for policy in ("completion", "fairness", "fifo")
    }
    assert mean["completion"] < most * min(mean["fairness"], mean["fifo"])


def test_all_at_once_end_near_the_bound() -> None:
    trace = make_jobs(Workload(jobs=80, load=0.0, spread=0.7), table(), CAPACITY, 2)
    summary = simulate(trace, table(), GPUS, Scenario(policy="makespan"))
    assert summary.makespan_bound_seconds is not None
    assert summary.makespan_seconds <= 1.05 * summary.makespan_bound_seconds


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_gangs_that_fill_the_fast_gpus_do_not_wait_until_the_end(seed: int) -> None:
    trace = make_jobs(Workload(jobs=80, load=0.0, spread=0.7), table(), np.array([8, 0, 64]), seed)
    summary = simulate(trace, table(), {"v100": 8, "k80": 64}, Scenario(policy="makespan"))
    assert summary.makespan_bound_seconds is not None
    assert summary.makespan_seconds <= 1.3 * summary.makespan_bound_seconds


def test_who_counts_more_is_done_earlier() -> None:
    trace = make_jobs(Workload(jobs=120, load=0.0, spread=0.5, weights=(1.0, 10.0)), table(), CAPACITY, 4)
    outcome, _ = play(trace, Completion())
    heavy = trace.weights == 10.0
    assert outcome.completed_seconds[heavy].mean() < 0.7 * outcome.completed_seconds[~heavy].mean()


def test_one_type_of_gpu_is_enough() -> None:
    trace = make_jobs(Workload(jobs=50, load=1.0), table(), np.array([0, 0, 16]), 5)
    summary = simulate(trace, table(), {"k80": 16}, Scenario())
    assert set(summary.utilisation) == {"k80"}
    assert summary.jobs == 50


def test_a_job_larger_than_any_type_is_refused() -> None:
    with pytest.raises(DoesNotFit, match="wide on 8 GPUs runs on none of v100, k80"):
        simulate(jobs([6], [100.0]), table(), {"v100": 4, "k80": 4}, Scenario())


def test_a_gang_that_needs_all_fast_gpus_does_not_wait_for_one_long_job() -> None:
    """In shares of a period the gang has seven eighths beside the long job; whole, it must have all."""
    trace = jobs([0, 6], [2e6, 8e4], [0.0, 600.0])
    slow = replace(table(), alone=table().alone * ([[1.0, 1.0, 1.0]] * 6 + [[1.0, 0.0, 0.0]] * 2))
    simulator = Simulator(slow, CAPACITY, trace, Completion(), known(trace))
    assert simulator.run().completed_seconds[1] < 10 * 3600


def test_who_cannot_be_faster_is_not_decided_about_again() -> None:
    outcome, _ = play(jobs([1, 1], [1e8, 2e8]), Completion())
    assert outcome.decisions <= 4


def test_a_long_queue_is_played_as_well_from_a_shortlist(monkeypatch: pytest.MonkeyPatch) -> None:
    trace = make_jobs(Workload(jobs=2500, load=0.0), table(), CAPACITY, 8)
    short, _ = play(trace, Completion(long=0))
    monkeypatch.setattr("tonnage.allocate.simulate.shortlist._SHORT", trace.size)
    whole, _ = play(trace, Completion(long=0))
    assert short.completed_seconds.mean() == pytest.approx(whole.completed_seconds.mean(), rel=0.02)


def test_thousands_of_jobs_are_played_without_linear_programs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tonnage.allocate.simulate.policies.most_valuable", None)
    trace = make_jobs(Workload(jobs=2500, load=1.2), table(), np.array([40, 40, 80]), 6)
    assert simulate(trace, table(), {"v100": 40, "p100": 40, "k80": 80}, Scenario()).jobs == 2500
