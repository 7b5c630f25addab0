"""A plan of more than twenty tasks on a real Ray with unequal nodes."""

from __future__ import annotations

from pathlib import Path

from plan_on import check_what_ran, follow, make, plan_and_orders
from ray_rig import NODES, ray_rig

from tonnage.engines.deploying import Deployments
from tonnage.engines.ray import RayEngine
from tonnage.engines.ray_request import RayOptions
from tonnage.planning.running import Run

MODELS = {"V100": "V100 SXM2 16GB", "P100": "P100 SXM2", "K80": "K80"}


def test_a_plan_of_twenty_tasks_runs_as_planned(tmp_path: Path) -> None:
    nodes = {node.name: (MODELS[node.model], node.gpus) for node in NODES}
    problem, file = make(tmp_path, nodes, MODELS["P100"])
    plan, orders = plan_and_orders(problem, file, "run-a")
    with ray_rig() as rig:
        run = Run(orders, RayEngine(rig.address), RayOptions(), Deployments(tmp_path / "deployments"))
        run.submit()
        follow(run)
        check_what_ran(tmp_path, problem, plan, run)
