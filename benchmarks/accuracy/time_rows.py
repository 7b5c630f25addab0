"""Measured steps of programs, and the traces that belong to them."""

from __future__ import annotations

import json
import statistics
from pathlib import Path
from typing import Any

from configurations import Configuration

from tonnage.program.capture import capture
from tonnage.program.program import Program
from tonnage.program.trace import Trace
from tonnage.program.trace_file import read_trace, write_trace

NEGLIGIBLE_SECONDS = 5e-6


def measured_rows(path: Path) -> tuple[dict[str, Any], dict[str, dict[str, Any]]]:
    """The machine, and one row per configuration; of repeated runs the last."""
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    machine = next(row for row in rows if "machine" in row)
    return machine, {row["name"]: row for row in rows if "name" in row and not row["error"]}


def measured(row: dict[str, Any]) -> dict[str, float | None]:
    """The quantities of one row. Forward is what is left of a step, as in the estimate."""
    step = statistics.median(row["step_seconds"])
    copied = row["busy_seconds"]["h2d"] + row["busy_seconds"]["d2h"]
    training = row["training"]
    backward, optimizer = row["backward_seconds"], row["optimizer_seconds"]
    return {
        "step_seconds": step,
        "forward_seconds": max(step - backward - optimizer - copied, 0.0),
        "backward_seconds": backward if training else None,
        "optimizer_seconds": optimizer if training else None,
        "copy_seconds": copied if copied > NEGLIGIBLE_SECONDS else None,
        "energy_joules_step": row.get("energy_joules_step"),
    }


def trace_of(configuration: Configuration, cache: Path | None) -> Trace:
    saved = cache / f"{configuration.name}.trace" if cache else None
    if saved is not None and saved.exists():
        return read_trace(saved)
    trace = capture(Program(kind="script", target=str(configuration.path), arguments=configuration.arguments))
    if saved is not None:
        write_trace(trace, saved)
    return trace
