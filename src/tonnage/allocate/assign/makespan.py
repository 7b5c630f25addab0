"""The least makespan: the largest sum of seconds on a GPU, as small as can be found, beside what is proven."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from tonnage.allocate.assign.board import Board, board_of
from tonnage.allocate.assign.bounds import Relaxed, relaxed_makespan
from tonnage.allocate.assign.exact import MOST_CHOICES, exact_makespan
from tonnage.allocate.assign.fill import fill
from tonnage.allocate.assign.problem import Assigned, Instance, KeepGoing, Prices, always
from tonnage.allocate.assign.reduce import Reduced, reduced
from tonnage.allocate.assign.room import Room, make_room
from tonnage.allocate.assign.search import Effort, Search
from tonnage.allocate.speeds import Ints

_LEAST_WEIGHT = 0.02  # of the mean: seconds of a type without a price still count
_PAIRS_PER_GPU = 100  # of the search
_MORE_PAIRS, _MORE_PAIRS_PER_GPU = 150_000, 2_000  # the smaller of both: few GPUs are done soon


def least_makespan(
    instance: Instance, start: Prices | None = None, *, enough_gap: float = 0.0, keep_going: KeepGoing = always
) -> Assigned:
    """Minimises the largest sum of seconds on a GPU.

    Ends when the gap is small enough, when the effort for this size is spent, or when `keep_going` says no. It is asked
    only once there is an assignment.
    """
    core = reduced(instance)
    if core.instance.size == 0:
        return core.nothing()
    relaxed = relaxed_makespan(core.instance, core.prices(start) if start else None)
    board = _new_board(core.instance, relaxed)
    search = search_on(core.instance, board, relaxed.tight, relaxed.bound)
    search.mix()
    search.run(Effort(pairs=_pairs(board.size), enough=1.0 + enough_gap), keep_going)
    homeless = make_room(core.instance, board.gpus)
    bound = _bound_without(core.instance, homeless, relaxed)
    if len(homeless) == 0 and core.instance.size * board.size <= MOST_CHOICES:
        return _exact(core, board.gpus, bound, relaxed.prices, enough_gap)
    return finished(core, board.gpus, bound, relaxed.prices)


def _exact(core: Reduced, gpus: Ints, bound: float, prices: Prices, enough_gap: float) -> Assigned:
    """The best that there is, where it is not proven yet that this was found."""
    found = finished(core, gpus, bound, prices)
    if found.gap <= enough_gap:
        return found
    best = exact_makespan(core.instance, found.value)
    if best is None:
        return found
    exact = finished(core, best, bound, prices)
    return replace(exact, bound=exact.value)


def search_on(instance: Instance, board: Board, prices: Prices, target_seconds: float) -> Search:
    """A search that weighs seconds and bytes of each type by their prices."""
    offered = prices.second * instance.counts
    weights = np.maximum(offered, _LEAST_WEIGHT / len(offered)) / instance.counts
    return Search(board, weights, instance.memory_bytes * prices.byte / target_seconds)


def finished(core: Reduced, gpus: Ints, bound: float, prices: Prices) -> Assigned:
    """The assignment with its value; on a GPU the shortest task runs first, which changes no makespan."""
    room = Room(core.instance, gpus)
    seconds = core.instance.seconds[np.arange(len(gpus)), room.type_of[gpus]]
    return core.expanded(gpus, seconds, value=float(room.loads.max(initial=0.0)), bound=bound, prices=prices)


def _pairs(gpus: int) -> int:
    return _PAIRS_PER_GPU * gpus + min(_MORE_PAIRS, _MORE_PAIRS_PER_GPU * gpus)


def _new_board(instance: Instance, relaxed: Relaxed) -> Board:
    """No task is allowed where it takes longer than the ceiling, which leaves every task some type.

    The best assignment may need one. But a search that is free to make them longer ends further from the bound.
    """
    short = instance.seconds <= relaxed.ceiling
    allowed = replace(instance, seconds=np.where(short, instance.seconds, np.inf))
    board = board_of(allowed, relaxed.bound or 1.0, np.zeros(instance.size, dtype=np.int64))
    fill(board, relaxed.types)
    return board


def _bound_without(instance: Instance, homeless: Ints, relaxed: Relaxed) -> float:
    """The bound of all tasks does not hold for some of them."""
    if len(homeless) == 0:
        return relaxed.bound
    placed = np.setdiff1d(np.arange(instance.size), homeless)
    return relaxed_makespan(instance.of_tasks(placed), relaxed.prices).bound if len(placed) else 0.0
