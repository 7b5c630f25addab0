"""`tonnage simulate`: a trace of jobs on unequal GPUs, under a policy."""

from __future__ import annotations

from collections.abc import Callable
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from tonnage.allocate.simulate.scenario import Scenario
    from tonnage.allocate.simulate.summary import Summary

_TAILS = (1.0, 1.05, 1.1, 1.2, 1.35, inf)


def simulate_command(
    jobs: Annotated[Path, typer.Option(help="The trace of jobs, compressed or not.")],
    throughputs: Annotated[Path, typer.Option(help="Steps a second of each class on each type of GPU, as JSON.")],
    gpus: Annotated[str, typer.Option(help="How many of each type, such as v100:8,p100:16,k80:24.")],
    policy: Annotated[str, typer.Option(help="completion, makespan, fairness, blind or fifo.")] = "completion",
    restart_seconds: Annotated[float, typer.Option(help="What a job loses that was stopped or moved.")] = 0.0,
    packing: Annotated[bool, typer.Option("--packing/--no-packing", help="Whether two jobs may share GPUs.")] = True,
    tail: Annotated[
        float, typer.Option(help="Completion: finish what is there within so many times the shortest time; or inf.")
    ] = inf,
    durations: Annotated[str, typer.Option(help="What is known of lengths: known, predicted or blind.")] = "known",
    error: Annotated[
        float, typer.Option(help="How far predicted lengths are off, as deviation of the logarithm.")
    ] = 0.3,
    seed: Annotated[int, typer.Option(help="Of the errors of predicted lengths.")] = 0,
    curve: Annotated[bool, typer.Option("--curve", help="Mean against 99th percentile, over several tails.")] = False,
    compare: Annotated[bool, typer.Option("--compare", help="All policies, beside each other.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON, in seconds.")] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show tracebacks.")] = False,  # noqa: ARG001  (see main.py)
) -> None:
    """Play a trace of jobs on GPUs of several types, and tell when the jobs are done.

    Jobs arrive, wait, run alone or two on the same GPUs, are stopped and moved, and end. Figures do not depend on the
    machine, except for the processor time of the solver.
    """
    from dataclasses import replace

    from tonnage.allocate.simulate.scenario import POLICIES, Scenario
    from tonnage.errors import UsageError

    if seed < 0:
        raise UsageError(f"the seed must be 0 or more, not {seed}")
    if curve and compare:
        raise UsageError("--curve is of one policy, --compare of all", "leave one of them out")
    base = Scenario(
        policy=policy,
        durations=durations,
        error=error,
        seed=seed,
        restart_seconds=restart_seconds,
        tail=tail,
        packing=packing,
    )
    scenarios = [replace(base, policy=name) for name in POLICIES] if compare else [base]
    if curve:
        scenarios = [replace(base, policy="completion", tail=each) for each in _TAILS]
    summaries = _simulate(jobs, throughputs, gpus, scenarios)
    if as_json:
        _print_json(scenarios, summaries, curve, compare)
    else:
        _print_text(scenarios, summaries, curve, compare)


def parse_gpus(text: str) -> dict[str, int]:
    """`v100:8,p100:16` as a mapping."""
    from tonnage.errors import UsageError

    found: dict[str, int] = {}
    for part in text.split(","):
        name, _, count = part.strip().rpartition(":")
        if not name or not (count.isascii() and count.isdecimal()) or len(count) > 7:
            raise UsageError(f"--gpus: {part.strip()!r} is not a type and a number", "for example v100:8,p100:16")
        if name in found:
            raise UsageError(f"--gpus: {name} is there twice")
        found[name] = int(count)
    return found


def _simulate(jobs: Path, throughputs: Path, gpus: str, scenarios: list[Scenario]) -> list[Summary]:
    import time

    from tonnage.allocate.simulate.scenario import on_gpus, simulate
    from tonnage.cli.output import progress
    from tonnage.service.job_files import read_jobs, read_throughputs

    counts = parse_gpus(gpus)
    with progress() as say:
        say("reading")
        table = read_throughputs(throughputs)
        on_gpus(table, counts)  # says what is wrong with them before a long trace is read
        trace = read_jobs(jobs, table)
        return [
            simulate(
                trace, table, counts, scenario, clock=time.process_time, progress=_counter(say, scenario, trace.size)
            )
            for scenario in scenarios
        ]


def _counter(say: Callable[[str], None], scenario: Scenario, total: int) -> Callable[[int], None]:
    """Says each hundredth part."""
    said = -1

    def show(done: int) -> None:
        nonlocal said
        if done * 100 // total != said:
            said = done * 100 // total
            say(f"{scenario.policy}: {done:,} of {total:,} jobs are done")

    return show


# -- what comes out -------------------------------------------------------------------------------------------------------


def _print_json(scenarios: list[Scenario], summaries: list[Summary], curve: bool, compare: bool) -> None:
    import json
    from dataclasses import asdict

    if curve:
        points = [
            {"tail": None if scenario.tail == inf else scenario.tail, **asdict(summary)}
            for scenario, summary in zip(scenarios, summaries, strict=True)
        ]
        print(json.dumps({"curve": points}))
    elif compare:
        print(json.dumps({"policies": [asdict(summary) for summary in summaries]}))
    else:
        print(json.dumps(asdict(summaries[0])))


def _print_text(scenarios: list[Scenario], summaries: list[Summary], curve: bool, compare: bool) -> None:
    import sys

    from rich.console import Console

    from tonnage.cli.simulate_table import comparison, details

    console = Console(file=sys.stdout, highlight=False, width=None if sys.stdout.isatty() else 140)
    if curve:
        names = ["none" if scenario.tail == inf else f"{scenario.tail:g}" for scenario in scenarios]
        console.print(comparison("tail", names, summaries))
    elif compare:
        console.print(comparison("policy", [summary.policy for summary in summaries], summaries))
    else:
        console.print(details(summaries[0]))
