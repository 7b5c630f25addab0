"""Linear regression for times and sizes: coefficients are never negative, errors are relative.

More work never takes less time, so no coefficient may be negative. Twice as long and half as long are equally wrong, so
the squared logarithm of predicted over measured is what is minimised, with less weight on rows that are far off.
A prior pulls the coefficients of a small cluster towards those of all rows.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

Array: TypeAlias = npt.NDArray[np.float64]
Flags: TypeAlias = npt.NDArray[np.bool_]

RIDGE = 1e-4  # of the mean square of a column
_PLAIN_ROUNDS, _ROUNDS = 3, 6  # far rows lose weight only once the line is roughly where it belongs
_FAR = 0.2  # relative error from which a row's pull no longer grows
_LEAST_BRANCH_ROWS = 4
_MOST_LEVERAGE = 0.8


@dataclass(frozen=True, slots=True)
class Line:
    """Coefficients of a linear function, how large each variable is beside the target, and errors of left-out rows."""

    coefficients: Array
    size: Array
    left_out: Array

    def at(self, matrix: Array) -> Array:
        values: Array = matrix @ self.coefficients
        return values


@dataclass(frozen=True, slots=True)
class Law:
    """Two linear functions: what the host needs to launch a step, and what the device needs to run it."""

    host: Line
    device: Line | None

    def at(self, host: Array, device: Array) -> Array:
        """The larger of both, for rows of variables of the host and of the device."""
        values = self.host.at(host)
        return values if self.device is None else np.maximum(values, self.device.at(device))

    def on_side(self, host: Array, device: Array, is_host_bound: bool) -> Array:
        """That of one side. In a step that the device bounds, the host runs ahead and no phase waits for it."""
        return self.host.at(host) if is_host_bound or self.device is None else self.device.at(device)

    def is_host_bound(self, host: Array, device: Array) -> bool:
        """Whether launching the first row takes longer than running it."""
        return self.device is None or bool(self.host.at(host)[0] >= self.device.at(device)[0])


def solve_nonnegative(gram: Array, moments: Array) -> Array:
    """The x >= 0 that minimises x'Gx/2 - m'x, by an active set; G must be positive definite."""
    free = np.ones(len(moments), dtype=bool)
    solution = np.zeros(len(moments))
    for _ in range(4 * len(moments)):
        solution = np.zeros(len(moments))
        solution[free] = np.linalg.solve(gram[np.ix_(free, free)], moments[free])
        if solution.min(initial=0.0) < 0:
            free[np.argmin(solution)] = False
            continue
        gain = np.where(free, 0.0, moments - gram @ solution)
        if gain.max(initial=0.0) <= 1e-12 * max(np.abs(moments).max(), 1e-300):
            break
        free[np.argmax(gain)] = True
    return np.maximum(solution, 0.0)


def size_of(matrix: Array, target: Array) -> Array:
    """Of each variable beside the target; infinite, which leaves it out, for one that does not move.

    The last variable is the constant and stays.
    """
    moves = matrix.std(axis=0) > 0.01 * matrix.mean(axis=0)
    moves[-1] = True
    size: Array = np.sqrt(((matrix / target[:, None]) ** 2).mean(axis=0))
    return np.where(moves, size, np.inf)


def fit_line(matrix: Array, target: Array, size: Array, prior: Array | None = None, strength: float = 0.0) -> Line:
    """Coefficients for rows whose target is positive. `strength` is how many rows the prior counts for.

    Variables are scaled by their `size` among all rows: one that hardly moves among these rows, and so cannot be
    learned from them, stays near the prior.
    """
    scaled = matrix / target[:, None] / size
    start = np.zeros(len(size)) if prior is None else prior * np.where(np.isfinite(size), size, 0.0)
    pull = RIDGE if prior is None else max(strength / len(target), RIDGE)
    weights = np.ones(len(target))
    for number in range(_ROUNDS):
        weighted = scaled * weights[:, None]
        gram = weighted.T @ scaled / len(target) + pull * np.eye(len(size))
        solution = solve_nonnegative(gram, weighted.sum(axis=0) / len(target) + pull * start)
        ratio = np.maximum(scaled @ solution, 0.05)
        weights = _weights(ratio, _FAR if number >= _PLAIN_ROUNDS else np.inf)
    return Line(solution / size, size, _left_out(scaled, weights, gram, solution, ratio))


def _weights(ratio: Array, far: float) -> Array:
    """That turn squares of `ratio - 1` into squares of its logarithm, and those into lengths from `far` on."""
    off = np.log(ratio)
    is_small = np.abs(off) < 1e-6
    slope = np.where(is_small, 1.0, off / np.where(is_small, 1.0, ratio - 1))
    weights: Array = slope**2 * np.minimum(1.0, far / np.maximum(np.abs(off), 1e-12))
    return weights


def _left_out(scaled: Array, weights: Array, gram: Array, solution: Array, ratio: Array) -> Array:
    """Relative errors of rows that are left out, from their leverage instead of as many new fits."""
    free = solution > 0
    if not free.any():
        return ratio - 1
    columns = scaled[:, free]
    inverse = np.linalg.inv(gram[np.ix_(free, free)])
    leverage = weights * np.einsum("ij,jk,ik->i", columns, inverse, columns) / len(ratio)
    left_out: Array = (ratio - 1) / (1 - np.minimum(leverage, _MOST_LEVERAGE))
    return left_out


def fit_law(
    host: Array, device: Array, target: Array, is_host_bound: Flags, prior: Law | None = None, strength: float = 0.0
) -> Law:
    """Both lines, each fitted to the rows that it bounds; rows change sides where the other line says more."""
    side = is_host_bound.copy()
    law = fit_sides(host, device, target, side, prior, strength)
    for _ in range(2):
        if law.device is None:
            break
        host_says, device_says = law.host.at(host), law.device.at(device)
        # A row that was bound by one side stays there unless the other overshoots it.
        side = np.where(is_host_bound, (device_says <= target) | (host_says >= device_says), host_says > target)
        law = fit_sides(host, device, target, side, prior, strength)
    return law


def fit_sides(host: Array, device: Array, target: Array, side: Flags, prior: Law | None, strength: float) -> Law:
    """Both lines for rows whose side is known: true for those that the host bounds."""
    if side.sum() < _LEAST_BRANCH_ROWS and prior is None:
        side = np.ones(len(target), dtype=bool)
    left_out = np.zeros(len(target))
    first = _fit_side(host, target, side, left_out, prior.host if prior else None, strength)
    second = _fit_side(device, target, ~side, left_out, prior.device if prior else None, strength)
    assert first is not None
    return Law(Line(first.coefficients, first.size, left_out), second)


def _fit_side(
    matrix: Array, target: Array, rows: Flags, left_out: Array, prior: Line | None, strength: float
) -> Line | None:
    """The line of one side, and the errors of its rows; the prior itself where the rows are too few."""
    if rows.sum() < _LEAST_BRANCH_ROWS:
        if prior is not None:
            left_out[rows] = prior.at(matrix[rows]) / target[rows] - 1
        return prior
    size = prior.size if prior else size_of(matrix, target)
    line = fit_line(matrix[rows], target[rows], size, prior.coefficients if prior else None, strength)
    left_out[rows] = line.left_out
    return line
