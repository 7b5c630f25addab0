"""Where everything happened: each row of the host gets its place in one tree of phase, modules and operators.

A backward operator belongs to the modules of the forward operator that its arrow (Kineto's `fwdbwd` flow) comes from.
Rows of a thread are nested, so one pass in the order of time with a stack of what is open finds the places.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import IntEnum

import numpy as np
import numpy.typing as npt

from tonnage.profile.trace_columns import Floats, Flows, Ints, Kind, TraceColumns
from tonnage.profile.trace_names import module_path

_PIECE = 1 << 16  # rows that are lists of Python numbers at a time
_SAME_MOMENT = 0.01  # microseconds; moments of arrows and operators are equal up to rounding


class Phase(IntEnum):
    """The first frame of every place."""

    FORWARD = 0
    BACKWARD = 1
    OPTIMIZER = 2
    DATA = 3


@dataclass(slots=True)
class ContextTree:
    """Nodes are numbered; the first four are the phases."""

    parent: list[int] = field(default_factory=lambda: [-1] * len(Phase))
    name: list[str] = field(default_factory=lambda: [phase.name.lower() for phase in Phase])
    kind: list[Kind] = field(default_factory=lambda: [Kind.OTHER] * len(Phase))
    phase: list[Phase] = field(default_factory=lambda: list(Phase))
    _children: dict[tuple[int, str], int] = field(default_factory=dict)

    def child(self, parent: int, name: str, kind: Kind) -> int:
        found = self._children.get((parent, name))
        if found is None:
            found = self._children[parent, name] = len(self.parent)
            self.parent.append(parent)
            self.name.append(name)
            self.kind.append(kind)
            self.phase.append(self.phase[parent])
        return found

    def path(self, node: int) -> list[int]:
        """From the phase down to the node."""
        path = []
        while node >= 0:
            path.append(node)
            node = self.parent[node]
        return path[::-1]

    def frames(self, node: int) -> list[str]:
        """Names from the phase down; a module's name does not repeat that of the one around it."""
        names, around = [], ""
        for place in self.path(node):
            name = self.name[place]
            if self.kind[place] == Kind.MODULE:
                names.append(name.removeprefix(around + ".") or name)
                around = name
            else:
                names.append(name)
        return names

    def module(self, node: int) -> str:
        """The innermost module's path; nothing outside of modules."""
        return next((self.name[n] for n in reversed(self.path(node)) if self.kind[n] == Kind.MODULE), "")

    def operator(self, node: int) -> str:
        """The innermost operator's name."""
        return next((self.name[n] for n in reversed(self.path(node)) if self.kind[n] == Kind.OPERATOR), "")

    def mirrored(self, node: int) -> int:
        """The same modules in the backward phase."""
        mirror = int(Phase.BACKWARD)
        for place in self.path(node):
            if self.kind[place] == Kind.MODULE:
                mirror = self.child(mirror, self.name[place], Kind.MODULE)
        return mirror


@dataclass(slots=True)
class Places:
    """For each row of the host: its node, and the time that no row inside it takes."""

    tree: ContextTree
    node: npt.NDArray[np.int32]
    self_microseconds: npt.NDArray[np.float32]


def find_places(columns: TraceColumns) -> Places:
    finder = _Finder(columns)
    for thread in finder.forward_threads_first():
        finder.follow(thread)
    return Places(finder.tree, finder.node, finder.self_microseconds)


class _Finder:
    def __init__(self, columns: TraceColumns) -> None:
        self._columns = columns
        self._start: Floats = np.frombuffer(columns.host.start, np.float64)
        self._duration = np.frombuffer(columns.host.duration, np.float32)
        self._thread = np.frombuffer(columns.host.thread, np.uint16)
        self._forward_of = self._arrows()
        self.tree = ContextTree()
        self.node = np.full(len(self._start), -1, np.int32)
        self.self_microseconds = self._duration.copy()

    def forward_threads_first(self) -> list[int]:
        first = set(np.frombuffer(self._columns.forward_ends.thread, np.uint16).tolist())
        return sorted(np.unique(self._thread).tolist(), key=lambda thread: (thread not in first, thread))

    def _arrows(self) -> dict[int, int]:
        """Backward row, and the engine's own row around it -> the forward row that the arrow comes from."""
        forward, backward = self._columns.forward_ends, self._columns.backward_ends
        from_row = dict(zip(forward.arrow, self._rows_at(forward)[0].tolist(), strict=True))
        found: dict[int, int] = {}
        for arrow, row, before in zip(
            backward.arrow, *(rows.tolist() for rows in self._rows_at(backward)), strict=True
        ):
            if row >= 0:
                found[row] = from_row.get(arrow, -1)
                if before >= 0 and self._columns.host.kind[before] == Kind.BACKWARD:
                    found[before] = found[row]
        return found

    def _rows_at(self, ends: Flows) -> tuple[Ints, Ints]:
        """The innermost row that begins on the thread at the moment, and the row before it; -1 where none does."""
        found, before = np.full((2, len(ends.at)), -1, np.int64)
        threads, moments = np.frombuffer(ends.thread, np.uint16), np.frombuffer(ends.at, np.float64)
        for thread in np.unique(threads).tolist():
            rows, wanted = self._ordered(thread), np.flatnonzero(threads == thread)
            if len(rows):
                at = np.searchsorted(self._start[rows], moments[wanted] + _SAME_MOMENT, side="right") - 1
                near = np.abs(self._start[rows[at]] - moments[wanted]) <= _SAME_MOMENT
                found[wanted[near]] = rows[at[near]]
                before[wanted[near]] = np.where(at[near] > 0, rows[at[near] - 1], -1)
        return found, before

    def _ordered(self, thread: int) -> Ints:
        """Rows of a thread by time; of two that begin together the longer one is outside."""
        rows = np.flatnonzero(self._thread == thread)
        return rows[np.lexsort((-self._duration[rows], self._start[rows]))]

    def _pieces(self, rows: Ints) -> Iterator[tuple[int, float, float]]:
        for begin in range(0, len(rows), _PIECE):
            piece = rows[begin : begin + _PIECE]
            yield from zip(piece.tolist(), self._start[piece].tolist(), self._duration[piece].tolist(), strict=True)

    def follow(self, thread: int) -> None:
        host, texts = self._columns.host, self._columns.names.texts
        opened: list[tuple[float, int, int]] = []  # end, row, node
        for row, start, duration in self._pieces(self._ordered(thread)):
            while opened and opened[-1][0] <= start:
                opened.pop()
            around = opened[-1][2] if opened else int(Phase.FORWARD)
            kind = Kind(host.kind[row])
            if kind in (Kind.STEP, Kind.OTHER):
                # What a program marks for itself has no part in where things are. It is not even nested: a step that
                # begins inside its optimizer's hook ends long after the optimizer.
                self.node[row] = around
                continue
            if opened:
                self.self_microseconds[opened[-1][1]] -= duration
            node = self._place(row, kind, texts[host.name[row]], around)
            self.node[row] = node
            opened.append((start + duration, row, node))

    def _place(self, row: int, kind: Kind, name: str, around: int) -> int:
        tree = self.tree
        if kind == Kind.OPTIMIZER:
            return tree.child(int(Phase.OPTIMIZER), name, Kind.OTHER)
        if kind == Kind.DATA:
            return int(Phase.DATA)
        if kind == Kind.MODULE:
            outside = int(Phase.FORWARD) if tree.phase[around] in (Phase.OPTIMIZER, Phase.DATA) else around
            return tree.child(outside, module_path(name), Kind.MODULE)
        if kind == Kind.BACKWARD or row in self._forward_of:
            around = tree.mirrored(self._known_node(self._forward_of.get(row, -1)))
        if kind == Kind.BACKWARD:
            return around  # the engine's own frame around an operator
        return tree.child(around, name, kind)

    def _known_node(self, row: int) -> int:
        return int(self.node[row]) if row >= 0 else -1
