"""A plan of more than twenty tasks, and what must be true when an engine has carried it out."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

from tonnage.allocate.objectives import Objective
from tonnage.allocate.plan import Plan
from tonnage.allocate.problem import Problem
from tonnage.allocate.tasks_file import read_tasks
from tonnage.allocate.tasks_models import TasksFile
from tonnage.engines.base import JobState
from tonnage.planning.making import plan_for, problem_of
from tonnage.planning.orders import Order, orders_of
from tonnage.planning.running import Run

LIMIT_SECONDS = 300.0
# Writes down what it saw and when; the first task that finds no mark of itself kills itself once.
PROGRAM = """
import json, os, signal, sys, time
from pathlib import Path
folder, name, seconds = Path(sys.argv[1]), sys.argv[2], float(sys.argv[3])
begin = time.time()
rank = os.environ.get("RANK", "0")
if name == "killed" and not (folder / "killed.mark").exists():
    (folder / "killed.mark").touch()
    os.kill(os.getpid(), signal.SIGKILL)
time.sleep(seconds)
seen = [each for each in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if each]
(folder / f"{name}.{rank}.json").write_text(json.dumps({"seen": seen, "begin": begin, "end": time.time()}))
"""


def make(
    folder: Path, nodes: dict[str, tuple[str, int]], gang: str, *, alike: int = 18, seconds: float = 0.3
) -> tuple[Problem, TasksFile]:
    """`nodes` are models and counts by name; `gang` is the model on which a task wants two GPUs."""
    machines = [
        {"name": name, "gpus": [{"model": model, "count": count}], "cpu": {"cores": 8}, "memory": "16 GiB"}
        for name, (model, count) in nodes.items()
    ]
    (folder / "cluster.yaml").write_text(json.dumps({"nodes": machines}))
    models = sorted({model for model, _ in nodes.values()})

    def task(name: str, number: int, **more: object) -> dict[str, object]:
        return {
            "name": name,
            "speeds": {model: 1.0 + 0.5 * rank + 0.1 * number for rank, model in enumerate(models)},
            "memory": "4 GiB",
            "steps": 1,
            "share": False,
            "main_memory": "256 MiB",
            "cpus": 0.5,
            "command": [sys.executable, "-c", PROGRAM, str(folder), name, str(seconds)],
        } | more

    tasks = [task(f"t{number}", number) for number in range(alike)]
    tasks += [
        task("gang", 3, gpus=2, gpu=[gang], near="node"),
        task("killed", 1),
        task("last", 2, after=["t0", "t1", "gang"]),
    ]
    (folder / "tasks.yaml").write_text(json.dumps({"tasks": tasks}))
    file = read_tasks(folder / "tasks.yaml")
    problem, _ = problem_of(file, folder / "cluster.yaml")
    return problem, file


def plan_and_orders(problem: Problem, file: TasksFile, run: str, image: str = "") -> tuple[Plan, list[Order]]:
    plan = plan_for(problem, Objective.MAKESPAN.value, seconds=0.5)
    assert not plan.unplaced
    return plan, orders_of(problem, plan, file, run, image=image)


def follow(run: Run) -> None:
    deadline = time.monotonic() + LIMIT_SECONDS
    while not run.is_over:
        assert time.monotonic() < deadline, {name: each.status for name, each in run.tasks.items()}
        run.submit()
        run.look()
        time.sleep(0.2)


def check_what_ran(folder: Path, problem: Problem, plan: Plan, run: Run) -> None:
    """Each task had the node, model and number of GPUs of the plan; no two had one GPU at a time; orders were kept."""
    states = {name: (each.status.state, each.status.reason) for name, each in run.tasks.items()}
    assert {state for state, _ in states.values()} == {JobState.SUCCEEDED}, states
    models = {device.place: device.gpu for device in problem.devices}
    times: dict[str, list[tuple[float, float, str]]] = {}
    ran: dict[str, tuple[float, float]] = {}
    for each in plan.assignments:
        planned_nodes = {place.rpartition("/")[0] for place in each.gpus}
        got = run.tasks[each.task].status.devices
        assert len(got) == len(each.gpus), (each, got)
        assert {place.rpartition("/")[0] for place in got} == planned_nodes, (each, got)
        assert all(models[place] == models[each.gpus[0]] for place in got)
        seen = json.loads((folder / f"{each.task}.0.json").read_text())
        assert len(seen["seen"]) == len(each.gpus), (each, seen)
        assert {place.rpartition("/gpu")[2] for place in got} == set(seen["seen"])
        ran[each.task] = seen["begin"], seen["end"]
        for place in got:
            times.setdefault(place, []).append((seen["begin"], seen["end"], each.task))
    for place, spans in times.items():
        for (_, end, one), (begin, _, other) in zip(sorted(spans), sorted(spans)[1:], strict=False):
            assert end <= begin, f"{one} and {other} had {place} at one time"
    for name in ("t0", "t1", "gang"):
        assert ran[name][1] <= ran["last"][0]
    assert run.tasks["killed"].status.restarts == 1
