"""Time to evaluate a captured training step for every GPU of the catalogue.

    python benchmarks/speed/gpus.py [--repeats 9] [--write]

"time" is the time model alone, "memory and time" the whole estimate by `Estimator`; a fresh one each time, so that nothing
is left over from the evaluation before. The bound is a plain roofline (operations over rate, bytes over bandwidth) of the
same operators on the same GPUs, as two divisions and a maximum in numpy. "command" is `tonnage estimate FILE.trace --json`,
a process of its own with all its imports. Seconds are CPU time, medians of interleaved repeats.
"""

from __future__ import annotations

import argparse
import json
import platform
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from datetime import date
from pathlib import Path

import numpy as np
import torch

from tonnage.benchmark.time_models import shipped_model
from tonnage.estimate.estimator import Estimator
from tonnage.estimate.kernels.rates import Rates
from tonnage.estimate.step import Step, steady_steps
from tonnage.estimate.step_time import StepTimer
from tonnage.hardware import all_gpus
from tonnage.program.capture import capture
from tonnage.program.program import parse_program
from tonnage.program.trace import Trace
from tonnage.program.trace_file import write_trace

BAR_SECONDS = 0.3  # for all GPUs of the catalogue, of a step of ResNet-50
DREAM_PAIRS = 10_000  # of 1,000 operators and a GPU, in a second
GPUS = all_gpus()
FOLDER = Path(__file__).parents[1] / "accuracy" / "programs"
PROGRAMS = {
    "ResNet-50": ("resnet.py", "--arch", "resnet50", "--batch-size", "32"),
    "GPT-2 small (transformers)": ("hf_causal.py", "--family", "gpt2", "--batch-size", "4", "--vocab", "50257"),
}


def roofline(step: Step) -> Callable[[], object]:
    """The least that any model of these operators computes."""
    rates = [Rates.of(gpu) for gpu in GPUS]
    rate = np.array([r.operations for r in rates])[:, step.works.arithmetic]
    bandwidth = np.array([[r.bandwidth] for r in rates])
    return lambda: np.maximum(step.works.operations / rate, step.works.bytes / bandwidth).sum(axis=1)


def cpu_seconds(run: Callable[[], object]) -> float:
    begin = time.process_time()
    run()
    return time.process_time() - begin


def command_seconds(path: Path) -> tuple[float, float]:
    """CPU time of the whole command, and what a user waits for by the clock."""
    command = [sys.executable, "-m", "tonnage", "estimate", str(path), "--json"]
    begin, before = time.perf_counter(), resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    clock, after = time.perf_counter() - begin, resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, clock


def measure(name: str, trace: Trace, repeats: int) -> dict[str, object]:
    model, step = shipped_model(), steady_steps(trace)
    ways: dict[str, Callable[[], object]] = {
        "time": lambda: list(StepTimer(steady_steps(trace), model).on_each(GPUS)),
        "memory and time": lambda: list(Estimator(trace, model).estimates(GPUS)),
        "bound": roofline(step),
    }
    seconds: dict[str, list[float]] = {way: [] for way in (*ways, "command", "command by the clock")}
    for run in ways.values():
        run()  # imports, and tables that are made once
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "step.trace"
        write_trace(trace, path)
        for _ in range(repeats):
            for way, run in ways.items():
                seconds[way].append(cpu_seconds(run))
            cpu, clock = command_seconds(path)
            seconds["command"].append(cpu)
            seconds["command by the clock"].append(clock)
    return {
        "program": name,
        "gpus": len(GPUS),
        "operators": len(step.operators),
        "kernels": len(step.works),
        "calls_step": len(step.operator) / step.turns,
        "seconds": seconds,
        "median": {way: statistics.median(values) for way, values in seconds.items()},
    }


def show(row: dict[str, object]) -> None:
    median = row["median"]
    assert isinstance(median, dict)
    print(
        f"{row['program']}: {row['operators']} distinct operators ({row['kernels']} kernels), "
        f"{row['calls_step']:.0f} calls in a step, {row['gpus']} GPUs"
    )
    for way in ("time", "memory and time"):
        pairs = len(GPUS) / median[way]
        verdict = f"{'within' if median[way] < BAR_SECONDS else 'OVER'} the bar of {1e3 * BAR_SECONDS:.0f} ms"
        print(f"  {way:16} {1e3 * median[way]:8.1f} ms   {pairs:9,.0f} pairs/s (dream: {DREAM_PAIRS:,})   {verdict}")
    ratio = median["time"] / median["bound"]
    print(
        f"  {'bound':16} {1e3 * median['bound']:8.2f} ms   plain roofline; the time model takes {ratio:,.0f} times that"
    )
    print(
        f"  {'command':16} {1e3 * median['command']:8.0f} ms   tonnage estimate FILE.trace --json; by the clock {1e3 * median['command by the clock']:.0f} ms"
    )


def cpu_name() -> str:
    lines = Path("/proc/cpuinfo").read_text().splitlines() if Path("/proc/cpuinfo").exists() else []
    return next((line.split(":")[1].strip() for line in lines if line.startswith("model name")), platform.machine())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=9)
    parser.add_argument("--write", action="store_true", help="write the rows to results/")
    options = parser.parse_args()
    versions = {"python": platform.python_version(), "numpy": np.__version__, "torch": torch.__version__}
    rows: list[dict[str, object]] = [{"date": date.today().isoformat(), "cpu": cpu_name(), **versions}]
    for name, (script, *arguments) in PROGRAMS.items():
        trace = capture(parse_program(str(FOLDER / script), tuple(arguments)))
        rows.append(measure(name, trace, options.repeats))
        show(rows[-1])
    if options.write:
        target = Path(__file__).parent / "results" / f"gpus-{date.today().isoformat()}.jsonl"
        target.write_text("".join(json.dumps(row) + "\n" for row in rows))


if __name__ == "__main__":
    main()
