"""Fits a time model to the user's database and decides whether it takes the place of the one in use."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import date
from typing import Any

import numpy as np

from tonnage.benchmark.fit_copies import read_copies
from tonnage.benchmark.fit_kernels import KindError, errors_by_kind, predict_samples
from tonnage.benchmark.fit_spreads import spread_errors
from tonnage.benchmark.fitting import fit_time_model, read_kernels, read_operator_costs, read_steps
from tonnage.benchmark.kernel_samples import Sample
from tonnage.benchmark.measured_operators import measured_operators
from tonnage.benchmark.step_samples import StepSample
from tonnage.errors import TonnageError
from tonnage.estimate.time_model import TimeModel
from tonnage.store.database import Database

HELD_BACK = 5  # every fifth measurement judges, the others teach
_LEAST_MEASUREMENTS = 20
Progress = Callable[[str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """Errors of the old and the new model on measurements that the new one was not fitted to."""

    gpus: tuple[str, ...]
    measurements: int
    held_back: int
    old: Mapping[str, float]  # median error by quantity
    new: Mapping[str, float]
    kinds: tuple[KindError, ...]  # of the new model's kernels
    is_better: bool

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


def refit(database: Database, current: TimeModel, progress: Progress = lambda text: None) -> tuple[TimeModel, Verdict]:
    """The new model, fitted to all rows, and the verdict on one that was fitted without those that judge it."""
    progress("reading the database")
    kernels, steps, operators = read_kernels(database), read_steps(database), read_operator_costs(database)
    keys = sorted({sample.key for sample in kernels})
    if len(keys) < _LEAST_MEASUREMENTS:
        raise TonnageError(
            f"{database.name} holds {len(keys)} measurements with kernels of GPUs in the catalogue; "
            f"a fit needs at least {_LEAST_MEASUREMENTS}",
            "measure more: tonnage bench run",
        )
    judges = set(keys[::HELD_BACK])
    taught = fit_time_model(
        [sample for sample in kernels if sample.key not in judges],
        [step for step in steps if step.name not in judges],
        operators, current, fitted={}, progress=progress,
    )  # fmt: skip
    held_kernels = [sample for sample in kernels if sample.key in judges]
    held_steps = [step for step in steps if step.name in judges]
    verdict = _verdict(kernels, judges, held_kernels, held_steps, replace(current, measured={}), taught)
    progress("fitting to everything")
    fitted = {
        "date": date.today().isoformat(), "gpus": list(verdict.gpus), "kernels": len(kernels), "steps": len(steps),
        "errors": dict(verdict.new),
    }  # fmt: skip
    measured = {**current.measured, **measured_operators(database)}
    copies = read_copies(database)
    model = fit_time_model(kernels, steps, operators, current, fitted=fitted, measured=measured, copies=copies)
    return model, verdict


def _verdict(
    kernels: Sequence[Sample], judges: set[str], held_kernels: Sequence[Sample], held_steps: Sequence[StepSample],
    current: TimeModel, taught: TimeModel,
) -> Verdict:  # fmt: skip
    old, new = (_errors(held_kernels, held_steps, model) for model in (current, taught))
    telling = "step_seconds" if "step_seconds" in new else "kernel_seconds"
    return Verdict(
        gpus=tuple(sorted({sample.gpu for sample in kernels})),
        measurements=len({sample.key for sample in kernels}),
        held_back=len(judges),
        old=old,
        new=new,
        kinds=tuple(errors_by_kind(held_kernels, predict_samples(taught.kernels, held_kernels))),
        is_better=new[telling] < old[telling],
    )


def _errors(kernels: Sequence[Sample], steps: Sequence[StepSample], model: TimeModel) -> dict[str, float]:
    """Median relative errors; kernels count by how long they take."""
    measured = np.array([sample.seconds for sample in kernels])
    wrong = np.abs(predict_samples(model.kernels, kernels) - measured)
    found = {"kernel_seconds": float(wrong.sum() / measured.sum())}
    for name, errors in spread_errors(steps, model).items():
        if len(errors):
            found[name] = float(np.median(np.expm1(errors)))
    return found
