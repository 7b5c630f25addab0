"""Packages that only fitting needs, imported when it does."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tonnage.errors import MissingDependency
from tonnage.estimate.timeline import Floats


def _missing(error: ModuleNotFoundError) -> MissingDependency:
    return MissingDependency(f"fitting needs the package {error.name}", "pip install 'tonnage[fit]'")


def least_squares(residuals: Callable[[Floats], Floats], start: Floats, **options: Any) -> Floats:
    """scipy's robust least squares; the best point."""
    try:
        from scipy import optimize
    except ModuleNotFoundError as error:
        raise _missing(error) from None
    return np.asarray(optimize.least_squares(residuals, start, **options).x)


def nonnegative(features: Floats, target: Floats) -> Floats:
    """The non-negative coefficients that come nearest to the target."""
    try:
        from scipy import optimize
    except ModuleNotFoundError as error:
        raise _missing(error) from None
    return np.asarray(optimize.nnls(features, target)[0])
