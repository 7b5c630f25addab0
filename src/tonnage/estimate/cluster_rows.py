"""The measured rows that a cluster regression refers to, as columns: conditions, variables and targets."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from tonnage.errors import InvalidFile, UsageError
from tonnage.estimate.cluster_features import VARIABLES
from tonnage.estimate.cluster_fit import Array, Flags

SECONDS = ("step_seconds", "forward_seconds", "backward_seconds", "optimizer_seconds")
BYTES = ("allocated_bytes", "reserved_bytes", "device_bytes")
TARGETS = (*SECONDS, *BYTES, "energy_joules_step", "power_watts")
_LABELS = ("family", "kind", "mode", "precision", "gpu")


@dataclass(frozen=True, eq=False, kw_only=True)
class Rows:
    """One entry of each column for each measurement; a target that was not measured is NaN."""

    labels: Mapping[str, tuple[str, ...]]  # family, kind of network, mode, precision, gpu
    variables: Array  # rows x VARIABLES
    targets: Mapping[str, Array]
    is_host_bound: Flags

    def __post_init__(self) -> None:
        if not np.isfinite(self.variables).all() or (self.variables < 0).any():
            raise UsageError("variables of measured rows must be numbers that are not negative")
        for name, values in self.targets.items():
            if (values <= 0).any() or np.isinf(values).any():
                raise UsageError(f"{name} of measured rows must be positive")

    def __len__(self) -> int:
        return len(self.variables)

    def column(self, label: str) -> npt.NDArray[np.str_]:
        return np.array(self.labels[label], dtype=np.str_)

    def matrix(self, names: Sequence[str]) -> Array:
        return self.variables[:, [VARIABLES.index(name) for name in names]]

    def take(self, indices: npt.NDArray[np.intp]) -> Rows:
        """Some of the rows."""
        return Rows(
            labels={label: tuple(values[i] for i in indices.tolist()) for label, values in self.labels.items()},
            variables=self.variables[indices],
            targets={name: values[indices] for name, values in self.targets.items()},
            is_host_bound=self.is_host_bound[indices],
        )

    def as_dict(self) -> dict[str, Any]:
        """Plain JSON; six digits are more than any of it was measured with."""
        return {
            "labels": {label: list(values) for label, values in self.labels.items()},
            "variables": {name: _short(self.variables[:, i]) for i, name in enumerate(VARIABLES)},
            "targets": {name: _short(values) for name, values in self.targets.items()},
            "is_host_bound": [int(flag) for flag in self.is_host_bound],
        }

    @classmethod
    def from_dict(cls, plain: Mapping[str, Any]) -> Rows:
        try:
            return cls(
                labels={label: tuple(plain["labels"][label]) for label in _LABELS},
                variables=np.stack([_numbers(plain["variables"][name]) for name in VARIABLES], axis=1),
                targets={name: _numbers(plain["targets"][name]) for name in TARGETS},
                is_host_bound=np.array(plain["is_host_bound"], dtype=bool),
            )
        except (KeyError, ValueError, TypeError) as error:
            raise InvalidFile(f"this is not a cluster model of this version: {error}") from None


def _short(values: Array) -> list[float | None]:
    return [float(f"{value:.6g}") if np.isfinite(value) else None for value in values.tolist()]


def _numbers(values: Sequence[float | None]) -> Array:
    return np.array([np.nan if value is None else value for value in values], dtype=np.float64)
