"""The leave-one-GPU-out evaluation, on a synthetic twin of the public latencies."""

import gzip
import importlib
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from tonnage.estimate.kernels.rates import Rates
from tonnage.hardware import find_gpu

ACCURACY = Path(__file__).parents[2] / "benchmarks" / "accuracy"
GPUS = {
    "Tesla P4": "P4",
    "Tesla T4": "T4",
    "Tesla V100-PCIE-32GB": "V100 PCIe 32GB",
    "NVIDIA A100-PCIE-40GB": "A100 PCIe 40GB",
}
HOST_SECONDS = 30e-6
needs_scipy = pytest.mark.skipif(
    find_spec("scipy") is None, reason="scipy is not installed: pip install 'tonnage[fit]'"
)


@pytest.fixture
def data(monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    monkeypatch.syspath_prepend(str(ACCURACY))
    yield importlib.import_module("gpu_ops_data")
    for name in ("gpu_ops_data", "gpu_ops_fit", "gpu_ops"):
        sys.modules.pop(name, None)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Additions that follow the bandwidth, and one row of every other operator."""
    random = np.random.default_rng(0)
    lines = ["op,gpu,latency_ms,dims,kernel,grid,block"]
    for gpu, name in GPUS.items():
        for rows, width in (2 ** random.uniform(4, 14, (200, 2))).astype(int):
            device = 12.0 * rows * width / Rates.of(find_gpu(name)).stream
            latency = max(HOST_SECONDS, device + 0.5 * HOST_SECONDS) * 1e3
            lines.append(f"add,{gpu},{latency},b={rows} h={width},kernel,1x1x1,128x1x1")
    lines += [
        "linear,Tesla P4,1.0,b=1 m=100 n=200 k=300,maxwell_sgemm_128x64_tn,3x2x4,256x1x1",
        "bmm,Tesla P4,1.0,b=5 m=100 n=200 k=300,maxwell_sgemm_128x64_nn,3x2x5,256x1x1",
        "conv,Tesla P4,1.0,b=2 input_channel=3 output_channel=8 kernel_size=3 input_size=16 stride=1 "
        "padding=1,kernel,1x1x1,1x1x1",
        "ln,Tesla P4,1.0,b=64 h=128,kernel,1x1x1,1x1x1",
    ]
    (tmp_path / "fp32_ops.csv.gz").write_bytes(gzip.compress("\n".join(lines).encode()))
    bf16 = "gpu,m,n,k,latency_ms\nNVIDIA L40S,10,20,30,0.01\n"
    (tmp_path / "bf16_linear.csv.gz").write_bytes(gzip.compress(bf16.encode()))
    return tmp_path


def test_in_the_fp32_file_n_is_the_depth(data: ModuleType, folder: Path) -> None:
    table = data.read(folder)["linear"]["P4"].table

    assert (table.rows[0], table.columns[0], table.depth[0]) == (100, 300, 200)


def test_in_the_bf16_file_k_is_the_depth(data: ModuleType, folder: Path) -> None:
    table = data.read(folder)["bf16"]["L40S"].table

    assert (table.rows[0], table.columns[0], table.depth[0], table.itemsize[0]) == (10, 20, 30, 2)


def test_kernel_names_and_grids_tell_tiles_and_splits(data: ModuleType, folder: Path) -> None:
    rows = data.read(folder)
    found = [
        tuple(float(column[0, 0]) for column in (tiles.rows, tiles.columns, tiles.split))
        for tiles in (rows["linear"]["P4"].tiles, rows["bmm"]["P4"].tiles)
    ]

    assert found == [(64, 128, 4), (64, 128, 1)]


@needs_scipy
def test_a_left_out_gpu_that_follows_its_data_sheet_is_predicted_well(data: ModuleType, folder: Path) -> None:
    evaluate = importlib.import_module("gpu_ops")
    evaluation = evaluate.Evaluation("add", data.read(folder)["add"], {}, None)
    result = evaluation.result("T4", 200)

    assert result.specification < 0.05
    assert result.points < 0.05
    assert result.coverage > 0.8


@needs_scipy
@pytest.mark.slow
def test_left_out_gpus_of_the_public_data_are_predicted_within_the_bars(data: ModuleType) -> None:
    if not data.FOLDER.exists():
        pytest.skip(f"the public latencies are not in {data.FOLDER}")
    evaluate = importlib.import_module("gpu_ops")
    results = evaluate.evaluate(data.FOLDER, ["relu", "ln"], 400)

    assert np.mean([result.specification for result in results]) < evaluate.BARS["elementwise"] / 100
