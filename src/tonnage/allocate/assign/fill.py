"""A first place for every task: packing in two dimensions, seconds and memory, type by type."""

from __future__ import annotations

import numpy as np

from tonnage.allocate.assign.board import Board
from tonnage.allocate.speeds import Floats, Ints

_OVERFULL = 1e6  # memory that is not there; exchanges repair what cannot be avoided here
_OVERLOADED = 1e3


def fill(board: Board, types: Ints) -> None:
    """Puts every task on a GPU of its type, the largest first."""
    for number in range(len(board.first) - 1):
        tasks = np.flatnonzero(types == number)
        seconds, memory = board.seconds[tasks, number], board.memory[tasks, number]
        members = board.type_members(number)
        board.gpus[tasks] = members.start + _pack(seconds, memory, members.stop - members.start)
    board.refresh()


def _pack(seconds: Floats, memory: Floats, gpus: int) -> Ints:
    """A task goes where it needs most of what is most free: long ones beside memory in use, large ones beside load.

    That leaves GPUs that are filled evenly, so little of either is stranded beside none of the other.
    """
    loads, used, chosen = np.zeros(gpus), np.zeros(gpus), np.empty(len(seconds), dtype=np.int64)
    for task in np.argsort(-(seconds + memory), kind="stable"):
        time, space = seconds[task], memory[task]
        fragments = time * loads + space * used
        fragments += _OVERLOADED * np.maximum(loads + (time - 1.0), 0.0)
        fragments += _OVERFULL * np.maximum(used + (space - 1.0), 0.0)
        best = int(fragments.argmin())
        loads[best] += time
        used[best] += space
        chosen[task] = best
    return chosen
