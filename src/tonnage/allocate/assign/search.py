"""Local search for the least makespan: the most loaded GPUs exchange tasks with others, of their type and of any other."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from tonnage.allocate.assign.board import FULL, Board
from tonnage.allocate.assign.exchange import Judge, exchange
from tonnage.allocate.assign.problem import KeepGoing
from tonnage.allocate.speeds import Floats, Ints

# Found by trial on random instances of 500 to 50,000 tasks (seeds 1 to 18 of benchmarks/allocation). Other values change
# the gap of a small instance by one or two percent, up or down.
_FIRST_ROUNDS = 16  # in which all GPUs take part
_SHAKE_ROUNDS = 4
_SHAKEN_PAIRS = 50
_ROUND = 20  # what a round costs beside its pairs, in pairs
_PATIENCE = 1000  # pairs without a better makespan, before a shake
_SHAKE_NOISE = 0.1  # of the weights of GPUs, while shaking
_HARDER, _MOST_NOISE = 1.1, 0.5  # times the last noise, if a shake did not help
_STUBBORN = 8.0  # times the weight of the most loaded, while shaking: others become the most loaded
_FEWEST_PAIRS = 8
_AIM = 0.7  # of the gap: GPUs that are loaded more than the bound plus this much of it are to lose load
_FARTHEST_AIM = 0.15
_STEEP = 1000.0
_LEAST_STEP = 1e-4
# In costs of a load at the target: memory that is not there counts more than any load, an impossible type more than both.
_OVERFULL_COST, _IMPOSSIBLE_COST = 1e5, 1e7
_MOST_LOAD = 4.0  # loads beyond cost as much: powers of them would be too large for numbers


@dataclass(frozen=True, slots=True, kw_only=True)
class Effort:
    """When to stop, counted in pairs of GPUs that exchange tasks."""

    pairs: int
    enough: float = 1.0  # the makespan, in targets


class Search:
    """Exchanges between pairs, on a board whose target is the bound.

    The cost of a load is convex and its slope at the target is 1. Weighted by the price of seconds of each type, it trades
    between types as the linear program does, whose solution has all loads at the target.
    """

    def __init__(self, board: Board, weights: Floats, task_costs: Floats) -> None:
        self.board, self.weights, self.unit = board, weights, float(weights.max())
        self.task_costs = np.where(board.possible, task_costs, _IMPOSSIBLE_COST * self.unit)
        self.random = np.random.default_rng(0)  # the same instance gets the same answer
        self.best, self.makespan = board.gpus.copy(), np.inf
        self.turn = self.waited = self.shaking = self.pairs = 0
        self.noise = _SHAKE_NOISE
        self._keep_better()

    def run(self, effort: Effort, keep_going: KeepGoing) -> None:
        """Ends on the best board seen; `makespan` is infinite if none had room for all tasks."""
        while self.makespan > effort.enough and self.pairs < effort.pairs and self.board.size > 1 and keep_going():
            self._round(self._loaded() if not self.shaking else self._some())
        self.board.gpus = self.best if self.makespan < np.inf else self.board.gpus
        self.board.refresh()

    def mix(self) -> None:
        """All GPUs take part, again and again: for tasks that have only just been placed."""
        for _ in range(_FIRST_ROUNDS):
            self._round(self._everyone(), steady=True)

    @property
    def aim(self) -> float:
        return 1.0 + min(_AIM * (self.makespan - 1.0), _FARTHEST_AIM)

    def _round(self, chosen: tuple[Ints, Ints], *, steady: bool = False) -> None:
        weights = self.weights[self.board.type_of]
        if self.shaking and not steady:
            weights = weights * np.exp(self.noise * self.random.standard_normal(len(weights)))
            weights[self.board.loads > self.makespan - _LEAST_STEP] *= _STUBBORN
        judge = Judge(
            load_cost=above(self.aim),
            gpu_weights=weights,
            task_costs=self.task_costs,
            overfull_cost=_OVERFULL_COST * self.unit,
        )
        exchange(self.board, judge, chosen, self.random)
        self.turn += 1
        self._notice(self._keep_better(), _ROUND + len(chosen[0]))

    def _notice(self, better: bool, pairs: int) -> None:
        """Shakes after too much effort without success."""
        self.pairs += pairs
        if self.shaking:
            self.shaking -= 1
        elif better:
            self.waited, self.noise = 0, _SHAKE_NOISE
        else:
            self.waited += pairs
        if self.waited >= _PATIENCE:
            self._shake()

    def _shake(self) -> None:
        """A little harder each time that it did not help."""
        self.waited, self.shaking = 0, _SHAKE_ROUNDS
        self.noise = min(self.noise * _HARDER, _MOST_NOISE)
        self.board.refresh()

    def _keep_better(self) -> bool:
        makespan = float(self.board.loads.max(initial=0.0))
        if self.board.used.max(initial=0.0) > FULL or makespan > self.makespan - _LEAST_STEP:
            return False
        self.best, self.makespan = self.board.gpus.copy(), makespan
        return True

    def _everyone(self) -> tuple[Ints, Ints]:
        return self._paired(self.random.permutation(self.board.size))

    def _some(self) -> tuple[Ints, Ints]:
        """The most loaded GPU and some others: to shake all of very many GPUs would overload a few of them."""
        others = self.random.permutation(self.board.size)[: 2 * _SHAKEN_PAIRS]
        return self._paired(self.random.permutation(np.union1d(others, self.board.loads.argmax())))

    def _paired(self, gpus: Ints) -> tuple[Ints, Ints]:
        """In the order given; in every second round, with the same type as far as possible."""
        if self.turn % 2 == 0:
            gpus = gpus[np.argsort(self.board.type_of[gpus], kind="stable")]
        half = len(gpus) // 2
        return gpus[: 2 * half : 2], gpus[1 : 2 * half : 2]

    def _loaded(self) -> tuple[Ints, Ints]:
        """The GPUs above the aim or overfull, each with any other; in every second round, with one of little load."""
        loads, size = self.board.loads + (self.board.used > FULL), self.board.size
        count = min(max(_FEWEST_PAIRS, int((loads > self.aim).sum())), size // 2)
        order = np.argsort(-loads)
        others = order[count:] if self.turn % 2 else order[max(count, size - max(3 * count, size // 8)) :]
        return order[:count], self.random.choice(others, count, replace=False)


def above(aim: float) -> Callable[[Floats], Floats]:
    """The fourth power of the load, and a steep square of what is more than the aim."""

    def cost(loads: Floats) -> Floats:
        loads = np.minimum(loads, _MOST_LOAD)
        over = np.maximum(loads - aim, 0.0)
        over *= over
        over *= _STEEP
        loads *= loads
        loads *= loads
        loads *= 0.25
        over += loads
        return over

    return cost
