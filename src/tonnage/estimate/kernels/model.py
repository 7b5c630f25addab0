"""The kernel model: the roofline for every GPU, and what was learned beyond it for those that were measured."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from math import inf
from typing import Any

import numpy as np

from tonnage.estimate.kernels.constants import CLASSES, Constants, KindConstants, classes_of
from tonnage.estimate.kernels.features import FEATURES, features
from tonnage.estimate.kernels.rates import Rates
from tonnage.estimate.kernels.roofline import seconds
from tonnage.estimate.kernels.table import Floats, WorkTable
from tonnage.estimate.kernels.work import KINDS
from tonnage.estimate.plain import checked
from tonnage.estimate.trees import Trees
from tonnage.hardware import Gpu

# Kinds that share a residual model, since they share what decides about their speed.
GROUPS: Mapping[str, tuple[str, ...]] = {
    "products": ("product",),
    "convolutions": ("convolution", "convolution_data", "convolution_weight"),
    "others": tuple(kind for kind in KINDS if kind != "product" and not kind.startswith("convolution")),
}
# What was learned about convolutions on one GPU is for the most part about the shapes that cuDNN has good kernels for, on
# tensor cores of every generation: a GPU of another architecture takes over this share of it.
_BORROWED = 0.7
# Nothing that was learned may move the roofline's answer further than this (as a logarithm).
MOST_CORRECTION = 2.5


@dataclass(frozen=True, slots=True, kw_only=True)
class Residual:
    """What was learned about one GPU beyond the roofline: the logarithm of the factor, by group of kinds."""

    gpu: str
    architecture: str
    trees: Mapping[str, Trees] = field(default_factory=dict)

    def correction(self, table: WorkTable, rates: Rates, roofline_seconds: Floats) -> Floats:
        rows = features(table, rates, roofline_seconds)
        found = np.zeros(len(table))
        for group, kinds in GROUPS.items():
            chosen = np.isin(table.kind, [KINDS.index(kind) for kind in kinds])
            if group in self.trees and chosen.any():
                found[chosen] = self.trees[group].predict(rows[chosen])
        return np.clip(found, -MOST_CORRECTION, MOST_CORRECTION)


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelModel:
    """Seconds of works on any GPU."""

    constants: Constants
    residuals: tuple[Residual, ...] = ()

    def seconds(self, table: WorkTable, gpu: Gpu) -> Floats:
        rates = Rates.of(gpu)
        base = seconds(table, rates, self.constants)
        residual, is_own = self._residual(gpu)
        if residual is None:
            return base
        correction = residual.correction(table, rates, base)
        if not is_own:
            correction *= _BORROWED * _is_on_tensor_cores(table, rates)
        return np.asarray(base * np.exp(correction))

    def is_calibrated(self, gpu: Gpu) -> bool:
        return any(residual.gpu == gpu.name for residual in self.residuals)

    def _residual(self, gpu: Gpu) -> tuple[Residual | None, bool]:
        """The GPU's own, or that of another of its architecture, which runs the same kernels of the same libraries; else
        the first there is, which is not its own."""
        for residual in self.residuals:
            if residual.gpu == gpu.name:
                return residual, True
        for residual in self.residuals:
            if residual.architecture == gpu.architecture:
                return residual, True
        return next(iter(self.residuals), None), False

    def as_dict(self) -> dict[str, Any]:
        return {
            "kinds": {kind: asdict(constants) for kind, constants in self.constants.kinds.items()},
            "names": dict(self.constants.names),
            "resident": self.constants.resident,
            "residuals": [
                {
                    "gpu": residual.gpu,
                    "architecture": residual.architecture,
                    "trees": {group: trees.as_dict() for group, trees in residual.trees.items()},
                }
                for residual in self.residuals
            ],
        }

    @classmethod
    def from_dict(cls, plain: Mapping[str, Any]) -> KernelModel:
        """Raises ValueError, with what is wrong in it, where it is no such model."""
        parts = checked(plain, _Plain, "kernels")
        constants = Constants(
            kinds=parts.kinds,
            names=checked(parts.names, Mapping[str, float], "kernels.names", least=-inf),  # logarithms
            resident=parts.resident,
        )
        constants.check()
        residuals = tuple(
            Residual(
                gpu=entry.gpu,
                architecture=entry.architecture,
                trees={group: Trees.from_dict(trees, len(FEATURES)) for group, trees in entry.trees.items()},
            )
            for entry in parts.residuals
        )
        return cls(constants=constants, residuals=residuals)


@dataclass(frozen=True, slots=True)
class _PlainResidual:
    gpu: str
    architecture: str
    trees: Mapping[str, Mapping[str, Any]]


@dataclass(frozen=True, slots=True)
class _Plain:
    """A kernel model in a file."""

    kinds: Mapping[str, KindConstants]
    names: Mapping[str, Any]
    resident: float
    residuals: tuple[_PlainResidual, ...]


def _is_on_tensor_cores(table: WorkTable, rates: Rates) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    """Convolutions that tensor cores do."""
    return _TENSOR_CORE_CONVOLUTIONS[classes_of(table, rates)]


_TENSOR_CORE_CONVOLUTIONS = np.array(
    [name.startswith("convolution") and name.endswith((".tf32", ".half")) for name in CLASSES]
)
