"""Predicted beside measured memory, for every configuration that was measured on a real GPU.

    python benchmarks/accuracy/memory.py                       all configurations; prints the table and the bars
    python benchmarks/accuracy/memory.py --split test          only programs that were never used for tuning
    python benchmarks/accuracy/memory.py --split blind         only the blind programs
    python benchmarks/accuracy/memory.py --write               also writes the rows and the page of the documentation

The measured rows come from `measure.py`, which runs the same programs on a GPU. Nothing here needs a GPU: each program is
captured on the virtual GPU, as a user would.
"""

from __future__ import annotations

import statistics
import time
from datetime import date
from pathlib import Path
from typing import Any

from comparison import PAGES, RESULTS, Comparison, quantile, trace_of
from configurations import Configuration

from tonnage import __version__
from tonnage.errors import TonnageError
from tonnage.estimate.estimator import estimate_trace
from tonnage.hardware import find_gpu

MIB = 1 << 20
QUANTITIES = ("allocated", "reserved", "device")


def predict(configuration: Configuration, gpu: str, cache: Path | None) -> dict[str, Any]:
    """One row of predictions; a program that cannot be followed has an `error`."""
    begin = time.monotonic()
    try:
        trace = trace_of(configuration, cache)
        estimate = estimate_trace(trace, [find_gpu(gpu)], curve=False).estimates[0]
    except TonnageError as error:
        return {"name": configuration.name, "error": error.message}
    return {
        "name": configuration.name,
        "error": None,
        "seconds": round(time.monotonic() - begin, 2),
        "steps": trace.origin.steps,
        "allocated": estimate.peak_allocated_bytes.as_dict(),
        "reserved": estimate.peak_reserved_bytes.as_dict(),
        "device": estimate.device_bytes.as_dict(),
        "warnings": list(trace.origin.warnings),
    }


def compare(configuration: Configuration, real: dict[str, Any], row: dict[str, Any]) -> dict[str, Any]:
    joined = {"name": configuration.name, "split": configuration.split, "program": configuration.program, **row}
    if row["error"] is None:
        for quantity, field in zip(
            QUANTITIES, ("peak_allocated_bytes", "peak_reserved_bytes", "device_peak_bytes"), strict=True
        ):
            joined[f"{quantity}_measured"] = real[field]
            joined[f"{quantity}_error"] = row[quantity]["value"] / real[field] - 1
    return joined


def summary(rows: list[dict[str, Any]]) -> list[tuple[str, str, str]]:
    """The bars: what, the figure, the bar."""
    good = [row for row in rows if row["error"] is None]
    lines = [("configurations", str(len(rows)), ">= 90"), ("failed to trace", str(len(rows) - len(good)), "0")]
    if not good:
        return lines
    for quantity, median_bar, p95_bar in (("allocated", 1, 3), ("reserved", 3, 8)):
        errors = [abs(row[f"{quantity}_error"]) * 100 for row in good]
        lines.append((f"peak_{quantity} error, median", f"{statistics.median(errors):.2f} %", f"<= {median_bar} %"))
        lines.append((f"peak_{quantity} error, 95th percentile", f"{quantile(errors, 0.95):.2f} %", f"<= {p95_bar} %"))
    exceeded = [row["device_measured"] > row["device"]["high"] for row in good]
    extra = [row["device"]["high"] / row["device_measured"] - 1 for row in good]
    lines.append(("device_bytes.high exceeded", f"{100 * sum(exceeded) / len(good):.2f} % of runs", "<= 1 %"))
    lines.append(("device_bytes.high above measured, median", f"{100 * statistics.median(extra):.2f} %", "<= 6 %"))
    for quantity in QUANTITIES:
        inside = [row[quantity]["low"] <= row[f"{quantity}_measured"] <= row[quantity]["high"] for row in good]
        lines.append((f"{quantity}: measured inside the interval", f"{100 * sum(inside) / len(good):.0f} %", ""))
    return lines


def table(rows: list[dict[str, Any]]) -> list[str]:
    lines = [
        f"{'configuration':38} {'split':5} {'allocated':>9} {'measured':>9} {'error':>8} {'reserved':>9} {'measured':>9} {'error':>8}"
    ]
    for row in rows:
        if row["error"] is not None:
            lines.append(f"{row['name']:38} {row['split']:5} failed: {row['error']}")
            continue
        cells = [
            f"{row[q]['value'] / MIB:9.1f} {row[f'{q}_measured'] / MIB:9.1f} {100 * row[f'{q}_error']:+7.2f}%"
            for q in ("allocated", "reserved")
        ]
        lines.append(f"{row['name']:38} {row['split']:5} {' '.join(cells)}")
    return lines


def page(machine: dict[str, Any], rows: list[dict[str, Any]]) -> str:
    details = machine["machine"]
    parts = [
        "# Accuracy: memory",
        "",
        f"Made by `python benchmarks/accuracy/memory.py --write` on {date.today().isoformat()} with Tonnage {__version__}, "
        f"from runs on one {details['gpu']} (driver {machine['driver']}, torch {details['torch']}, CUDA {details['cuda']}, "
        f"cuDNN {details['cudnn']}, transformers {details['transformers']}) on {machine['date'][:10]}. "
        "Sizes in MiB. `tune` programs were looked at while the models of workspaces were made. `test` programs were not, "
        "with exceptions: general faults of the capture and the workspace of packed bidirectional RNNs were found on them. "
        "The two `packed` programs draw other batches in each run, so that their reserved memory varies by tens of per cent.",
        "",
    ]
    for title, chosen in (("All", rows), ("Test programs only", [row for row in rows if row["split"] == "test"])):
        parts += [f"## {title}", "", "| what | measured | bar |", "| --- | --- | --- |"]
        parts += [f"| {what} | {figure} | {bar} |" for what, figure, bar in summary(chosen)]
        parts.append("")
    parts += ["## Every configuration", "", "```", *table(rows), "```", ""]
    return "\n".join(parts)


if __name__ == "__main__":
    Comparison(
        description=__doc__ or "",
        measured=RESULTS / "h200-2026-11-15.jsonl",
        predictions="predictions",
        page_path=PAGES / "accuracy-memory.md",
        predict=predict,
        compare=compare,
        summary=summary,
        table=table,
        page=page,
    ).main()
