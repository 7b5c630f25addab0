"""Fits the time model that comes with the package: kernels to the database, host and energy also to real programs.

    python benchmarks/accuracy/fit_model.py --database DATABASE --traces FOLDER [--write]

Only programs of the `tune` part are used; their measured steps come from `measure_time.py`. Without --write nothing is changed.
"""

from __future__ import annotations

import argparse
import time
from datetime import date
from pathlib import Path

from comparison import measured_rows, trace_of
from configurations import CONFIGURATIONS
from step_quantities import measured

from tonnage.benchmark.fit_copies import read_copies
from tonnage.benchmark.fitting import fit_time_model, read_kernels, read_operator_costs, read_steps
from tonnage.benchmark.measured_operators import measured_operators
from tonnage.benchmark.step_samples import StepSample
from tonnage.benchmark.time_models import write_model
from tonnage.estimate.step import steady_steps
from tonnage.estimate.time_model import TimeModel
from tonnage.hardware import find_gpu
from tonnage.store.database import open_database

SHIPPED = Path(__file__).parents[2] / "src/tonnage/estimate/fitted/time-model.json.gz"
# Not comparable with a trace: batches drawn anew in each run, or steps that change while they are timed.
LEFT_OUT = ("packed", "ppo", "generate")


def program_samples(measurements: Path, traces: Path, split: str) -> list[StepSample]:
    machine, rows = measured_rows(measurements)
    gpu = find_gpu(machine["machine"]["gpu"].removeprefix("NVIDIA "))
    found = []
    for configuration in CONFIGURATIONS:
        row = rows.get(configuration.name)
        if row is None or configuration.split != split or any(word in configuration.name for word in LEFT_OUT):
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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--database", required=True)
    parser.add_argument("--measured", type=Path, default=Path(__file__).parent / "results" / "times.jsonl")
    parser.add_argument("--traces", type=Path, required=True)
    parser.add_argument("--without-points", action="store_true", help="fit host and energy to programs alone")
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args()
    started = time.monotonic()
    with open_database(options.database, create=False) as database:
        kernels, operators = read_kernels(database), read_operator_costs(database)
        known, copies = measured_operators(database), read_copies(database)
        points = [] if options.without_points else read_steps(database)
    programs = program_samples(options.measured, options.traces, "tune")
    fitted = {
        "date": date.today().isoformat(), "gpus": sorted({sample.gpu for sample in kernels}), "kernels": len(kernels),
        "steps": len(points) + len(programs),
    }  # fmt: skip
    model = fit_time_model(
        kernels, [*points, *programs], operators, TimeModel(), fitted=fitted, measured=known, copies=copies,
        progress=lambda text: print(f"{time.monotonic() - started:6.1f} s  {text}", flush=True),
    )  # fmt: skip
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
