"""Whether a new time model takes the place of the one in use, judged on the same steps of the user's database."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from tonnage.benchmark.cross_validation import CrossValidation, HeldStep, outcomes_of
from tonnage.benchmark.fit_kernels import KindError, errors_by_kind, predict_samples
from tonnage.benchmark.fit_rows import FitRows
from tonnage.benchmark.fit_spreads import QUANTITIES, estimated_quantities
from tonnage.benchmark.kernel_samples import Sample
from tonnage.benchmark.scores import Score, scores_of
from tonnage.benchmark.seen import Seen
from tonnage.estimate.kernels.table import Floats
from tonnage.estimate.step_time import time_step
from tonnage.estimate.time_model import TimeModel

LEAST_UNSEEN = 20  # steps, to judge on those alone that the old model was not fitted to
_NOISE = 1.1  # errors of kernels that differ by less say nothing
KERNELS = "kernel_seconds"
_EXACT = 1e-6  # an error below this is none


@dataclass(frozen=True, slots=True, kw_only=True)
class Judgement:
    """Errors of the old and of the new model on the same steps, by quantity: medians over the steps."""

    steps: int
    seen: int  # so many of them the old model was fitted to
    old: Mapping[str, float]
    new: Mapping[str, float]

    @property
    def ratio(self) -> float:
        """Geometric mean of new over old errors of all quantities of a step: below 1 the new model is better."""
        both = [name for name in QUANTITIES if name in self.old and name in self.new]
        ratios = [max(self.new[name], _EXACT) / max(self.old[name], _EXACT) for name in both]
        return float(np.exp(np.mean(np.log(ratios)))) if ratios else 1.0

    @property
    def is_better(self) -> bool:
        return self.ratio < 1 and self.new.get(KERNELS, 0.0) <= _NOISE * self.old.get(KERNELS, 0.0)

    @property
    def basis(self) -> str:
        """One sentence: how fair this is."""
        if not self.seen:
            return f"judged on {self.steps} steps that neither model was fitted to"
        return (
            f"judged on {self.steps} steps; the model in use was fitted to {self.seen} of them, which favours it, "
            "the new one was not"
        )

    @property
    def reason(self) -> str:
        """One sentence: why the new model is better, or is not."""
        change = f"its errors of steps are {self.ratio:.3g} times those of the model in use"
        if self.is_better:
            return f"the new model is better: {change}"
        kernels = ", but its errors of kernels are larger" if self.ratio < 1 else ""
        return f"the new model is not better: {change}{kernels}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """All that `tonnage fit` found out about its own errors."""

    gpus: tuple[str, ...]
    shipped_gpus: tuple[str, ...]  # whose kernels come with the package
    measurements: int
    steps: int
    held_back: tuple[str, ...]  # what was left out, one after the other
    scores: tuple[Score, ...]  # of the new model on what was left out
    kinds: tuple[KindError, ...]  # likewise, of its kernels
    gpus_left_out: Mapping[str, KindError]
    judgement: Judgement

    @property
    def is_better(self) -> bool:
        return self.judgement.is_better

    def as_dict(self) -> dict[str, Any]:
        told = {name: getattr(self.judgement, name) for name in ("ratio", "basis", "reason")}
        return {
            **asdict(self),
            "scores": [{k: v for k, v in score.as_dict().items() if k != "model"} for score in self.scores],
            "judgement": {**asdict(self.judgement), **told},
            "is_better": self.is_better,
        }


def give_verdict(
    rows: FitRows, validation: CrossValidation, gpus_left_out: Mapping[str, KindError], current: TimeModel
) -> Verdict:
    outcomes = outcomes_of(validation.steps, current.spreads.coverage)
    return Verdict(
        gpus=rows.gpus,
        shipped_gpus=rows.shipped_gpus,
        measurements=len(rows.keys),
        steps=len(rows.steps),
        held_back=tuple(fold.name for fold in validation.folds),
        scores=tuple(scores_of("new", outcomes, QUANTITIES)),
        kinds=tuple(errors_by_kind(validation.kernels, validation.kernel_seconds)),
        gpus_left_out=gpus_left_out,
        judgement=judge(validation, current),
    )


def judge(validation: CrossValidation, current: TimeModel) -> Judgement:
    """On steps that neither model has seen, or on all if those are too few. Neither uses operators with measured shapes:
    the old model may have measured just these."""
    seen, old = Seen.by(current.fitted), replace(current, measured={})
    unseen = [held for held in validation.steps if (held.step.gpu.name, held.step.name) not in seen]
    judges = unseen if len(unseen) >= LEAST_UNSEEN else validation.steps
    before = [
        replace(held, estimated=estimated_quantities(time_step(held.step.step, held.step.gpu, old))) for held in judges
    ]
    chosen = _kernels_of(validation, judges)
    kernels = [validation.kernels[index] for index in chosen]
    return Judgement(
        steps=len(judges),
        seen=0 if judges is unseen else len(judges) - len(unseen),
        old=_medians(before) | _kernel_error(kernels, predict_samples(old.kernels, kernels)),
        new=_medians(judges) | _kernel_error(kernels, validation.kernel_seconds[chosen]),
    )


def _kernels_of(validation: CrossValidation, judges: Sequence[HeldStep]) -> list[int]:
    """Places of the kernels that the judging steps ran."""
    keys = {(held.step.gpu.name, held.step.name) for held in judges}
    return [index for index, sample in enumerate(validation.kernels) if (sample.gpu, sample.key) in keys]


def _kernel_error(kernels: Sequence[Sample], predicted: Floats) -> dict[str, float]:
    """Within a step kernels count by how long they take; all steps count alike, however long."""
    wrong: dict[tuple[str, str], float] = {}
    total: dict[tuple[str, str], float] = {}
    for sample, seconds in zip(kernels, predicted.tolist(), strict=True):
        step = (sample.gpu, sample.key)
        wrong[step] = wrong.get(step, 0.0) + abs(seconds - sample.seconds)
        total[step] = total.get(step, 0.0) + sample.seconds
    return {KERNELS: float(np.median([wrong[step] / total[step] for step in total]))} if total else {}


def _medians(steps: Sequence[HeldStep]) -> dict[str, float]:
    found: dict[str, list[float]] = {}
    for held in steps:
        for name, truth in held.measured.items():
            found.setdefault(name, []).append(abs(held.estimated[name] / truth - 1))
    return {name: float(np.median(found[name])) for name in QUANTITIES if name in found}
