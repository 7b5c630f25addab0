"""A plan of more than twenty tasks on a real Ray with unequal nodes, one of which may be lost."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from plan_on import LIMIT_SECONDS, check_what_ran, follow, make, plan_and_orders
from ray_rig import NODES, RayRig, ray_rig

from tonnage.engines.base import JobState
from tonnage.engines.deploying import Deployments
from tonnage.engines.ray import RayEngine
from tonnage.engines.ray_request import RayOptions
from tonnage.errors import UsageError
from tonnage.planning.inventory import cluster_of
from tonnage.planning.running import Run
from tonnage.planning.watching import Watch

MODELS = {"V100": "V100 SXM2 16GB", "P100": "P100 SXM2", "K80": "K80"}
PLACES = {node.name: (MODELS[node.model], node.gpus) for node in NODES}
LOST = "volta-1"


@pytest.fixture(scope="module")
def rig() -> Iterator[RayRig]:
    with ray_rig() as found:
        yield found


def test_a_plan_of_twenty_tasks_runs_as_planned(rig: RayRig, tmp_path: Path) -> None:
    problem, file = make(tmp_path, PLACES, MODELS["P100"])
    plan, orders = plan_and_orders(problem, file, "run-a")
    run = Run(orders, RayEngine(rig.address), RayOptions(), Deployments(tmp_path / "deployments"))
    run.submit()
    follow(run)
    check_what_ran(tmp_path, problem, plan, run)


def test_ray_tells_its_nodes_and_gpus(rig: RayRig) -> None:
    told = RayOptions(gpu_types="V100 SXM2 16GB=V100,P100 SXM2=P100")
    found = cluster_of(RayEngine(rig.address), told)
    assert {node.name: (node.gpus[0].name, len(node.gpus)) for node in found.nodes} == PLACES
    with pytest.raises(UsageError, match="the GPUs that the engine calls P100 may be P100 PCIe 12GB, "):
        cluster_of(RayEngine(rig.address), RayOptions())


def test_tasks_that_run_on_a_lost_node_are_planned_anew_and_finish_elsewhere(rig: RayRig, tmp_path: Path) -> None:
    problem, file = make(tmp_path, PLACES, MODELS["P100"], alike=7, seconds=4.0)
    plan, orders = plan_and_orders(problem, file, "run-c")
    run = Run(orders, RayEngine(rig.address), RayOptions(), Deployments(tmp_path / "deployments"))
    said: list[str] = []
    watch = Watch(problem=problem, plan=plan, file=file, name="run-c", run=run, say=said.append)
    deadline, torn = time.monotonic() + LIMIT_SECONDS, ""
    for each in watch.follow():
        assert time.monotonic() < deadline, {name: task.status for name, task in run.tasks.items()}
        if not torn and each.status.state is JobState.RUNNING and is_on_lost_node(each.status.devices):
            torn = each.task
            rig.remove(LOST)
    assert {(name, each.status.state, each.status.reason) for name, each in run.tasks.items()} == {
        (name, JobState.SUCCEEDED, "") for name in run.tasks
    }
    assert not any(is_on_lost_node(each.status.devices) for name, each in run.tasks.items() if name == torn)
    assert not any(is_on_lost_node(each.gpus) for each in watch.plan.assignments)
    assert said[0].startswith(f"{LOST} lost: ")
    assert (tmp_path / f"{torn}.0.json").exists()


def is_on_lost_node(places: tuple[str, ...]) -> bool:
    return any(place.startswith(f"{LOST}/") for place in places)
