"""Predicted beside measured time and energy of a step, for every configuration that was timed on a real GPU.

    python benchmarks/accuracy/time.py                       all configurations; prints the table and the bars
    python benchmarks/accuracy/time.py --split blind         only programs whose family is not in the fitting data
    python benchmarks/accuracy/time.py --write               also writes the rows and the page of the documentation

The measured rows come from `measure_time.py`, which runs the same programs on a GPU. Nothing here needs a GPU: each program
is captured on the virtual GPU, as a user would.
"""

from __future__ import annotations

import statistics
from datetime import date
from pathlib import Path
from typing import Any

from comparison import PAGES, RESULTS, Comparison, quantile, trace_of
from configurations import Configuration
from step_quantities import measured

from tonnage import __version__
from tonnage.benchmark.time_models import current_model
from tonnage.errors import TonnageError
from tonnage.estimate.estimator import Estimator
from tonnage.hardware import find_gpu

QUANTITIES = (
    "step_seconds",
    "forward_seconds",
    "backward_seconds",
    "optimizer_seconds",
    "copy_seconds",
    "energy_joules_step",
)
# What a quantity's median and 90th percentile may be, in per cent.
BARS = {
    "step_seconds": (8, 20),
    "forward_seconds": (10, None),
    "backward_seconds": (10, None),
    "energy_joules_step": (10, None),
    "copy_seconds": (10, None),
}


def predict(configuration: Configuration, gpu: str, cache: Path | None) -> dict[str, Any]:
    try:
        time = Estimator(trace_of(configuration, cache), current_model()).estimate(find_gpu(gpu)).time
    except TonnageError as error:
        return {"error": error.message}
    assert time is not None
    plain = time.as_dict()
    copies = {part: plain["h2d_seconds"][part] + plain["d2h_seconds"][part] for part in ("value", "low", "high")}
    return {"error": None, "bound_by": time.bound_by, "utilisation": time.utilisation, "copy_seconds": copies} | {
        name: plain[name] for name in QUANTITIES if name in plain
    }


def compare(configuration: Configuration, real: dict[str, Any], row: dict[str, Any]) -> dict[str, Any]:
    joined = {"name": configuration.name, "split": configuration.split, "program": configuration.program, **row}
    if row["error"] is None:
        for name, value in measured(real).items():
            joined[f"{name}_measured"] = value
            joined[f"{name}_error"] = row[name]["value"] / value - 1 if value else None
        joined["busy_share_measured"] = sum(real["busy_seconds"].values()) / joined["step_seconds_measured"]
    return joined


def summary(rows: list[dict[str, Any]]) -> list[tuple[str, str, str]]:
    good = [row for row in rows if row["error"] is None]
    lines = [("configurations", str(len(rows)), ""), ("failed to trace", str(len(rows) - len(good)), "0")]
    for name in QUANTITIES:
        errors = [abs(row[f"{name}_error"]) * 100 for row in good if row[f"{name}_error"] is not None]
        if not errors:
            continue
        median_bar, p90_bar = BARS.get(name, (None, None))
        lines.append(
            (f"{name} error, median", f"{statistics.median(errors):.1f} %", f"<= {median_bar} %" if median_bar else "")
        )
        lines.append(
            (f"{name} error, 90th percentile", f"{quantile(errors, 0.9):.1f} %", f"<= {p90_bar} %" if p90_bar else "")
        )
        inside = [
            row[name]["low"] <= row[f"{name}_measured"] <= row[name]["high"]
            for row in good
            if row[f"{name}_error"] is not None
        ]
        lines.append((f"{name} inside the 90 % interval", f"{100 * sum(inside) / len(inside):.0f} %", "88-92 %"))
    return lines


def table(rows: list[dict[str, Any]]) -> list[str]:
    lines = [
        f"{'configuration':38} {'split':5} {'step ms':>9} {'measured':>9} {'error':>8} {'forward':>8} {'backward':>8} {'energy':>8}  bound by"
    ]
    for row in rows:
        if row["error"] is not None:
            lines.append(f"{row['name']:38} {row['split']:5} failed: {row['error']}")
            continue
        errors = [
            row[f"{q}_error"] for q in ("step_seconds", "forward_seconds", "backward_seconds", "energy_joules_step")
        ]
        cells = " ".join(f"{100 * error:+7.1f}%" if error is not None else f"{'':8}" for error in errors)
        lines.append(
            f"{row['name']:38} {row['split']:5} {1000 * row['step_seconds']['value']:9.2f} {1000 * row['step_seconds_measured']:9.2f} {cells}  {row['bound_by']}"
        )
    return lines


def page(machine: dict[str, Any], rows: list[dict[str, Any]]) -> str:
    details = machine["machine"]
    parts = [
        "# Accuracy: time and energy",
        "",
        f"Made by `python benchmarks/accuracy/time.py --write` on {date.today().isoformat()} with Tonnage {__version__}, "
        f"from runs on one {details['gpu']} (driver {machine['driver']}, torch {details['torch']}, CUDA {details['cuda']}, "
        f"cuDNN {details['cudnn']}, transformers {details['transformers']}) on {machine['date'][:10]}. `blind` programs are of "
        "families that nothing was fitted to. Data loaders were fed from memory.",
        "",
    ]
    for title, chosen in (("Blind programs", [row for row in rows if row["split"] == "blind"]), ("All", rows)):
        parts += [f"## {title}", "", "| what | measured | bar |", "| --- | --- | --- |"]
        parts += [f"| {what} | {figure} | {bar} |" for what, figure, bar in summary(chosen)]
        parts.append("")
    parts += ["## Every configuration", "", "```", *table(rows), "```", ""]
    return "\n".join(parts)


if __name__ == "__main__":
    Comparison(
        description=__doc__ or "",
        measured=RESULTS / "times.jsonl",
        predictions="time-predictions",
        page_path=PAGES / "accuracy-time.md",
        predict=predict,
        compare=compare,
        summary=summary,
        table=table,
        page=page,
    ).main()
