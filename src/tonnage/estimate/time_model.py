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
from tonnage.estimate.kernels.table import ARITHMETICS
from tonnage.estimate.plain import checked

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
    fitted: Mapping[str, Any] = field(default_factory=dict)  # date, rows, GPUs, errors; `seen`: see seen.py

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
        """Raises ValueError, with what is wrong in it, where it is no such model."""
        if not isinstance(plain, Mapping) or plain.get("format") != "tonnage-time-model":
            raise ValueError("it does not say that it is one")
        if plain.get("version") != VERSION:
            raise ValueError(f"its version is {plain.get('version')!r:.40}, not {VERSION}")
        missing = sorted(TimeModel.__dataclass_fields__.keys() - plain.keys())
        if missing:
            raise ValueError(f"{missing[0]} is missing")
        model = cls(
            kernels=KernelModel.from_dict(plain["kernels"]),
            host=checked(plain["host"], HostModel, "host"),
            copies=checked(plain["copies"], CopyModel, "copies"),
            energy=checked(plain["energy"], EnergyModel, "energy"),
            spreads=checked(plain["spreads"], Spreads, "spreads"),
            measured=checked(plain["measured"], Mapping[str, Mapping[str, float]], "measured"),
            fitted=checked(plain["fitted"], Mapping[str, Any], "fitted"),
        )
        model._check()
        return model

    def _check(self) -> None:
        """Numbers by which others are divided, and tables that are looked up."""
        makes_sense = {
            "host.speed": self.host.speed > 0,
            "copies.link_share": self.copies.link_share > 0,
            "copies.pageable_h2d": _is_table(self.copies.pageable_h2d),
            "copies.pageable_d2h": _is_table(self.copies.pageable_d2h),
            "energy.picojoules_operation": len(self.energy.picojoules_operation) >= len(ARITHMETICS),
            "spreads.coverage": 0 < self.spreads.coverage < 1,
        }
        for name, is_so in makes_sense.items():
            if not is_so:
                raise ValueError(f"{name} makes no sense")


def _is_table(steps: tuple[tuple[float, float], ...]) -> bool:
    """Sizes that grow, each with a rate."""
    sizes = [size for size, _ in steps]
    return len(steps) > 0 and sizes == sorted(set(sizes)) and min(min(step) for step in steps) > 0
