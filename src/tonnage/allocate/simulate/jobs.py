"""Jobs of a trace, as arrays, and what is believed of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from tonnage.allocate.speeds import Floats, Ints, SpeedTable


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Jobs:
    """In the order of their arrival."""

    classes: Ints  # rows of the speed table
    steps: Floats
    arrival_seconds: Floats
    weights: Floats

    @property
    def size(self) -> int:
        return len(self.classes)


Belief = Callable[[Ints, Floats], Floats]  # which jobs, the steps that each has made -> the steps believed to be left

_NEW_SECONDS = 600.0  # what a job is believed to need that has only begun


def known(jobs: Jobs) -> Belief:
    return lambda which, made: np.maximum(jobs.steps[which] - made, 1e-9)


def blind(jobs: Jobs, table: SpeedTable) -> Belief:
    """Nothing is known of the jobs' lengths: who has run long will run long, as is true of heavy-tailed ones."""
    new = _NEW_SECONDS * table.best[jobs.classes]
    return lambda which, made: made + new[which]


def predicted(jobs: Jobs, table: SpeedTable, error: float, seed: int = 0) -> Belief:
    """Lengths are known up to a log-normal factor of that deviation; of who outlives its prediction nothing is known."""
    guess = jobs.steps * np.random.default_rng(seed).lognormal(0.0, error, jobs.size)
    new = _NEW_SECONDS * table.best[jobs.classes]
    return lambda which, made: np.where(
        made < guess[which], np.maximum(guess[which] - made, new[which] * 1e-3), made - guess[which] + new[which]
    )
