"""A real Triton server answers the same requests as ours: a short run of benchmarks/serving/differential.py."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

pytest.importorskip("tritonclient", reason="tritonclient is not installed: pip install 'tritonclient[http,grpc]'")
sys.path.append(str(Path(__file__).parents[2] / "benchmarks" / "serving"))

from differential import differences, told
from peer_packages import triton_folder

REQUESTS = 600


@pytest.mark.slow
def test_triton_answers_as_we_do(tmp_path: Path) -> None:
    rows = differences(triton_folder(), tmp_path, REQUESTS, seed=7)
    assert sum(row.count for row in rows.values()) == REQUESTS
    different = [
        f"{told(case)}: ours {ours}, Triton's {theirs}" for row in rows.values() for case, ours, theirs in row.different
    ]
    assert different == []
