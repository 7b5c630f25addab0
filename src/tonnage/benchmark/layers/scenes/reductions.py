"""Many elements in, few out: sums, normalisation, softmax, losses."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import nn

from tonnage.benchmark.layers.scenes.bench import Bench, Function, Scene

REDUCTIONS: dict[str, Function] = {
    "sum": lambda x, dim: x.sum(dim),
    "mean": lambda x, dim: x.mean(dim),
    "largest": lambda x, dim: x.amax(dim),
    "norm": lambda x, dim: torch.linalg.vector_norm(x, dim=dim),
    "variance": lambda x, dim: x.var(dim),
    "argmax": lambda x, dim: x.argmax(dim),
    "cumulative": lambda x, dim: x.cumsum(dim),
    "logsumexp": lambda x, dim: x.logsumexp(dim),
}
_TOTALS: dict[str, Function] = {
    "sum": torch.sum,
    "mean": torch.mean,
    "norm": torch.linalg.vector_norm,
    "largest": torch.max,
}


def layer_norm(bench: Bench, rows: int, columns: int, rms: bool) -> Scene:
    return bench.layer(nn.RMSNorm(columns) if rms else nn.LayerNorm(columns), bench.tensor(rows, columns))


def softmax(bench: Bench, rows: int, columns: int, log: bool) -> Scene:
    return bench.scene(lambda x: F.log_softmax(x, -1) if log else F.softmax(x, -1), bench.tensor(rows, columns))


def reduction(bench: Bench, rows: int, columns: int, along: int, function: str) -> Scene:
    return bench.scene(lambda x: REDUCTIONS[function](x, along), bench.tensor(rows, columns))


def total(bench: Bench, rows: int, function: str) -> Scene:
    return bench.scene(_TOTALS[function], bench.tensor(rows))


def cross_entropy(bench: Bench, rows: int, columns: int) -> Scene:
    targets = bench.indices(columns, rows)
    return bench.scene(lambda x: F.cross_entropy(x, targets), bench.tensor(rows, columns))


MAKERS = (layer_norm, softmax, reduction, total, cross_entropy)
