"""Regression trees as plain arrays, evaluated with numpy: many rows walk down all trees at once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True, eq=False)
class Trees:
    """All nodes of all trees in one list. An inner node sends a row left where its feature is at most the threshold; a
    leaf points to itself: rows that no longer move have arrived. NaN goes left."""

    roots: npt.NDArray[np.int32]
    feature: npt.NDArray[np.int16]
    threshold: Floats
    left: npt.NDArray[np.int32]
    right: npt.NDArray[np.int32]
    value: Floats
    depth: int

    def predict(self, rows: Floats) -> Floats:
        """The sum of the trees' answers for each row."""
        if len(rows) == 0 or len(self.roots) == 0:
            return np.zeros(len(rows))
        feature, children = self.feature.astype(np.intp), np.stack([self.left, self.right], axis=1).astype(np.intp)
        arrived = np.tile(self.roots.astype(np.intp), len(rows))
        first = np.repeat(np.arange(len(rows)) * rows.shape[1], len(self.roots))  # where a row begins in `rows`
        at, walking = arrived.copy(), np.arange(len(arrived))
        for _ in range(self.depth):
            goes_right = rows.take(first + feature.take(at)) > self.threshold.take(at)
            then = children.take(2 * at + goes_right)
            arrived[walking] = then
            moved = np.flatnonzero(then != at)
            at, walking, first = then.take(moved), walking.take(moved), first.take(moved)
        return np.asarray(self.value[arrived].reshape(len(rows), -1).sum(axis=1))

    def as_dict(self) -> dict[str, Any]:
        """Plain numbers; seven digits are more than the data ever had."""
        return {
            "roots": self.roots.tolist(),
            "feature": self.feature.tolist(),
            "threshold": [float(f"{t:.7g}") for t in self.threshold],
            "left": self.left.tolist(),
            "right": self.right.tolist(),
            "value": [float(f"{v:.5g}") for v in self.value],
            "depth": self.depth,
        }

    @classmethod
    def from_dict(cls, plain: Mapping[str, Any], feature_count: int) -> Trees:
        """Raises ValueError where these are no trees over rows with so many features."""
        depth = plain.get("depth")
        trees = cls(
            _column(plain, "roots", "iu").astype(np.int32),
            _column(plain, "feature", "iu").astype(np.int16),
            _column(plain, "threshold", "iuf").astype(np.float64),
            _column(plain, "left", "iu").astype(np.int32),
            _column(plain, "right", "iu").astype(np.int32),
            _column(plain, "value", "iuf").astype(np.float64),
            depth if isinstance(depth, int) else -1,
        )
        trees._check(feature_count)
        return trees

    def _check(self, feature_count: int) -> None:
        nodes = len(self.value)
        columns = (self.feature, self.threshold, self.left, self.right)
        if any(len(column) != nodes for column in columns):
            raise ValueError("columns of the trees differ in length")
        for pointer, limit in (
            (self.roots, nodes),
            (self.left, nodes),
            (self.right, nodes),
            (self.feature, feature_count),
        ):
            if len(pointer) and not 0 <= int(pointer.min()) <= int(pointer.max()) < limit:
                raise ValueError("a node of the trees points nowhere")
        if not 0 <= self.depth <= nodes:
            raise ValueError("the depth of the trees makes no sense")
        if not np.isfinite(self.value).all():
            raise ValueError("values of the trees are not all numbers")


def _column(plain: Mapping[str, Any], name: str, kinds: str) -> npt.NDArray[Any]:
    """A list of numbers; numpy alone would also take text for them, and cut off fractions."""
    column = np.array(plain.get(name))
    if column.ndim != 1 or (len(column) and column.dtype.kind not in kinds):
        raise ValueError(f"{name} of the trees must be a list of numbers")
    if (
        len(column)
        and "f" not in kinds
        and int(np.abs(column).max()) > np.iinfo(np.int16 if name == "feature" else np.int32).max
    ):
        raise ValueError(f"{name} of the trees has numbers that are too large")
    return column


def join(nested: Sequence[Mapping[str, Any]]) -> Trees:
    """Trees as nested dictionaries (`feature`, `threshold`, `left`, `right`, or `value`) as one `Trees`."""
    nodes: list[tuple[int, float, int, int, float]] = []
    deepest = 0

    def add(node: Mapping[str, Any], depth: int) -> int:
        nonlocal deepest
        deepest = max(deepest, depth)
        index = len(nodes)
        nodes.append((0, 0.0, index, index, float(node.get("value", 0.0))))
        if "feature" in node:
            left, right = add(node["left"], depth + 1), add(node["right"], depth + 1)
            nodes[index] = (int(node["feature"]), float(node["threshold"]), left, right, 0.0)
        return index

    roots = [add(tree, 0) for tree in nested]
    feature, threshold, left, right, value = zip(*nodes, strict=True) if nodes else ((),) * 5
    return Trees(
        np.array(roots, dtype=np.int32),
        np.array(feature, dtype=np.int16),
        np.array(threshold, dtype=np.float64),
        np.array(left, dtype=np.int32),
        np.array(right, dtype=np.int32),
        np.array(value, dtype=np.float64),
        deepest,
    )
