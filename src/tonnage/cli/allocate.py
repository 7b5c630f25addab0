"""`tonnage allocate`: who runs where and when."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from tonnage.allocate.plan import Plan
    from tonnage.allocate.problem import Problem
    from tonnage.cli.allocate_run import Target
    from tonnage.hardware.cluster import Cluster

EXIT_UNPLACED = 3


def allocate_command(
    tasks: Annotated[Path, typer.Argument(help="The tasks, as tasks.yaml describes them.")],
    cluster: Annotated[
        Path | None,
        typer.Option("--cluster", "-c", help="The machines, as cluster.yaml describes them; else those of the engine."),
    ] = None,
    objective: Annotated[
        str,
        typer.Option(
            "--objective", "-o", help="makespan, completion, deadline, fairness, finish-time, energy or cost."
        ),
    ] = "makespan",
    seconds: Annotated[float, typer.Option(help="Look for better plans for so long.", min=0)] = 10.0,
    simulate: Annotated[
        bool,
        typer.Option("--simulate", help="Play the tasks as they come, by a scheduler that sees only who is there."),
    ] = False,
    html: Annotated[Path | None, typer.Option(help="Write a page with the plan that any browser can show.")] = None,
    engine: Annotated[
        str, typer.Option("--engine", "-e", help="Where it shall run: slurm, ray, kubernetes, podman, docker or local.")
    ] = "",
    submit: Annotated[bool, typer.Option("--submit", help="Run the plan there; nothing is run twice.")] = False,
    watch: Annotated[
        bool, typer.Option("--watch", help="Submit, follow the tasks until all are over, and run those that are added.")
    ] = False,
    run: Annotated[str, typer.Option(help="Name of the run; else the same tasks always have the same.")] = "",
    image: Annotated[str, typer.Option(help="The image that programs are put on, where the engine needs one.")] = "",
    option: Annotated[list[str] | None, typer.Option("--option", help="NAME=VALUE, of the engine alone.")] = None,
    why: Annotated[str, typer.Option(help="Tell of one task: why here, why not there.")] = "",
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show tracebacks.")] = False,  # noqa: ARG001  (see main.py)
) -> int:
    """Allocate many tasks to the GPUs of a cluster.

    Programs are followed on a virtual GPU; nothing runs without --submit or --watch. Tasks that fit nowhere are listed, the
    rest is planned, and the exit code is 3.
    """
    from tonnage.allocate.alternatives import find_task
    from tonnage.allocate.page import render_page
    from tonnage.allocate.tasks_file import read_tasks
    from tonnage.cli.allocate_notes import print_notes
    from tonnage.cli.allocate_run import carry_out, fit, target_of
    from tonnage.cli.allocate_simulate import print_simulation
    from tonnage.cli.estimate import check_folder
    from tonnage.cli.output import progress
    from tonnage.planning import plan_for, problem_of
    from tonnage.planning.live import LiveTasks
    from tonnage.planning.making import objective_of

    check_folder(html)
    _refuse_contradictions(
        plays=simulate, explains=bool(why), shows=html is not None or bool(engine), runs=submit or watch
    )
    target = target_of(engine, option or [], run=run, image=image, submit=submit, watch=watch)
    live = LiveTasks(tasks)  # before it is read: a change from now on is seen
    file = read_tasks(tasks)
    machines = _machines(cluster, target)
    with progress() as say:
        problem, smallest = problem_of(file, machines, say)
        if why:
            find_task(problem, why)  # before a plan is looked for
        if target is not None:
            problem = fit(problem, file, target)
    if simulate:
        return 0 if print_simulation(problem, objective_of(objective), as_json=as_json) else EXIT_UNPLACED
    with progress() as say:
        plan = plan_for(problem, objective, smallest=smallest, seconds=seconds, progress=say)
    print_notes(problem, plan)
    if html is not None:
        html.write_text(render_page(problem, plan))
    if target is not None and not why:
        return carry_out(problem, plan, file, target, live, machines, as_json=as_json)
    _print(problem, plan, why, as_json)
    return EXIT_UNPLACED if plan.unplaced else 0


def _refuse_contradictions(*, plays: bool, explains: bool, shows: bool, runs: bool) -> None:
    from tonnage.errors import UsageError

    if plays and (explains or shows):
        raise UsageError("--simulate plays tasks and makes no plan", "leave out --why, --html and --engine")
    if explains and runs:
        raise UsageError("--why explains a plan and runs nothing", "leave out --submit and --watch")


def _machines(path: Path | None, target: Target | None) -> Cluster:
    from tonnage.errors import UsageError
    from tonnage.hardware import read_cluster
    from tonnage.planning.inventory import cluster_of

    if path is not None:
        return read_cluster(path)
    if target is None:
        raise UsageError("which GPUs there are is not said", "name a file, --cluster cluster.yaml, or an engine")
    return cluster_of(target.engine, target.options)


def _print(problem: Problem, plan: Plan, why: str, as_json: bool) -> None:
    import json

    from tonnage.allocate.alternatives import explain
    from tonnage.cli.allocate_table import print_plan, print_why

    if why:
        explained = explain(problem, plan, why)
        print(json.dumps(explained.as_dict())) if as_json else print_why(explained)
    elif as_json:
        print(json.dumps(plan.as_dict()))
    else:
        print_plan(problem, plan)
