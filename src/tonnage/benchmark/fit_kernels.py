"""Fits the kernel model to samples of the benchmark database, and says how wrong it is on what it has not seen."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from tonnage.benchmark.constant_fit import Rows, fit_constants
from tonnage.benchmark.kernel_samples import Sample
from tonnage.benchmark.residual_fit import fit_residual
from tonnage.errors import NotFound, TonnageError
from tonnage.estimate.kernels.constants import Constants
from tonnage.estimate.kernels.model import KernelModel
from tonnage.estimate.kernels.rates import Rates
from tonnage.estimate.kernels.table import Floats
from tonnage.estimate.kernels.work import KINDS
from tonnage.hardware import Gpu, find_gpu

LEAST_SAMPLES = 200  # on all GPUs together
OWN_TREES_SAMPLES = 1000  # a GPU with as many samples gets residual trees
LONG_SECONDS = 10e-6  # errors are reported for kernels that are longer: shorter ones are hidden by the host
ALL = "all"  # kinds
Progress = Callable[[str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class KindError:
    """How far predictions were from measured seconds, for one kind of kernels."""

    kind: str  # "all" for all of them
    rows: int
    median: float
    time_weighted: float
    bias: float  # positive: predictions are too long


def fit_kernels(samples: Iterable[Sample], start: Constants | None = None) -> KernelModel:
    """Constants for every GPU, and residuals for those with many samples of their own."""
    by_gpu = rows_by_gpu(samples)
    _require(sum(len(rows.table) for rows in by_gpu.values()))
    constants = fit_constants(list(by_gpu.values()), start)
    residuals = [
        fit_residual(rows, find_gpu(name), constants)
        for name, rows in by_gpu.items()
        if len(rows.table) >= OWN_TREES_SAMPLES
    ]
    return KernelModel(constants=constants, residuals=tuple(residuals))


def rows_by_gpu(samples: Iterable[Sample]) -> dict[str, Rows]:
    """By the catalogue's name; samples of GPUs that the catalogue does not know are left out."""
    grouped: dict[str, list[Sample]] = {}
    for sample in samples:
        grouped.setdefault(sample.gpu, []).append(sample)
    return {name: Rows.of(group, Rates.of(find_gpu(name))) for name, group in grouped.items() if _is_known(name)}


def _is_known(name: str) -> bool:
    try:
        return bool(find_gpu(name))
    except NotFound:
        return False


def _require(found: int) -> None:
    if found < LEAST_SAMPLES:
        raise TonnageError(
            f"{found} kernels were measured; a kernel model needs at least {LEAST_SAMPLES}",
            "measure more: tonnage bench run",
        )


# -- cross-validation -----------------------------------------------------------------------------------------------------


def cross_validate(samples: Sequence[Sample], folds: int = 5, start: Constants | None = None) -> list[KindError]:
    """Errors on measurements that the fit had not seen: whole measurements are left out, never single kernels."""
    fold = _folds([sample.key for sample in samples], folds)
    predicted = np.zeros(len(samples))
    for number in range(folds):
        held = np.flatnonzero(fold == number).tolist()
        model = fit_kernels((s for s, f in zip(samples, fold, strict=True) if f != number), start)
        predicted[held] = predict_samples(model, [samples[index] for index in held])
    return errors_by_kind(samples, predicted)


def leave_gpus_out(
    samples: Sequence[Sample], start: Constants | None = None, progress: Progress = lambda text: None
) -> Mapping[str, KindError]:
    """For each GPU the error of a model that was fitted to all others, where those have enough samples."""
    names = sorted({sample.gpu for sample in samples})
    if len(names) < 2:
        raise TonnageError(f"leaving a GPU out needs samples of at least 2 GPUs, there are {len(names)}")
    found = {}
    for name in names:
        progress(name)
        own = [sample for sample in samples if sample.gpu == name]
        others = [sample for sample in samples if sample.gpu != name]
        if len(others) >= LEAST_SAMPLES:
            found[name] = error_of_all(own, predict_samples(fit_kernels(others, start), own))
    return {name: error for name, error in found.items() if error is not None}


def _folds(keys: Sequence[str], folds: int) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    distinct = sorted(set(keys))
    if len(distinct) < folds:
        raise TonnageError(f"cross-validation needs at least {folds} measurements, there are {len(distinct)}")
    order = np.random.default_rng(0).permutation(len(distinct))
    number = {distinct[index]: place % folds for place, index in enumerate(order)}
    return np.array([number[key] for key in keys], dtype=np.int64)


def predict_samples(model: KernelModel, samples: Sequence[Sample]) -> Floats:
    predicted = np.zeros(len(samples))
    names = np.array([sample.gpu for sample in samples])
    for name in sorted(set(names)):
        chosen = np.flatnonzero(names == name).tolist()
        gpu = find_gpu(str(name))
        rows = Rows.of([samples[index] for index in chosen], Rates.of(gpu))
        predicted[chosen] = model.seconds(rows.table, gpu)
    return predicted


def error_of_all(samples: Sequence[Sample], predicted: Floats) -> KindError | None:
    """Over all kinds; None if no kernel is long enough to matter."""
    measured = np.array([sample.seconds for sample in samples])
    chosen = measured > LONG_SECONDS
    return _error(ALL, predicted[chosen] / measured[chosen] - 1, measured[chosen]) if chosen.any() else None


def errors_by_kind(samples: Sequence[Sample], predicted: Floats) -> list[KindError]:
    """For kernels that are long enough to matter."""
    measured = np.array([sample.seconds for sample in samples])
    kinds = np.array([sample.work.kind for sample in samples])
    found = []
    for kind in KINDS:
        chosen = (kinds == kind) & (measured > LONG_SECONDS)
        if chosen.any():
            found.append(_error(kind, predicted[chosen] / measured[chosen] - 1, measured[chosen]))
    return found


def _error(kind: str, error: Floats, measured: Floats) -> KindError:
    total = float(measured.sum())
    return KindError(
        kind=kind, rows=len(error), median=float(np.median(np.abs(error))),
        time_weighted=float((measured * np.abs(error)).sum()) / total, bias=float((measured * error).sum()) / total,
    )  # fmt: skip


# -- a GPU with few samples of its own ------------------------------------------------------------------------------------


def calibrate(model: KernelModel, samples: Sequence[Sample], gpu: Gpu, **options: float) -> KernelModel:
    """The model for one GPU after a few of its own samples: constants move as far as the samples justify."""
    from tonnage.benchmark.calibration import calibrated_constants

    constants = calibrated_constants(model.constants, Rows.of(samples, Rates.of(gpu)), **options)
    return replace(model, constants=constants)
