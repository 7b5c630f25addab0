"""Time in a trace by operator, by module and by stack."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from tonnage.profile.context_tree import Places
from tonnage.profile.report import Stack, TimeRow
from tonnage.profile.trace_columns import Floats, Ints, Kind, TraceColumns

Flags = np.ndarray[tuple[int], np.dtype[np.bool_]]
_SECOND = 1e6  # traces count microseconds
_MOST_ROWS = 100


@dataclass(frozen=True, slots=True)
class DeviceView:
    """What ran on the device that worked most, in the order of the trace."""

    start: Floats
    end: Floats
    begin: Floats  # earlier than `start` by what the device needs to begin it
    work: Ints
    phase: Ints
    node: Ints
    row: Ints  # in the columns
    step: Ints
    is_earlier: Flags  # launched before the first step that counts


class TraceTables:
    """Means of a step. `inside` marks the rows of the host that belong to the steps that count."""

    def __init__(
        self, columns: TraceColumns, places: Places, inside: Flags, device: DeviceView | None, count: int
    ) -> None:
        self._columns, self._places, self._inside, self._device, self._count = columns, places, inside, device, count

    @cached_property
    def _seconds_by_node(self) -> dict[int, tuple[float, float, int]]:
        """Seconds of device and host and calls in all steps, of rows by their node."""
        nodes = len(self._places.tree.parent)
        at = self._places.node[self._inside]
        host = np.bincount(at, np.clip(self._places.self_microseconds[self._inside], 0, None), nodes) / _SECOND
        # A frame of autograd's engine has the place of a module, and is no call of it.
        is_call = np.array(self._places.tree.kind)[at] == np.frombuffer(self._columns.host.kind, np.int8)[self._inside]
        calls = np.bincount(at[is_call], minlength=nodes)
        device = np.zeros(nodes)
        if self._device is not None:
            chosen = self._device.step >= 0
            spans = (self._device.end - self._device.start)[chosen]
            device = np.bincount(self._device.node[chosen], spans, nodes) / _SECOND
        taken = np.flatnonzero(calls + host + device > 0).tolist()
        return {n: (float(device[n]), float(host[n]), int(calls[n])) for n in taken}

    @property
    def operators(self) -> tuple[TimeRow, ...]:
        tree, nodes = self._places.tree, self._seconds_by_node
        return self._table((tree.operator(node), tree.kind[node] == Kind.OPERATOR, node) for node in nodes)

    @property
    def modules(self) -> tuple[TimeRow, ...]:
        tree, nodes = self._places.tree, self._seconds_by_node
        return self._table((tree.module(node), tree.kind[node] == Kind.MODULE, node) for node in nodes)

    def _table(self, named: Iterable[tuple[str, bool, int]]) -> tuple[TimeRow, ...]:
        """Nodes of one name together, with whether a node is a call of what is named."""
        sums: defaultdict[str, list[float]] = defaultdict(lambda: [0.0, 0.0, 0.0])
        for name, is_call, node in named:
            if name:
                device, host, calls = self._seconds_by_node[node]
                row = sums[name]
                row[0], row[1], row[2] = row[0] + device, row[1] + host, row[2] + calls * is_call
        rows = [
            TimeRow(name=name, device_seconds=d / self._count, host_seconds=h / self._count, calls=c / self._count)
            for name, (d, h, c) in sums.items()
        ]
        return tuple(sorted(rows, key=lambda row: (-row.device_seconds, -row.host_seconds)))[:_MOST_ROWS]

    @cached_property
    def stacks(self) -> tuple[Stack, ...]:
        """Seconds of one step by phase, module and operator; on a GPU kernels are the last frame."""
        seconds = self._operator_stacks() if self._device is None else self._kernel_stacks(self._device)
        return tuple(
            Stack(frames=frames, seconds=total / self._count) for frames, total in sorted(seconds.items()) if total > 0
        )

    def _operator_stacks(self) -> dict[tuple[str, ...], float]:
        tree = self._places.tree
        return {tuple(tree.frames(node)): host for node, (_, host, _) in self._seconds_by_node.items()}

    def _kernel_stacks(self, device: DeviceView) -> dict[tuple[str, ...], float]:
        names, texts = self._columns.device.name, self._columns.names.texts
        sums: defaultdict[tuple[int, int], float] = defaultdict(float)
        for at in np.flatnonzero(device.step >= 0).tolist():
            sums[int(device.node[at]), names[int(device.row[at])]] += float(device.end[at] - device.start[at]) / _SECOND
        found: defaultdict[tuple[str, ...], float] = defaultdict(float)
        for (node, name), seconds in sums.items():
            found[(*self._without_launch(node), texts[name])] += seconds
        return found

    def _without_launch(self, node: int) -> list[str]:
        tree = self._places.tree
        return tree.frames(tree.parent[node] if tree.kind[node] == Kind.LAUNCH else node)
