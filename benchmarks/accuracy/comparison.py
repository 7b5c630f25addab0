"""Predictions beside measured rows: what the accuracy scripts for memory and for time have in common."""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any

from configurations import Configuration
from selection import SPLITS, selected

from tonnage.program.capture import capture
from tonnage.program.program import Program
from tonnage.program.trace import Trace
from tonnage.program.trace_file import read_trace, write_trace

RESULTS = Path(__file__).parent / "results"
PAGES = Path(__file__).parents[2] / "docs" / "reference"
Row = dict[str, Any]


def measured_rows(path: Path) -> tuple[dict[str, Any], dict[str, dict[str, Any]]]:
    """The machine, and one row per configuration; of repeated runs the last."""
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    machine = next(row for row in rows if "machine" in row)
    return machine, {row["name"]: row for row in rows if "name" in row and not row["error"]}


def trace_of(configuration: Configuration, cache: Path | None) -> Trace:
    saved = cache / f"{configuration.name}.trace" if cache else None
    if saved is not None and saved.exists():
        return read_trace(saved)
    trace = capture(Program(kind="script", target=str(configuration.path), arguments=configuration.arguments))
    if saved is not None:
        write_trace(trace, saved)
    return trace


def quantile(values: list[float], share: float) -> float:
    ordered = sorted(values)
    return ordered[min(int(share * len(ordered)), len(ordered) - 1)]


@dataclass(frozen=True)
class Comparison:
    """What one script compares, and how it shows it."""

    description: str
    measured: Path
    predictions: str  # the file's name begins so
    page_path: Path
    predict: Callable[[Configuration, str, Path | None], Row]
    compare: Callable[[Configuration, Row, Row], Row]
    summary: Callable[[list[Row]], list[tuple[str, str, str]]]
    table: Callable[[list[Row]], list[str]]
    page: Callable[[Row, list[Row]], str]

    def main(self) -> None:
        """Predict every configuration that was measured, print the table and the bars."""
        options = self._options()
        machine, real = measured_rows(options.measured)
        chosen = [c for c in selected(options.split, options.only) if c.name in real]
        if options.traces:
            options.traces.mkdir(parents=True, exist_ok=True)
        rows = []
        with ThreadPoolExecutor(options.jobs) as pool:
            predicted = pool.map(lambda c: self.predict(c, options.gpu, options.traces), chosen)
            for configuration, row in zip(chosen, predicted, strict=True):
                rows.append(self.compare(configuration, real[configuration.name], row))
                print(self.table(rows[-1:])[1], flush=True)
        print()
        for what, figure, bar in self.summary(rows):
            print(f"{what:45} {figure:>16}   {bar}")
        if options.write:
            target = RESULTS / f"{self.predictions}-{options.gpu.lower()}-{date.today().isoformat()}.jsonl"
            target.write_text("".join(json.dumps(row) + "\n" for row in rows))
            self.page_path.write_text(self.page(machine, rows))
        sys.exit(1 if any(row["error"] for row in rows) else 0)

    def _options(self) -> argparse.Namespace:
        parser = argparse.ArgumentParser(
            description=self.description, formatter_class=argparse.RawDescriptionHelpFormatter
        )
        parser.add_argument("--measured", type=Path, default=self.measured)
        parser.add_argument("--gpu", default="H200")
        parser.add_argument("--only", default="", help="regular expression for names")
        parser.add_argument("--split", choices=SPLITS, default="all")
        parser.add_argument("--jobs", type=int, default=max((os.cpu_count() or 1), 1))
        parser.add_argument("--traces", type=Path, help="keep captured traces here and use those that are there")
        parser.add_argument("--write", action="store_true", help="write the rows and the documentation page")
        return parser.parse_args()
