"""Triton's own load generator drives the server as it is, over every transport."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("onnx", reason="onnx is not installed")

from peer_packages import perf_analyzer
from served_models import add_sub
from server_rig import Served, serving

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    repository: Path = tmp_path_factory.mktemp("models")
    add_sub(repository / "add_sub")
    with serving(repository) as started:
        yield started


@pytest.mark.parametrize(
    "options",
    [
        "-i http",
        "-i grpc",
        "-i http --shared-memory system",
        "-i grpc --shared-memory system",
        "-i grpc --streaming",
        "-i http -b 4 --concurrency-range 4",
        "-i grpc --async --concurrency-range 4",
    ],
)
def test_perf_analyzer_measures_the_server(served: Served, options: str) -> None:
    program, environment = perf_analyzer()
    address = served.http if "http" in options else served.grpc
    command = [str(program), "-m", "add_sub", "-u", address, *options.split(), "--measurement-mode", "count_windows"]
    command += ["--measurement-request-count", "20", "-s", "1000"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
    throughput = re.search(r"Throughput: ([\d.]+) infer/sec", done.stdout)
    assert throughput is not None, done.stdout
    assert float(throughput[1]) > 0
