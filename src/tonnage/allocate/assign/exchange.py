"""Two GPUs share out their tasks anew: all splits of up to ten tasks at once, for many pairs of GPUs at once."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from tonnage.allocate.assign.board import FULL, Board
from tonnage.allocate.assign.problem import Bools
from tonnage.allocate.speeds import Floats, Ints

_MOST_TASKS = 10  # of a pair that are shared out; the others stay: 2 ** 10 splits
_PAIRS_AT_ONCE = 32  # their arrays stay in the processor's cache
_LEAST_GAIN = 1e-9  # relative


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Judge:
    """What a GPU's load costs, what a task costs on a type, and what memory costs that is not there."""

    load_cost: Callable[[Floats], Floats]  # of loads, as shares of the target
    gpu_weights: Floats  # times load_cost
    task_costs: Floats  # task, type
    overfull_cost: float  # of one GPU's memory

    def gpu_costs(self, gpus: Ints, loads: Floats, used: Floats) -> Floats:
        """Of each GPU (row) with each load (column)."""
        costs = self.load_cost(loads)
        costs *= self.gpu_weights[gpus][:, None]
        over = np.maximum(used - FULL, 0.0)
        over *= self.overfull_cost
        costs += over
        return costs


@dataclass(frozen=True, slots=True)
class _Splits:
    """Every way to share out some tasks: a column says which of them the first GPU takes."""

    first: Floats
    second: Floats
    powers: Ints


def _splits(tasks: int) -> _Splits:
    first = (np.arange(2**tasks) >> np.arange(tasks)[:, None] & 1).astype(float)
    return _Splits(first, 1.0 - first, 2 ** np.arange(tasks))


_ALL_SPLITS = [_splits(tasks) for tasks in range(_MOST_TASKS + 1)]


def exchange(board: Board, judge: Judge, pairs: tuple[Ints, Ints], random: np.random.Generator) -> int:
    """Improves every pair as far as its splits allow; no GPU may be in two. How many pairs changed."""
    tasks = _tasks_of_pairs(board, pairs, random)
    changed = 0
    for begin in range(0, len(tasks), _PAIRS_AT_ONCE):
        part = slice(begin, begin + _PAIRS_AT_ONCE)
        changed += _share_out(board, judge, pairs[0][part], pairs[1][part], tasks[part])
    return changed


def _tasks_of_pairs(board: Board, pairs: tuple[Ints, Ints], random: np.random.Generator) -> Ints:
    """Pair, task: at most ten of each pair, chosen at random; -1 where there are fewer."""
    count = len(pairs[0])
    pair_of = np.full(board.size, -1)
    pair_of[pairs[0]] = pair_of[pairs[1]] = np.arange(count)
    tasks = random.permutation(np.flatnonzero(pair_of[board.gpus] >= 0))
    owner = pair_of[board.gpus[tasks]]
    order = np.argsort(owner, kind="stable")
    tasks, owner = tasks[order], owner[order]
    rank = np.arange(len(tasks)) - np.searchsorted(owner, owner)
    chosen = rank < _MOST_TASKS
    table = np.full((count, _MOST_TASKS), -1)
    table[owner[chosen], rank[chosen]] = tasks[chosen]
    return table


def _share_out(board: Board, judge: Judge, firsts: Ints, seconds: Ints, tasks: Ints) -> int:
    there = tasks >= 0
    width = int(there.sum(axis=1).max(initial=0))
    tasks, there = tasks[:, :width], there[:, :width]
    splits = _ALL_SPLITS[width]
    on_first = there & (board.gpus[tasks] == firsts[:, None])
    first = _Side(board, firsts, tasks, there, on_first)
    second = _Side(board, seconds, tasks, there, there & ~on_first)
    costs = first.costs(judge, splits.first) + second.costs(judge, splits.second)
    if not np.array_equal(first.types, second.types):
        costs += (first.task_costs(judge) - second.task_costs(judge)) @ splits.first
    rows = np.arange(len(tasks))
    now, best = on_first @ splits.powers, costs.argmin(axis=1)
    better = costs[rows, best] < costs[rows, now] - _LEAST_GAIN * np.abs(costs[rows, now])
    taken = there & (splits.first.T[np.where(better, best, now)] > 0)
    first.take(board, taken)
    second.take(board, there & ~taken)
    board.gpus[tasks[there]] = np.where(taken, firsts[:, None], seconds[:, None])[there]
    return int(better.sum())


class _Side:
    """One GPU of each pair, and what the tasks of the pairs would use there."""

    def __init__(self, board: Board, gpus: Ints, tasks: Ints, there: Bools, mine: Bools) -> None:
        self.gpus, self.types, self.tasks, self.there = gpus, board.type_of[gpus], tasks, there
        column = self.types[:, None]
        self.seconds = board.seconds[tasks, column] * there
        self.memory = board.memory[tasks, column] * there
        self.other_load = board.loads[gpus] - (self.seconds * mine).sum(axis=1)
        self.other_used = board.used[gpus] - (self.memory * mine).sum(axis=1)

    def costs(self, judge: Judge, split: Floats) -> Floats:
        loads = self.seconds @ split
        loads += self.other_load[:, None]
        used = self.memory @ split
        used += self.other_used[:, None]
        return judge.gpu_costs(self.gpus, loads, used)

    def task_costs(self, judge: Judge) -> Floats:
        return judge.task_costs[self.tasks, self.types[:, None]] * self.there

    def take(self, board: Board, taken: Bools) -> None:
        board.loads[self.gpus] = self.other_load + (self.seconds * taken).sum(axis=1)
        board.used[self.gpus] = self.other_used + (self.memory * taken).sum(axis=1)
