"""Scratch memory of reductions against what an H200 took (benchmarks/accuracy, torch 2.11)."""

import gzip
import json
import re
from pathlib import Path
from typing import Any

import pytest

from tonnage.estimate import workspace
from tonnage.estimate.reductions import reduction_scratch
from tonnage.hardware import find_gpu
from tonnage.program.trace import Operator, Origin, TensorSpec

RESULTS = Path(__file__).parents[2] / "benchmarks/accuracy/results/h200-2026-11-15-operators.jsonl.gz"
NAMES = {
    "aten.sum.dim_IntList": "aten::sum", "aten.sum.default": "aten::sum", "aten.mean.dim": "aten::mean",
    "aten.mean.default": "aten::mean", "aten.linalg_vector_norm.default": "aten::linalg_vector_norm",
}  # fmt: skip
_TENSOR = re.compile(r"(\w+)\[([\d,]*)\](?:/(channels_last))?")
H200_SMS = 132


def measured() -> list[tuple[Operator, int]]:
    """Reductions of dense tensors, and the bytes that each took beyond its result."""
    rows: dict[str, tuple[Operator, int]] = {}
    with gzip.open(RESULTS, "rt") as lines:
        for row in map(json.loads, lines):
            arguments: dict[str, Any] = row.get("arguments", {})
            tensor = _TENSOR.fullmatch(str(arguments.get("self")))
            if row.get("operator") in NAMES and tensor:
                shape = tuple(int(size) for size in tensor[2].split(",") if size)
                spec = TensorSpec(shape, tensor[1], tensor[3] or "contiguous")
                dims = tuple(arguments.get("dim") or ())
                operator = Operator(NAMES[row["operator"]], (spec,), (), {"dim": dims})
                rows[f"{operator.name} {spec} {dims}"] = operator, row["temporary_max"]
    return list(rows.values())


def predicted(operator: Operator) -> int:
    sizes = workspace.temporaries(operator, find_gpu("H200"), Origin(program=""))
    return sum(-(-size // 512) * 512 for size in sizes)


def test_print() -> None:
    rows = measured()
    good = [(o, m) for o, m in rows if predicted(o) == m]
    bad = [(o, m) for o, m in rows if predicted(o) != m]
    print(len(rows), len(good), sum(m > 0 for _, m in good))
    for o, m in bad: print("BAD", o.name, o.inputs[0], o.attributes, m, predicted(o))
    for o, m in good:
        if m: print("GOOD", o.name, o.inputs[0].shape, o.inputs[0].dtype, o.inputs[0].layout, o.attributes, m)
