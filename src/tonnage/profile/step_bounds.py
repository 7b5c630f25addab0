"""Where the steps of a trace begin and end on the host."""

from __future__ import annotations

from collections import Counter

import numpy as np

from tonnage.profile.trace_columns import Floats, Ints, Kind, TraceColumns

_STEP = "Optimizer.step#"


def host_steps(columns: TraceColumns) -> Floats:
    """Moments between steps, the first and the last included: n + 1 of them for n steps.

    Steps are marked by the profiler (`ProfilerStep#`), else an optimizer ends them, else the outermost module does;
    a trace that shows none of these is one step.
    """
    for find in (_marked, _by_optimizer, _by_module):
        bounds = find(columns)
        if len(bounds) > 1:
            return bounds
    return _everything(columns)


def _rows(columns: TraceColumns, kind: Kind) -> Ints:
    return np.flatnonzero(np.frombuffer(columns.host.kind, np.int8) == kind)


def _spans(columns: TraceColumns, rows: Ints) -> tuple[Floats, Floats]:
    starts = np.frombuffer(columns.host.start, np.float64)[rows]
    return starts, starts + np.frombuffer(columns.host.duration, np.float32)[rows]


def _marked(columns: TraceColumns) -> Floats:
    starts, ends = _spans(columns, _rows(columns, Kind.STEP))
    return np.append(np.sort(starts), ends.max()) if len(starts) else starts


def _by_optimizer(columns: TraceColumns) -> Floats:
    """A step ends with the last of its optimizers, which is the one that is last in the trace."""
    names, texts = columns.host.name, columns.names.texts
    rows = np.array([r for r in _rows(columns, Kind.OPTIMIZER).tolist() if texts[names[r]].startswith(_STEP)], np.int64)
    if not len(rows):
        return np.zeros(0)
    _, ends = _spans(columns, rows)
    last = names[int(rows[np.argmax(ends)])]
    own = np.array([names[row] == last for row in rows.tolist()])
    return np.append(_first_moment(columns), np.sort(ends[own]))


def _by_module(columns: TraceColumns) -> Floats:
    """Each call of the module that is called most often from outside any other."""
    rows = _rows(columns, Kind.MODULE)
    starts, ends = _spans(columns, rows)
    order = np.argsort(starts, kind="stable")
    reached = np.maximum.accumulate(ends[order]) if len(rows) else ends
    outermost = order[np.concatenate(([True], starts[order][1:] >= reached[:-1]))] if len(rows) else order
    if not len(outermost):
        return np.zeros(0)
    names = [columns.host.name[int(rows[at])] for at in outermost]
    leader = Counter(names).most_common(1)[0][0]
    own = outermost[np.array([name == leader for name in names])]
    return np.append(_first_moment(columns), np.sort(ends[own]))


def _first_moment(columns: TraceColumns) -> float:
    return float(np.frombuffer(columns.host.start, np.float64).min())


def _everything(columns: TraceColumns) -> Floats:
    begins, ends = [], []
    for rows in (columns.host, columns.device):
        if len(rows.start):
            starts = np.frombuffer(rows.start, np.float64)
            begins.append(starts.min())
            ends.append((starts + np.frombuffer(rows.duration, np.float32)).max())
    return np.array([min(begins), max(ends)]) if begins else np.zeros(0)
