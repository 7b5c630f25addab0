"""A plan of more than twenty tasks on a real Slurm with unequal nodes."""

from __future__ import annotations

from pathlib import Path

import pytest
from plan_on import check_what_ran, follow, make, plan_and_orders
from slurm_rig import NODES, SlurmRig, slurm, slurm_rig

from tonnage.engines.deploying import Deployments
from tonnage.engines.slurm import SlurmEngine
from tonnage.engines.slurm_script import SlurmOptions
from tonnage.errors import Unreachable
from tonnage.planning.running import Run
from tonnage.planning.watching import Watch

__all__ = ["slurm", "slurm_rig"]

MODELS = {"v100": "V100 SXM2 16GB", "p100": "P100 SXM2", "k80": "K80"}


def nodes() -> dict[str, tuple[str, int]]:
    return {node.name: (MODELS[node.gpu], node.gpus) for node in NODES}


def test_a_plan_of_twenty_tasks_runs_as_planned(slurm: SlurmEngine, tmp_path: Path) -> None:
    problem, file = make(tmp_path, nodes(), MODELS["p100"])
    plan, orders = plan_and_orders(problem, file, "run-a")
    run = Run(orders, slurm, SlurmOptions(), Deployments(tmp_path / "deployments"))
    assert len(run.submit()) == 21
    again = Run(orders, slurm, SlurmOptions(), Deployments(tmp_path / "deployments"))
    assert again.submit() == []  # nothing runs twice
    follow(again)
    check_what_ran(tmp_path, problem, plan, again)


def test_tasks_of_a_lost_node_are_planned_anew(slurm: SlurmEngine, slurm_rig: SlurmRig, tmp_path: Path) -> None:
    problem, file = make(tmp_path, nodes(), MODELS["p100"])
    plan, orders = plan_and_orders(problem, file, "run-c")
    run = Run(orders, slurm, SlurmOptions(), Deployments(tmp_path / "deployments"))
    watch = Watch(problem=problem, plan=plan, file=file, name="run-c", run=run)
    run.submit()
    slurm_rig.lose("v100n1")
    try:
        for _ in watch.follow():
            pass
    finally:
        slurm_rig.find("v100n1")
    states = {name: (each.status.state, each.status.reason) for name, each in run.tasks.items()}
    assert {state for state, _ in states.values()} == {"succeeded"}, states
    assert watch.replans >= 1
    late = [each for each in watch.plan.assignments if any(place.startswith("v100n1/") for place in each.gpus)]
    assert late == []


def test_nothing_stays_submitted_where_slurm_stops_answering(
    slurm: SlurmEngine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    problem, file = make(tmp_path, nodes(), MODELS["p100"])
    _, orders = plan_and_orders(problem, file, "run-b")
    run = Run(orders, slurm, SlurmOptions(), Deployments(tmp_path / "deployments"))
    submit, count = slurm.submit, 0

    def fail(*arguments: object) -> object:
        nonlocal count
        count += 1
        if count == 5:
            raise Unreachable("Slurm does not answer")
        return submit(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(slurm, "submit", fail)
    with pytest.raises(Unreachable):
        run.submit()
    assert list(run.deployments.all()) == []
    assert [status for _, status, _ in slurm.jobs() if not status.state.is_over] == []
