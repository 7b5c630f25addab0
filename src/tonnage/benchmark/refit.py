"""Fits a time model to the user's database and finds out whether it should take the place of the one in use."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import date

from tonnage.benchmark.cross_validation import CrossValidation, cross_validate, folds_of
from tonnage.benchmark.fit_copies import fit_copies
from tonnage.benchmark.fit_kernels import KindError, leave_gpus_out
from tonnage.benchmark.fit_rows import FitRows, read_rows
from tonnage.benchmark.fit_spreads import spreads_of
from tonnage.benchmark.fitting import fit_parts, is_known, operator_seconds
from tonnage.benchmark.measured_operators import measured_operators
from tonnage.benchmark.seen import Seen
from tonnage.benchmark.time_models import shipped_model
from tonnage.benchmark.verdict import Verdict, give_verdict
from tonnage.estimate.time_model import Spreads, TimeModel
from tonnage.hardware import find_gpu
from tonnage.store.database import Database

Progress = Callable[[str], None]


def refit(
    database: Database,
    current: TimeModel,
    wanted: Callable[[Verdict], bool] = lambda verdict: verdict.is_better,
    progress: Progress = lambda text: None,
) -> tuple[Verdict, TimeModel | None]:
    """The verdict on the fit, by cross-validation, and where that is wanted the model that is fitted to all rows."""
    rows = read_rows(database, progress)
    folds, gpus = folds_of(rows), {sample.gpu for sample in rows.all_kernels}
    say = _Counted(progress, len(folds) + (len(gpus) if len(gpus) > 1 else 0) + 1)
    copies = fit_copies(rows.copies, current.copies)  # no sample workload has a say in these
    validation = cross_validate(rows, folds, replace(_unbiased(current, rows), copies=copies), say)
    left_out = _left_out(rows, say) if len(gpus) > 1 else {}
    verdict = give_verdict(rows, validation, left_out, current)
    if not wanted(verdict):
        return verdict, None
    start = replace(current, copies=copies, measured=_measured(database, current))
    return verdict, _fit_to_all(rows, validation, verdict, start, say)


class _Counted:
    """Tells what is being fitted, and the how manieth of all fits that is."""

    def __init__(self, progress: Progress, total: int) -> None:
        self._progress, self._total = progress, total
        self._started: list[str] = []

    def __call__(self, text: str) -> None:
        what = text.partition(":")[0]
        if what not in self._started:
            self._started.append(what)
        self._progress(f"fit {len(self._started)} of {self._total}, {text}")


def _unbiased(current: TimeModel, rows: FitRows) -> TimeModel:
    """Where fits start that are judged: a model that knows the judges already would make them look good."""
    steps = {(step.gpu.name, step.name) for step in rows.steps}
    for model in (current, shipped_model()):
        seen = Seen.by(model.fitted)
        if not any(step in seen for step in steps):
            return model
    return TimeModel()


def _left_out(rows: FitRows, say: Progress) -> Mapping[str, KindError]:
    return leave_gpus_out(rows.all_kernels, progress=lambda gpu: say(f"without the {gpu}: fitting kernels"))


def _measured(database: Database, current: TimeModel) -> dict[str, dict[str, float]]:
    """Seconds of operators that were measured, added to those that the model in use knows."""
    own = {find_gpu(gpu).name: known for gpu, known in measured_operators(database).items() if is_known(gpu)}
    return {gpu: {**current.measured.get(gpu, {}), **own.get(gpu, {})} for gpu in sorted({*current.measured, *own})}


def _fit_to_all(
    rows: FitRows, validation: CrossValidation, verdict: Verdict, start: TimeModel, say: Progress
) -> TimeModel:
    operators = operator_seconds(rows.costs)
    model = fit_parts(rows.all_kernels, rows.steps, operators, start, lambda text: say(f"with everything: {text}"))
    fitted = {
        "date": date.today().isoformat(), "gpus": sorted({*rows.gpus, *rows.shipped_gpus}),
        "kernels": len(rows.all_kernels), "steps": len(rows.steps), "errors": dict(verdict.judgement.new),
        "seen": (Seen.by(start.fitted) | rows.seen).as_dict(),
    }  # fmt: skip
    return replace(model, fitted=fitted, spreads=_spreads(validation, model))


def _spreads(validation: CrossValidation, model: TimeModel) -> Spreads:
    """From steps that were held back, on GPUs that count as calibrated. Nothing is known better from a data sheet."""
    steps = [held for held in validation.steps if model.kernels.is_calibrated(held.step.gpu)]
    spreads = spreads_of([held.errors for held in steps], model.spreads)
    known, guessed = spreads.factors["calibrated"], spreads.factors.get("specification", {})
    wider = {name: max(factor, known.get(name, factor)) for name, factor in guessed.items()}
    return replace(spreads, factors={**spreads.factors, "specification": wider})
