"""How well kernel times are predicted on GPUs that the model has never seen: leave one GPU out, on public latencies.

    python benchmarks/accuracy/gpu_ops.py                        prints the table
    python benchmarks/accuracy/gpu_ops.py --operators linear,bmm only some operators
    python benchmarks/accuracy/gpu_ops.py --write                also writes the rows and the page of the documentation

For each operator and GPU: constants are fitted to all other GPUs, the left-out GPU is known by its catalogue entry alone
(`specification`), then by eight points of its own whose shapes are chosen without looking at any latency (`8 points`).
Intervals of 90 % come from nested rounds, in which another GPU is left out as well (split conformal prediction).
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from datetime import date
from functools import cached_property
from pathlib import Path

import numpy as np
from gpu_ops_data import ELEMENTWISE, FOLDER, Measured, read
from gpu_ops_fit import (
    Calibration,
    Host,
    Setting,
    calibrate,
    class_of,
    device_seconds,
    encode,
    family_weight,
    fit,
    fitted_names,
    host_of,
    informative,
    libraries_for,
    single_tiles,
    start,
    total_seconds,
    typical,
    with_known_tiles,
)

from tonnage import __version__
from tonnage.benchmark.kernel_samples import database_samples
from tonnage.benchmark.shipped import shipped_database
from tonnage.estimate.kernels.constants import CLASSES, classes_of
from tonnage.estimate.kernels.rates import Library, Rates
from tonnage.estimate.kernels.table import Floats, WorkTable
from tonnage.estimate.kernels.tiles import misalignment
from tonnage.hardware import find_gpu

RESULTS = Path(__file__).parent / "results" / "gpu-ops.json"
PAGE = Path(__file__).parents[2] / "docs" / "reference" / "accuracy-gpus.md"
OPERATORS = (
    "bmm",
    "linear",
    "conv",
    *ELEMENTWISE,
    "softmax",
    "ln",
    "bf16",
)  # bmm first: it tells the energy of an operation
CLASSES_OF_OPERATORS = {
    "linear": ("linear",), "bmm": ("bmm",), "convolution": ("conv",), "elementwise": ELEMENTWISE, "normalisation": ("softmax", "ln"),
    "linear, bf16": ("bf16",),
}  # fmt: skip
BARS = {"linear": 13, "bmm": 13, "convolution": 20, "elementwise": 12, "normalisation": 12, "linear, bf16": 12}
POINTS, COVERAGE = 8, 0.9
PRIOR = 0.04  # how strongly constants are drawn to their usual values


@dataclass(frozen=True)
class Result:
    """Errors of one operator on one left-out GPU; means of |predicted / measured - 1|."""

    operator: str
    gpu: str
    specification: float
    host_known: float
    points: float
    bias: float
    coverage: float
    points_coverage: float
    rows: int


@dataclass(frozen=True)
class Guess:
    """What is expected of a GPU before anything of it was measured."""

    setting: Setting
    host: Host
    libraries: list[Library]
    spread: Floats


class Evaluation:
    """One operator on all GPUs that have it."""

    def __init__(
        self, operator: str, rows: dict[str, Measured], energy: dict[tuple[str, ...], float], own: Measured | None
    ) -> None:
        self.operator, self.rows, self.energy, self.own = operator, rows, energy, own
        self.hosts = {gpu: host_of(measured) for gpu, measured in rows.items()}
        self._guesses: dict[tuple[str, tuple[str, ...]], Guess] = {}
        self._alone: dict[str, Setting] = {}

    @cached_property
    def known_tiles(self) -> bool:
        return self.operator in ("linear", "bmm")

    def guess(self, gpu: str, without: tuple[str, ...]) -> Guess:
        """Fitted to all GPUs but those in `without`, those of the same library counting most."""
        key = gpu, tuple(sorted(without))
        if key not in self._guesses:
            self._guesses[key] = self._fit(gpu, key[1])
        return self._guesses[key]

    def _fit(self, gpu: str, without: tuple[str, ...]) -> Guess:
        target = self.rows[gpu].rates.library
        names = [name for name in self.rows if name not in without]
        groups = [(self._training(name), self.hosts[name], family_weight(self.rows[name], target)) for name in names]
        seen = [self.rows[name].rates.library for name in names]
        if self.own is not None:
            seen.append(self.own.rates.library)
            groups.append((self.own, Host(0.0), family_weight(self.own, target)))
        begin = start(self.operator)
        if self.operator in ("linear", "conv"):
            begin = replace(begin, picojoules=self.energy.get(_chips(without), begin.picojoules))
        setting = fit(groups, begin, known_tiles=self.known_tiles, prior=PRIOR)
        if self.operator == "bmm":
            self.energy[_chips(without)] = setting.picojoules
        return Guess(
            setting,
            typical([self.hosts[name] for name in names]),
            libraries_for(target, seen, self.operator),
            self._spread(names),
        )

    def _training(self, gpu: str) -> Measured:
        rows = with_known_tiles(self.rows[gpu]) if self.known_tiles else self.rows[gpu]
        return rows.sample(700 if self.known_tiles else 400, 1)

    def alone(self, gpu: str) -> Setting:
        """Fitted to this GPU only: how much constants differ between GPUs."""
        if gpu not in self._alone:
            group = (self._training(gpu), self.hosts[gpu], 1.0)
            self._alone[gpu] = fit([group], start(self.operator), known_tiles=self.known_tiles, prior=0.02, most=12)
        return self._alone[gpu]

    def _spread(self, names: Sequence[str]) -> Floats:
        if len(names) < 2:
            return np.full(len(fitted_names(self.operator)), 0.5)
        encoded = [[encode(n, self.alone(gpu).value(n)) for n in fitted_names(self.operator)] for gpu in names]
        return 0.7 * np.clip(np.std(encoded, axis=0, ddof=1), 0.3, 1.5)

    def predict(self, rows: Measured, found: Calibration) -> Floats:
        device = device_seconds(rows, found.setting, found.libraries)
        return total_seconds(rows, device, found.host.column(rows), found.setting.host_share)

    def calibrated(self, gpu: str, guess: Guess, rows: Measured) -> tuple[Calibration, np.ndarray]:
        pool = np.arange(min(len(rows), 400))
        picked = informative(rows.take(pool), guess.setting, guess.host, guess.spread, guess.libraries, POINTS)
        hypotheses: list = [(0.0, guess.libraries)]
        if self.operator == "bmm" and self.rows[gpu].rates.library not in guess.libraries:
            hypotheses += [(2.0, [tiles]) for tiles in single_tiles()]  # eight points tell which kernels it really runs
        found = calibrate(rows.take(picked), guess.setting, guess.host, guess.spread, hypotheses)
        return found, picked

    def errors(self, gpu: str, without: tuple[str, ...], count: int) -> tuple[Measured, Floats, Floats, np.ndarray]:
        """Logarithms of predicted over measured: from the specification, and with points (which are then left out)."""
        rows, guess = self.rows[gpu].sample(count, 3), self.guess(gpu, without)
        before = np.log(self.predict(rows, Calibration(guess.setting, guess.host, guess.libraries)) / rows.seconds)
        found, picked = self.calibrated(gpu, guess, rows)
        after = np.log(self.predict(rows, found) / rows.seconds)
        return rows, before, after, np.setdiff1d(np.arange(len(rows)), picked)

    def result(self, gpu: str, count: int) -> Result:
        rows, before, after, rest = self.errors(gpu, (gpu,), count)
        nested = [self.errors(other, (gpu, other), 300) for other in self.rows if other != gpu]
        known = self.predict(
            rows, Calibration(self.guess(gpu, (gpu,)).setting, self.hosts[gpu], self.guess(gpu, (gpu,)).libraries)
        )
        width = _quantile([np.abs(entry[1]) for entry in nested])
        points_width = _quantile([np.abs(entry[2][entry[3]]) for entry in nested])
        return Result(
            self.operator, gpu, _mean_error(before), _mean_error(np.log(known / rows.seconds)), _mean_error(after[rest]), float(before.mean()),
            float(np.mean(np.abs(before) <= width)), float(np.mean(np.abs(after[rest]) <= points_width)), len(rows),
        )  # fmt: skip


def _chips(names: tuple[str, ...]) -> tuple[str, ...]:
    """Convolutions were measured on the A100 with 80 GB, products on the one with 40: the same chip, left out together."""
    return tuple(sorted(name.replace("80GB", "40GB") for name in names))


def _mean_error(logarithms: Floats) -> float:
    return float(np.mean(np.abs(np.exp(logarithms) - 1)))


def _quantile(parts: Sequence[Floats]) -> float:
    """Each GPU counts the same, however many rows it has."""
    values = np.concatenate(parts)
    weights = np.concatenate([np.full(len(part), 1 / len(part)) for part in parts])
    order = np.argsort(values)
    share = np.cumsum(weights[order]) / weights.sum()
    return float(values[order][min(np.searchsorted(share, COVERAGE), len(values) - 1)])


def own_rows(operator: str, samples: list) -> Measured | None:
    """Our H200 rows of the same class: one more GPU to learn from, never one to be asked about."""
    name = class_of(operator)
    if operator != "bf16":
        return None
    gpu = find_gpu("H200")
    rates = Rates.of(gpu)
    found = [sample for sample in samples if sample.work.kind == "product" and sample.seconds > 4e-6]
    table = WorkTable.of([sample.work for sample in found], [sample.footprint for sample in found])
    chosen = (classes_of(table, rates) == CLASSES.index(name)) & (misalignment(table) == 0)
    rows = Measured(
        operator,
        gpu,
        rates,
        table,
        np.array([sample.seconds for sample in found]),
        np.zeros(len(found)),
        None,
        has_host=False,
    )
    return rows.take(np.flatnonzero(chosen)).sample(700, 1)


# -- output ------------------------------------------------------------------------------------------------------------------


def table(results: Sequence[Result]) -> list[tuple[str, str, float, float, float, float, float]]:
    """Rows by class and GPU, then the mean of each class: GPUs count the same, operators of a class too."""
    lines = []
    for name, operators in CLASSES_OF_OPERATORS.items():
        mine = [result for result in results if result.operator in operators]
        by_gpu = [[result for result in mine if result.gpu == gpu] for gpu in sorted({result.gpu for result in mine})]
        means = [
            [
                float(np.mean([getattr(r, f) for r in group]))
                for f in ("specification", "host_known", "points", "coverage", "points_coverage")
            ]
            for group in by_gpu
        ]
        lines += [(name, group[0].gpu, *values) for group, values in zip(by_gpu, means, strict=True)]
        if means:
            lines.append((name, "mean", *(float(v) for v in np.mean(means, axis=0))))
    return lines


def markdown(results: Sequence[Result]) -> str:
    head = (
        "# Accuracy: GPUs that were never measured\n\n"
        f"Made by `python benchmarks/accuracy/gpu_ops.py --write` on {date.today()} with Tonnage {__version__}, from public latencies of operators (sitar-lab/NeuSight, MIT; "
        "ai-dynamo/aiconfigurator, Apache-2.0). Each GPU is left out in turn: its rows were not used to fit the constants with which it is predicted. "
        "Errors are means of |predicted / measured - 1| in per cent. *Specification*: nothing but the catalogue entry is known. *Host known*: the same, with the launch time of the machine "
        "that the GPU sat in, which no data sheet tells. *8 points*: after eight calls of the operator on that GPU, whose shapes were chosen without looking at latencies. *Inside*: share of rows inside the interval of 90 %, "
        "from nested rounds. Our own H200 rows are one more GPU to learn from for bf16; the H200 has the H100's chip with other memory, so the H100 is no stranger there. The kinds of memory (share of the bandwidth that a stream reaches) and the "
        "energy of a process node are tables chosen with all GPUs in view, and so were the form of the formulas and a few settings of the fit (where it begins, how strongly it is drawn there, how much "
        "other generations count): figures for a GPU of a new kind will be somewhat worse.\n\n"
        "| class | left-out GPU | specification | bar | host known | 8 points | inside 90 % | inside 90 %, 8 points |\n| --- | --- | --- | --- | --- | --- | --- | --- |\n"
    )
    lines = []
    for name, gpu, specification, host, points, inside, inside_points in table(results):
        bar = f"<= {BARS[name]}" if gpu == "mean" else ""
        cells = [
            f"{100 * specification:.1f}",
            bar,
            f"{100 * host:.1f}",
            f"{100 * points:.1f}",
            f"{100 * inside:.0f}",
            f"{100 * inside_points:.0f}",
        ]
        strong = "**" if gpu == "mean" else ""
        lines.append(f"| {strong}{name}{strong} | {strong}{gpu}{strong} | " + " | ".join(cells) + " |")
    return head + "\n".join(lines) + "\n\n" + _NOTES


_NOTES = """## What stands in the way

- **Hosts.** The P100's machine launched slowly, and no data sheet says so: this is most of its error in elementwise operators and convolutions.
- **Kernel choice.** The A100 runs batched fp32 products with one tile only (128 x 128), which no other generation here does. Eight points tell.
- **Clocks.** The P4 and the T4 are held back by their power limit, and how far depends on what ran before.
- **Pascal's linear layers.** Short pieces of long rows waste the P4's small bandwidth, and its library often takes the slower of its tiles.
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--operators", default=",".join(OPERATORS))
    parser.add_argument("--rows", type=int, default=1200, help="of each operator and GPU to predict")
    parser.add_argument("--data", type=Path, default=FOLDER)
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args()
    if not options.data.exists():
        print(f"skipped: the public latencies are not in {options.data}")
        return
    named = options.operators.split(",")
    wanted = [
        operator for operator in OPERATORS if operator in named or (operator == "bmm" and {"linear", "conv"} & {*named})
    ]
    results = evaluate(options.data, wanted, options.rows)
    print(markdown(results))
    if options.write:
        RESULTS.write_text(json.dumps([asdict(result) for result in results], indent=1) + "\n")
        PAGE.write_text(markdown(results))


def evaluate(folder: Path, operators: Sequence[str], count: int) -> list[Result]:
    with shipped_database() as database:
        samples = list(database_samples(database))
    rows, energy, results = read(folder), {}, []
    for operator in operators:
        began = time.monotonic()
        evaluation = Evaluation(operator, rows[operator], energy, own_rows(operator, samples))
        for gpu in rows[operator]:
            results.append(evaluation.result(gpu, count))
            last = results[-1]
            print(
                f"{operator:8s} {gpu:16s} {last.specification:6.1%} host known {last.host_known:6.1%} 8 points {last.points:6.1%} inside {last.coverage:4.0%} {last.points_coverage:4.0%}",
                file=sys.stderr,
                flush=True,
            )
        print(f"{operator} {time.monotonic() - began:.0f} s", file=sys.stderr, flush=True)
    return results


if __name__ == "__main__":
    main()
