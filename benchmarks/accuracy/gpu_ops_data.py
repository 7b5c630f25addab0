"""Latencies of operators on GPUs of other people (../shared/data/gpu_ops): what their rows mean, as works.

In the fp32 file `n` of linear and bmm is the depth and `k` the columns (the launch grids prove it). Latencies include the
host's launch; those of convolutions grow with the position in the file, an artefact of the measuring process.
"""

from __future__ import annotations

import csv
import gzip
import re
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from tonnage.estimate.kernels.rates import Rates
from tonnage.estimate.kernels.table import Floats, WorkTable
from tonnage.estimate.kernels.tiles import Tiles
from tonnage.estimate.kernels.work import Work
from tonnage.hardware import Gpu, find_gpu

FOLDER = Path(__file__).parents[2].parent / "shared/data/gpu_ops"
NAMES = {
    "NVIDIA A100-PCIE-40GB": "A100 PCIe 40GB", "NVIDIA A100 80GB PCIe": "A100 PCIe 80GB", "Tesla V100-PCIE-32GB": "V100 PCIe 32GB",
    "Tesla P4": "P4", "Tesla T4": "T4", "Tesla P100-PCIE-16GB": "P100 PCIe 16GB", "NVIDIA A100-SXM4-80GB": "A100 SXM 80GB",
    "NVIDIA H100 80GB HBM3": "H100 SXM", "NVIDIA L40S": "L40S",
}  # fmt: skip
BINARY = ("add", "div", "mul", "pow")  # these read two tensors; with a `u` one and a number
ELEMENTWISE = ("add", "addu", "div", "divu", "gelu", "mul", "mulu", "pow", "powu", "relu", "tanh")
ROTATED_WEIGHTS = 6  # buffers among which the bf16 benchmark rotates its weights


@dataclass(frozen=True)
class Measured:
    """Rows of one operator on one GPU."""

    operator: str
    gpu: Gpu
    rates: Rates
    table: WorkTable
    seconds: Floats
    position: Floats  # in the measuring run, 0..1
    tiles: Tiles | None = None  # of the kernels that really ran, where their names tell
    has_host: bool = True  # do latencies include the launch?

    def take(self, chosen: np.ndarray) -> Measured:
        tiles = self.tiles and Tiles(
            *(column[chosen] for column in (self.tiles.rows, self.tiles.columns, self.tiles.slices, self.tiles.split))
        )
        return Measured(
            self.operator,
            self.gpu,
            self.rates,
            self.table.where(chosen),
            self.seconds[chosen],
            self.position[chosen],
            tiles,
            self.has_host,
        )

    def sample(self, count: int, seed: int) -> Measured:
        order = np.random.default_rng(seed).permutation(len(self.seconds))
        return self.take(np.sort(order[:count]))

    def __len__(self) -> int:
        return len(self.seconds)


def read(folder: Path, most: int = 3500) -> dict[str, dict[str, Measured]]:
    """By operator and GPU; of more than `most` rows a random part, always the same."""
    rows = defaultdict(list)
    for operator, gpu, *rest in [*_fp32_rows(folder), *_bf16_rows(folder)]:
        if gpu in NAMES:
            rows[operator, NAMES[gpu]].append(rest)
    found: dict[str, dict[str, Measured]] = defaultdict(dict)
    for (operator, gpu), group in rows.items():
        chosen = np.sort(np.random.default_rng(7).permutation(len(group))[:most])
        found[operator][gpu] = _measured(operator, find_gpu(gpu), group, chosen)
    return found


def _fp32_rows(folder: Path) -> Iterator[tuple[str, str, float, dict[str, int], str, str]]:
    with gzip.open(folder / "fp32_ops.csv.gz", "rt") as lines:
        for row in csv.DictReader(lines):
            dims = {key: int(float(value)) for key, value in (pair.split("=") for pair in row["dims"].split())}
            yield row["op"], row["gpu"], float(row["latency_ms"]) * 1e-3, dims, row["kernel"], row["grid"]


def _bf16_rows(folder: Path) -> Iterator[tuple[str, str, float, dict[str, int], str, str]]:
    with gzip.open(folder / "bf16_linear.csv.gz", "rt") as lines:
        for row in csv.DictReader(lines):
            yield "bf16", row["gpu"], float(row["latency_ms"]) * 1e-3, {key: int(row[key]) for key in "mnk"}, "", ""


def _measured(operator: str, gpu: Gpu, rows: list, chosen: np.ndarray) -> Measured:
    works = [work_of(operator, rows[index][1]) for index in chosen]
    table = WorkTable.of([work for work, _ in works], [footprint for _, footprint in works])
    seconds = np.array([rows[index][0] for index in chosen])
    return Measured(
        operator,
        gpu,
        Rates.of(gpu),
        table,
        seconds,
        chosen / len(rows),
        _tiles(operator, [rows[index] for index in chosen]),
    )


def work_of(operator: str, dims: dict[str, int]) -> tuple[Work, float]:
    """The work of a row and what its benchmark touches between two runs."""
    if operator in ("linear", "bmm"):
        return _product(dims["m"], dims["k"], dims["n"], dims.get("b", 1) if operator == "bmm" else 1, operator)
    if operator == "bf16":
        return _product(dims["m"], dims["n"], dims["k"], 1, operator)
    if operator == "conv":
        return _convolution(dims)
    rows, width = dims["b"], dims["h"]
    size = 4.0 * rows * width
    reads = 2 if operator in BINARY else 1
    kind = {"softmax": "softmax", "ln": "normalisation"}.get(operator, "pointwise")
    by_row = kind != "pointwise"
    work = Work(
        kind=kind, name=operator, read_bytes=reads * size, written_bytes=size, rows=rows if by_row else rows * width, depth=width if by_row else 1,
        batch=reads + 1,
    )  # fmt: skip
    return work, work.bytes


def _product(rows: int, columns: int, depth: int, batch: int, operator: str) -> tuple[Work, float]:
    size = 2 if operator == "bf16" else 4
    first, second, result = (float(size * batch * a * b) for a, b in ((rows, depth), (columns, depth), (rows, columns)))
    work = Work(
        kind="product", name=operator, operations=2.0 * rows * columns * depth * batch, read_bytes=first + second, written_bytes=result,
        arithmetic="bf16" if operator == "bf16" else "fp32", itemsize=size, rows=rows, columns=columns, depth=depth, batch=batch,
        second_transposed=operator != "bmm",
    )  # fmt: skip
    return work, first + result + second * (ROTATED_WEIGHTS if operator == "bf16" else 1)


def _convolution(dims: dict[str, int]) -> tuple[Work, float]:
    batch, channels, filters, side = dims["b"], dims["input_channel"], dims["output_channel"], dims["input_size"]
    window, stride = dims["kernel_size"], dims["stride"]
    out = (side + 2 * dims["padding"] - window) // stride + 1
    image, weight, result = (
        4.0 * n for n in (batch * channels * side**2, channels * filters * window**2, batch * filters * out**2)
    )
    work = Work(
        kind="convolution", name="conv", operations=2.0 * batch * out**2 * filters * channels * window**2, read_bytes=image + weight,
        written_bytes=result, rows=batch * out**2, columns=filters, depth=channels * window**2, window=window**2, stride=stride,
        images=batch, side=float(out),
    )  # fmt: skip
    return work, work.bytes


def _tiles(operator: str, rows: list) -> Tiles | None:
    """Columns x rows of the tile and how the depth was split, from the kernel's name and grid; NaN where they do not say."""
    if operator not in ("linear", "bmm"):
        return None
    found = np.full((len(rows), 4), np.nan)
    for index, (_, dims, kernel, grid) in enumerate(rows):
        match = re.search(r"_(\d+)x(\d+)(_sliced1x4)?", kernel)
        split = int(grid.split("x")[2]) / (dims.get("b", 1) if operator == "bmm" else 1)
        if match and split >= 1 and (operator == "linear" or split == 1):
            found[index] = int(match[2]), int(match[1]), 4 if match[3] else 1, split
    return Tiles(*(found[:, column, None] for column in range(4)))
