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


@pytest.mark.parametrize(
    ("name", "shape", "dtype", "dims", "bytes_taken"),
    [
        ("sum", (4096, 768), "bfloat16", (0,), 25166336),
        ("sum", (8192, 3072), "float16", (0,), 138412544),
        ("sum", (12608, 384), "float16", (0,), 38732288),
        ("sum", (197, 64, 1152), "float16", (0, 1), 116195840),
        ("sum", (16384, 30000), "float32", (0,), 245761024),
        ("sum", (8, 21, 512, 512), "float32", (2, 3), 4096),
        ("sum", (512, 1000), "float32", (0,), 0),
        ("sum", (64, 1000), "float16", (0,), 0),
        ("sum", (16, 512), "bool", (), 65536),
        ("mean", (8, 512, 512), "float32", (), 1536),
        ("mean", (256, 512, 7, 7), "float16", (-1, -2), 0),
        ("linalg_vector_norm", (4096, 1024), "float32", (), 2560),
        ("linalg_vector_norm", (3072, 1024), "float32", (-2,), 25166336),
        ("linalg_vector_norm", (52,), "float32", (), 0),
    ],
)
def test_a_reduction_takes_what_was_measured(
    name: str, shape: tuple[int, ...], dtype: str, dims: tuple[int, ...], bytes_taken: int
) -> None:
    operator = Operator(f"aten::{name}", (TensorSpec(shape, dtype),), (), {"dim": dims})
    assert predicted(operator) == bytes_taken


def test_nineteen_of_twenty_measured_reductions_are_met_exactly() -> None:
    rows = measured()
    exact = [operator for operator, taken in rows if predicted(operator) == taken]
    assert len(rows) > 150
    assert len(exact) >= 0.95 * len(rows)


def test_no_measured_reduction_is_missed_by_more_than_two_mebibytes() -> None:
    far = [(operator, taken) for operator, taken in measured() if abs(predicted(operator) - taken) > 2 << 20]
    assert far == []


def test_negative_dims_and_no_dims_mean_what_torch_means() -> None:
    spec = TensorSpec((4096, 768), "float32")
    assert reduction_scratch(spec, (-2,), H200_SMS) == reduction_scratch(spec, (0,), H200_SMS)
    assert reduction_scratch(spec, (), H200_SMS) == reduction_scratch(spec, (0, 1), H200_SMS)


@pytest.mark.parametrize("shape", [(), (1,), (1, 1, 1), (0,), (0, 8), (8, 0)])
def test_a_tensor_with_nothing_to_reduce_takes_nothing(shape: tuple[int, ...]) -> None:
    assert reduction_scratch(TensorSpec(shape, "float32"), (), H200_SMS) == ()


def test_fewer_multiprocessors_split_less() -> None:
    spec = TensorSpec((16384, 4096), "bfloat16")
    assert sum(reduction_scratch(spec, (0,), 40)) < sum(reduction_scratch(spec, (0,), H200_SMS))
