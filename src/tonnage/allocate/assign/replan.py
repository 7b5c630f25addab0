"""A plan after a change: a task came or left, a GPU was lost. Prices and places are kept, only what is necessary moves."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tonnage.allocate.assign.board import board_of
from tonnage.allocate.assign.bounds import proven_makespan
from tonnage.allocate.assign.makespan import finished, search_on
from tonnage.allocate.assign.problem import Assigned, Bools, Instance, KeepGoing, always
from tonnage.allocate.assign.reduce import Reduced, reduced
from tonnage.allocate.assign.room import Room
from tonnage.allocate.assign.search import Effort
from tonnage.allocate.speeds import Ints
from tonnage.errors import UsageError

_PAIRS = 1_500  # of the search that follows
_ROUNDING = 1e-9
_CEILINGS = (1.0, 1.003, 1.01, 1.03)  # of the last bound, at which the last prices are tried


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Replanned:
    assigned: Assigned
    moved: Ints  # tasks that were somewhere else before


def replan(
    last: Assigned,
    instance: Instance,
    *,
    was: Ints | None = None,
    lost: Sequence[tuple[int, int]] = (),
    keep_going: KeepGoing = always,
) -> Replanned:
    """The least makespan of a changed instance, from the last answer.

    `was`: what each task was in the last answer, -1 if it is new; without it, new tasks come after the old. `lost`: GPUs
    (type, index) that the instance no longer counts; those behind them move up.
    """
    core = reduced(instance)
    if core.instance.size == 0:
        return Replanned(assigned=core.nothing(), moved=np.empty(0, dtype=np.int64))
    before = _before(last, instance, was)
    types, within = _last_places(last, before, lost)
    gpus = _numbered_through(core, types, within)
    _place_rest(core.instance, gpus)
    bound = _bound(core, last, gpus >= 0)
    _improve(core, gpus, last, bound, keep_going)
    assigned = finished(core, gpus, bound, core.prices(last.prices))
    had_place = np.append(last.types, -1)[before] >= 0
    elsewhere = (assigned.types != types) | (assigned.gpus != within)
    return Replanned(assigned=assigned, moved=np.flatnonzero(had_place & elsewhere))


def _before(last: Assigned, instance: Instance, was: Ints | None) -> Ints:
    """What each task was in the last answer."""
    former = len(last.types)
    if was is not None:
        return was
    if instance.size < former:
        raise UsageError("the instance has fewer tasks than the last answer", "say in `was` which of them are left")
    return np.concatenate([np.arange(former), np.full(instance.size - former, -1)])


def _last_places(last: Assigned, before: Ints, lost: Sequence[tuple[int, int]]) -> tuple[Ints, Ints]:
    """Type and GPU of each task as they are called now; -1 if it has none."""
    types, old = np.append(last.types, -1)[before], np.append(last.gpus, -1)[before]
    within, gone = old.copy(), types < 0
    for number, index in lost:
        gone |= (types == number) & (old == index)
        within[(types == number) & (old > index)] -= 1
    return np.where(gone, -1, types), np.where(gone, -1, within)


def _numbered_through(core: Reduced, types: Ints, within: Ints) -> Ints:
    """Places of the solver's tasks; a task that may not be where it was has none."""
    mine, index = types[core.tasks], within[core.tasks]
    number = np.minimum(np.searchsorted(core.types, mine), len(core.types) - 1)
    possible = core.instance.possible[np.arange(len(mine)), number]
    stays = (mine >= 0) & (core.types[number] == mine) & (index < core.instance.counts[number]) & possible
    first = np.cumsum(core.instance.counts) - core.instance.counts
    return np.where(stays, first[number] + index, -1)


def _place_rest(instance: Instance, gpus: Ints) -> None:
    """The largest first; one without room stays at -1."""
    room = Room(instance, gpus)
    homeless = np.flatnonzero(gpus < 0)
    for task in homeless[np.argsort(-instance.memory_bytes[homeless].max(axis=1), kind="stable")].tolist():
        room.put(task)


def _bound(core: Reduced, last: Assigned, placed: Bools) -> float:
    """What the last prices prove for the tasks that have a place."""
    prices, tasks = core.prices(last.prices), core.instance.of_tasks(np.flatnonzero(placed))
    if tasks.size == 0:
        return 0.0
    return max(proven_makespan(tasks, prices, last.bound * each) for each in _CEILINGS)


def _improve(core: Reduced, gpus: Ints, last: Assigned, bound: float, keep_going: KeepGoing) -> None:
    """Exchanges until the makespan is what it was, or the effort is spent."""
    placed = np.flatnonzero(gpus >= 0)
    tasks, prices = core.instance.of_tasks(placed), core.prices(last.prices)
    if bound <= 0:
        return
    board = board_of(tasks, bound, gpus[placed])
    search = search_on(tasks, board, prices, bound)
    search.run(Effort(pairs=_PAIRS, enough=max(last.value / bound, 1.0) + _ROUNDING), keep_going)
    gpus[placed] = board.gpus
