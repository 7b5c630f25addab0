"""Fits the time model that comes with the package: kernels to the database, host and energy also to real programs.

    python benchmarks/accuracy/fit_model.py --traces FOLDER [--database DATABASE] [--write]

The programs are those of `configurations.py`, never the blind ones; their measured steps come from `measure_time.py`. Without
--write nothing is changed.
"""

from __future__ import annotations

import argparse
import json
import math
import time
from dataclasses import replace
from datetime import date
from pathlib import Path

import numpy as np
from comparison import RESULTS, measured_rows, trace_of
from configurations import CONFIGURATIONS
from step_quantities import measured

from tonnage.benchmark.cluster_training import conformal_quantile
from tonnage.benchmark.fit_copies import Copied, fit_program_copies, read_copies
from tonnage.benchmark.fitting import fit_time_model, operator_seconds, read_kernels, read_operator_costs, read_steps
from tonnage.benchmark.measured_operators import measured_operators
from tonnage.benchmark.seen import Seen
from tonnage.benchmark.shipped import shipped_database
from tonnage.benchmark.step_samples import StepSample
from tonnage.benchmark.time_models import write_model
from tonnage.estimate.step import steady_steps
from tonnage.estimate.time_model import Spreads, TimeModel
from tonnage.hardware import find_gpu
from tonnage.program.trace import D2H, H2D
from tonnage.store.database import open_database

SHIPPED = Path(__file__).parents[2] / "src/tonnage/estimate/fitted/time-model.json.gz"
# Not comparable with a trace: batches drawn anew in each run, or steps that change while they are timed.
LEFT_OUT = ("packed", "ppo")


def program_samples(measurements: Path, traces: Path) -> list[StepSample]:
    machine, rows = measured_rows(measurements)
    gpu = find_gpu(machine["machine"]["gpu"].removeprefix("NVIDIA "))
    found = []
    for configuration in CONFIGURATIONS:
        row = rows.get(configuration.name)
        if row is None or any(word in configuration.name for word in LEFT_OUT):
            continue
        values = measured(row)
        found.append(
            StepSample(
                name=configuration.name,
                family=configuration.program,
                gpu=gpu,
                step=steady_steps(trace_of(configuration, traces)),
                step_seconds=values["step_seconds"] or 0.0,
                forward_seconds=values["forward_seconds"],
                backward_seconds=values["backward_seconds"],
                optimizer_seconds=values["optimizer_seconds"],
                busy_seconds=sum(
                    seconds for kind, seconds in row["busy_seconds"].items() if kind not in ("h2d", "d2h")
                ),
                energy_joules=values["energy_joules_step"],
                energy_step_seconds=row.get("power_step_seconds"),
            )
        )
    return found


def program_copies(measurements: Path, traces: Path) -> list[Copied]:
    """Copies of every program whose number of copies is what the Trace says."""
    machine, rows = measured_rows(measurements)
    gpu = find_gpu(machine["machine"]["gpu"].removeprefix("NVIDIA "))
    found = []
    for configuration in CONFIGURATIONS:
        if configuration.name not in rows or any(word in configuration.name for word in LEFT_OUT):
            continue
        row, step = rows[configuration.name], steady_steps(trace_of(configuration, traces))
        counts = (step.calls / step.turns).tolist()
        for direction, name in (("h2d", H2D), ("d2h", D2H)):
            made = tuple((op, n) for op, n in zip(step.operators, counts, strict=True) if op.name == name)
            if abs(sum(n for _, n in made) - row["launches"][direction]) < 0.5 and row["busy_seconds"][direction]:
                found.append(Copied(gpu, made, row["busy_seconds"][direction]))
    return found


def with_specification(spreads: Spreads) -> Spreads:
    """On a GPU that nobody measured a step is as wrong as on one that was measured, and kernels are wrong by what those of
    left-out GPUs were on average (gpu_ops.py): what differs from call to call evens out within a step."""
    results = json.loads((RESULTS / "gpu-ops.json").read_text())
    beyond = conformal_quantile(np.array([abs(math.log1p(row["bias"])) for row in results]), spreads.coverage)
    known = {name: spread for name, spread in spreads.factors["calibrated"].items() if name.endswith("_seconds")}
    wider = {name: math.hypot(spread, beyond) for name, spread in known.items()}
    return replace(spreads, factors={**spreads.factors, "specification": wider})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--database", help="else the rows that come with the package")
    parser.add_argument("--measured", type=Path, default=RESULTS / "times.jsonl")
    parser.add_argument("--traces", type=Path, required=True)
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args()
    started = time.monotonic()
    opened = open_database(options.database, create=False) if options.database else shipped_database()
    with opened as database:
        kernels, operators = read_kernels(database), operator_seconds(read_operator_costs(database))
        known, copies = measured_operators(database), read_copies(database)
        points = read_steps(database)
    programs = program_samples(options.measured, options.traces)
    fitted = {
        "date": date.today().isoformat(), "gpus": sorted({sample.gpu for sample in kernels}), "kernels": len(kernels),
        "steps": len(points) + len(programs), "seen": Seen.of((sample.gpu, sample.key) for sample in kernels).as_dict(),
    }  # fmt: skip
    model = fit_time_model(
        kernels, points, operators, TimeModel(), fitted=fitted, measured=known, copies=copies, programs=programs,
        progress=lambda text: print(f"{time.monotonic() - started:6.1f} s  {text}", flush=True),
    )  # fmt: skip
    copied = program_copies(options.measured, options.traces)
    model = replace(model, spreads=with_specification(model.spreads), copies=fit_program_copies(copied, model.copies))
    print(f"{time.monotonic() - started:6.1f} s  {len(copied)} kinds of copies: {model.copies}")
    print(f"{time.monotonic() - started:6.1f} s  host {model.host.__class__.__name__}:")
    for name in model.host.__slots__:
        if name != "operators":
            print(f"    {name:16} {getattr(model.host, name):.4g}")
    print(f"    energy {model.energy}\n    spreads {model.spreads}")
    if options.write:
        write_model(model, SHIPPED)
        print(f"written: {SHIPPED.name}, {SHIPPED.stat().st_size / 1e3:.0f} kB")


if __name__ == "__main__":
    main()
