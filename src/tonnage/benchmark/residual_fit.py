"""Fits the residual trees of a GPU that has many rows of its own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from tonnage.benchmark.constant_fit import Rows, weights
from tonnage.errors import MissingDependency
from tonnage.estimate.kernels.constants import Constants
from tonnage.estimate.kernels.features import features
from tonnage.estimate.kernels.model import GROUPS, MOST_CORRECTION, Residual
from tonnage.estimate.kernels.roofline import seconds
from tonnage.estimate.kernels.work import KINDS
from tonnage.estimate.trees import Trees, join
from tonnage.hardware import Gpu

LEAST_GROUP_ROWS = 60  # a group of kinds with fewer rows keeps the roofline's answer
_ROUNDS = 250
_SETTINGS = {
    "objective": "l1", "learning_rate": 0.06, "num_leaves": 24, "min_data_in_leaf": 6, "feature_fraction": 0.7,
    "bagging_fraction": 0.8, "bagging_freq": 1, "num_threads": 1, "seed": 1, "deterministic": True, "verbose": -1,
}  # fmt: skip


def fit_residual(rows: Rows, gpu: Gpu, constants: Constants) -> Residual:
    """Trees for each group of kinds: the logarithm of measured over roofline seconds."""
    base = seconds(rows.table, rows.rates, constants)
    inputs = features(rows.table, rows.rates, base)
    target = np.clip(np.log(rows.measured / base), -MOST_CORRECTION, MOST_CORRECTION)
    weight = weights(rows.measured)
    trees = {}
    for group, kinds in GROUPS.items():
        chosen = np.isin(rows.table.kind, [KINDS.index(kind) for kind in kinds])
        if chosen.sum() >= LEAST_GROUP_ROWS:
            trees[group] = grow(inputs[chosen], target[chosen], weight[chosen])
    return Residual(gpu=gpu.name, architecture=gpu.architecture, trees=trees)


def grow(inputs: Any, target: Any, weight: Any, rounds: int = _ROUNDS) -> Trees:
    """Gradient-boosted trees, exported as plain arrays."""
    try:
        import lightgbm
    except ModuleNotFoundError:
        raise MissingDependency(
            "learning about one GPU needs the package lightgbm", "pip install 'tonnage[fit]'"
        ) from None
    grown = lightgbm.train(_SETTINGS, lightgbm.Dataset(inputs, target, weight=weight), rounds)
    return join([nested(tree["tree_structure"]) for tree in grown.dump_model()["tree_info"]])


def nested(node: Mapping[str, Any]) -> dict[str, Any]:
    """A node of lightgbm's dump as `trees.join` wants it."""
    if "leaf_value" in node:
        return {"value": node["leaf_value"]}
    return {
        "feature": node["split_feature"],
        "threshold": node["threshold"],
        "left": nested(node["left_child"]),
        "right": nested(node["right_child"]),
    }
