"""Reads what collect.py and collect_points.py wrote, as samples for the kernel model."""

import gzip
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tonnage.benchmark.kernel_samples import FLUSHED_BYTES, Sample, Source, samples_of
from tonnage.estimate.kernels.work import Rules
from tonnage.program.trace import Operator, TensorSpec
from tonnage.store.rows import KernelRow, Spread

RESULTS = Path(__file__).parent / "results"


def read_samples(gpu: str = "H200", folder: Path = RESULTS) -> Iterator[Sample]:
    """Samples of all layers and points in a folder of results."""
    for path in sorted(folder.glob("*.jsonl.gz")):
        with gzip.open(path, "rt") as lines:
            for line in lines:
                record = json.loads(line)
                yield from samples_of(_source(record, gpu), map(_row, record["kernels"]))


def _source(record: dict[str, Any], gpu: str) -> Source:
    if "measurement" in record:
        measurement = record["measurement"]
        return Source(
            key=measurement["key"],
            family=measurement["family"],
            gpu=gpu,
            footprint=float(measurement["allocated_bytes"] or FLUSHED_BYTES),
        )
    return Source(
        key=record["key"],
        family=record["family"],
        gpu=gpu,
        rules=Rules(matmul_tf32=bool(record["structure"].get("tf32", False))),
    )


def _row(plain: list[Any]) -> KernelRow:
    operator, phase, position, kernel, calls, mean, deviation = plain
    return KernelRow(
        operator=_operator(operator),
        phase=phase,
        position=position,
        kernel=kernel,
        calls=calls,
        seconds=Spread(mean, deviation),
    )


def _operator(plain: list[Any]) -> Operator:
    name, inputs, outputs, attributes = plain
    fixed = {key: tuple(value) if isinstance(value, list) else value for key, value in attributes.items()}
    return Operator(
        name, tuple(_spec(s) for s in inputs), tuple(s for s in map(_spec, outputs) if s is not None), fixed
    )


def _spec(plain: list[Any] | None) -> TensorSpec | None:
    return None if plain is None else TensorSpec(tuple(plain[0]), plain[1], plain[2], tuple(plain[3]))
