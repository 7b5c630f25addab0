"""Everything that is needed to time a step, as one value that `tonnage fit` makes and a small file holds."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from tonnage.estimate.copies import CopyModel
from tonnage.estimate.energy import EnergyModel
from tonnage.estimate.estimate import Interval
from tonnage.estimate.host_time import HostModel
from tonnage.estimate.kernels.constants import Constants
from tonnage.estimate.kernels.model import KernelModel

VERSION = 1
# Bounds for a quantity that nobody has measured often enough: a factor of three either way.
_UNKNOWN_SPREAD = math.log(3)


@dataclass(frozen=True, slots=True, kw_only=True)
class Spreads:
    """How far measured values were from estimates of programs that the fit had not seen: logarithms of the factor that
    holds nine of ten, by basis and quantity (split conformal prediction)."""

    coverage: float = 0.9
    factors: Mapping[str, Mapping[str, float]] = field(default_factory=dict)

    def around(self, value: float, basis: str, quantity: str) -> Interval:
        spread = self.factors.get(basis, {}).get(quantity, _UNKNOWN_SPREAD)
        return Interval(value, value * math.exp(-spread), value * math.exp(spread))


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeModel:
    """Models of kernels, host, copies and energy, and what they were fitted to."""

    kernels: KernelModel = field(default_factory=lambda: KernelModel(constants=Constants()))
    host: HostModel = field(default_factory=HostModel)
    copies: CopyModel = field(default_factory=CopyModel)
    energy: EnergyModel = field(default_factory=EnergyModel)
    spreads: Spreads = field(default_factory=Spreads)
    measured: Mapping[str, Mapping[str, float]] = field(default_factory=dict)  # by GPU and operator, see measured.py
    fitted: Mapping[str, Any] = field(default_factory=dict)  # date, rows, GPUs, errors: for people

    def as_dict(self) -> dict[str, Any]:
        return {
            "format": "tonnage-time-model",
            "version": VERSION,
            "fitted": dict(self.fitted),
            "kernels": self.kernels.as_dict(),
            "host": asdict(self.host),
            "copies": asdict(self.copies),
            "energy": asdict(self.energy),
            "measured": {gpu: dict(known) for gpu, known in self.measured.items()},
            "spreads": {
                "coverage": self.spreads.coverage,
                "factors": {basis: dict(factors) for basis, factors in self.spreads.factors.items()},
            },
        }

    @classmethod
    def from_dict(cls, plain: Mapping[str, Any]) -> TimeModel:
        """Raises ValueError, TypeError or LookupError where it is no such model."""
        if plain.get("format") != "tonnage-time-model" or plain.get("version") != VERSION:
            raise ValueError("it is not a time model of this version")
        return cls(
            kernels=KernelModel.from_dict(plain["kernels"]),
            host=HostModel(**plain["host"]),
            copies=CopyModel(**{name: _frozen(value) for name, value in plain["copies"].items()}),
            energy=EnergyModel(**{name: _frozen(value) for name, value in plain["energy"].items()}),
            spreads=Spreads(**plain["spreads"]),
            measured=plain["measured"],
            fitted=plain["fitted"],
        )


def _frozen(value: Any) -> Any:
    return tuple(_frozen(item) for item in value) if isinstance(value, list) else value
