"""The least sum of what tasks cost where they run (energy, money), with a deadline for all of them or none."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from tonnage.allocate.assign.board import FULL, Board, board_of
from tonnage.allocate.assign.exchange import Judge, exchange
from tonnage.allocate.assign.fill import fill
from tonnage.allocate.assign.prices import Answer, Offer, best_prices
from tonnage.allocate.assign.problem import Assigned, Instance, KeepGoing, Prices, always
from tonnage.allocate.assign.reduce import Reduced, reduced
from tonnage.allocate.assign.room import Room, make_room
from tonnage.allocate.speeds import Floats, Ints
from tonnage.errors import UsageError

_CLOSE = 1e-5
_MOST_PRICE = 20.0  # of all that a type offers, in costs of all tasks
_SPARE = 0.02  # of seconds and memory, kept free when types are chosen: whole tasks never fill GPUs to the brim
_PATIENCE = 30  # rounds without gain
_PENALTY = 10.0  # in mean costs of a task: for a whole deadline or memory too much


def least_sum(
    instance: Instance, cost: Floats, *, deadline_seconds: float = np.inf, keep_going: KeepGoing = always
) -> Assigned:
    """Minimises the sum of `cost` (task, type). No GPU works longer than the deadline, no memory is overfull."""
    if cost.shape != instance.seconds.shape or not (cost >= 0).all() or not np.isfinite(cost).all():
        raise UsageError(
            "a cost is missing, negative or infinite", "write inf into the seconds where a task cannot run"
        )
    in_time = np.where(instance.seconds <= deadline_seconds, instance.seconds, np.inf)
    core = reduced(replace(instance, seconds=in_time))
    if core.instance.size == 0:
        return core.nothing()
    own = cost[np.ix_(core.tasks, core.types)]
    gpus = _searched(core.instance, own, deadline_seconds, keep_going)
    make_room(core.instance, gpus, deadline_seconds)
    return _finished(core, own, gpus, deadline_seconds)


def _finished(core: Reduced, cost: Floats, gpus: Ints, deadline: float) -> Assigned:
    """With the bound of the tasks that were placed."""
    placed = np.flatnonzero(gpus >= 0)
    if len(placed) == 0:
        return core.nothing()
    instance, types = core.instance, Room(core.instance, gpus).type_of[gpus]
    answer = _priced(instance.of_tasks(placed), cost[placed], deadline, 1.0)
    return core.expanded(
        gpus,
        instance.seconds[np.arange(len(gpus)), types],
        value=float(cost[placed, types[placed]].sum()),
        bound=answer.value,
        prices=_prices(instance, answer, deadline),
        type_prices=np.add(*np.split(answer.prices, 2)) / instance.counts,
    )


def _priced(instance: Instance, cost: Floats, deadline: float, share: float) -> Answer:
    """The dual, if only a share of all seconds and bytes may be used."""
    possible, types = instance.possible, len(instance.counts)
    seconds = np.where(possible, instance.seconds, 0.0) / (share * instance.counts * deadline)
    offered = share * instance.counts * np.maximum(instance.capacity_bytes, 1)
    offer = Offer(
        cost=np.where(possible, cost, np.inf),
        seconds=seconds,
        bytes=instance.memory_bytes / offered if instance.resident else np.zeros(seconds.shape),
        limited_seconds=True,
    )
    highest = _MOST_PRICE * float(np.where(possible, cost, 0.0).max(axis=1).sum())
    limited = [np.isfinite(deadline), instance.resident]
    most = np.repeat(np.where(limited, highest, 0.0), types)
    return best_prices(offer, np.zeros(2 * types), most, _CLOSE)


def _prices(instance: Instance, answer: Answer, deadline: float) -> Prices:
    second, byte = np.split(answer.prices, 2)
    offered = np.maximum(instance.counts * instance.capacity_bytes, 1)
    return Prices(second=second / (instance.counts * deadline), byte=byte / offered)


def _searched(instance: Instance, cost: Floats, deadline: float, keep_going: KeepGoing) -> Ints:
    """Types by price, packed; then pairs of GPUs exchange tasks while that lowers the sum or what is too much."""
    answer = _priced(instance, cost, deadline, 1.0 - _SPARE)
    board = board_of(instance, deadline, np.zeros(instance.size, dtype=np.int64))
    fill(board, answer.types)
    judge = _judge(board, np.where(board.possible, cost, 1e3 * cost.max()))
    random = np.random.default_rng(0)
    waited, best, kept = 0, np.inf, board.gpus.copy()
    while waited < _PATIENCE and board.size > 1 and keep_going():
        order = random.permutation(board.size)
        half = board.size // 2
        exchange(board, judge, (order[:half], order[half : 2 * half]), random)
        now = _total(board, judge)
        waited = 0 if now < best * (1 - _CLOSE) else waited + 1
        if now < best:
            best, kept = now, board.gpus.copy()
    return kept


def _judge(board: Board, cost: Floats) -> Judge:
    penalty = _PENALTY * float(cost[board.possible].mean() or 1.0)
    return Judge(
        load_cost=lambda loads: np.maximum(loads - FULL, 0.0) + (loads > FULL) * 0.1,
        gpu_weights=np.full(board.size, penalty),
        task_costs=cost,
        overfull_cost=penalty,
    )


def _total(board: Board, judge: Judge) -> float:
    """What the search lowers: costs, and penalties for what is too much."""
    tasks = judge.task_costs[np.arange(len(board.gpus)), board.type_of[board.gpus]].sum()
    gpus = judge.gpu_costs(np.arange(board.size), board.loads[:, None], board.used[:, None])
    return float(tasks + gpus.sum())
