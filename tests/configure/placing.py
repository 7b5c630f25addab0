"""Programs, inventories and labels for the tests of `configure` and `service`."""

from dataclasses import replace
from pathlib import Path
from typing import Any

from tonnage.configure.configuration import HardwareConfiguration
from tonnage.configure.label import ImageReference, Label, PredictedTime
from tonnage.configure.rules import Rules
from tonnage.configure.signing import KnownServer, public_key
from tonnage.configure.work import Work
from tonnage.hardware import Cluster, read_cluster
from tonnage.profile.indicators import Indicators
from tonnage.service.files import read_rules

EXAMPLE = Path(__file__).parents[2] / "examples" / "cluster.yaml"
DIGEST = "sha256:" + "a" * 64
NOW = 1_794_000_000
KEY = bytes(range(32))
SERVERS = {"laboratory": KnownServer(name="laboratory", public_key=public_key(KEY))}


def rules() -> Rules:
    return read_rules()


def example_cluster() -> Cluster:
    return read_cluster(EXAMPLE)


def cluster_of(folder: Path, text: str) -> Cluster:
    file = folder / "cluster.yaml"
    file.write_text(text)
    return read_cluster(file)


def indicators(**changes: Any) -> Indicators:
    """A training step of 100 ms on an RTX 3090, most of it computing."""
    values: dict[str, Any] = {
        "program": "train.py", "program_digest": DIGEST, "basis": "measured", "device": "cuda", "gpu": "RTX 3090",
        "steps": 20, "step_seconds": 0.1, "forward_seconds": 0.03, "backward_seconds": 0.05, "optimizer_seconds": 0.005,
        "h2d_seconds": 0.005, "idle_seconds": 0.01, "h2d_bytes": 40_000_000, "peak_gpu_bytes": 9 << 30,
        "peak_host_bytes": 6 << 30, "cpu_cores_used": 2.0, "loader_workers": 0,
    }  # fmt: skip
    return Indicators(**(values | changes))


def waiting(workers: int, wait: float = 0.1) -> Indicators:
    """The same, but the loop waits for its data."""
    return indicators(step_seconds=0.1 + wait, data_wait_seconds=wait, loader_workers=workers)


def work(**changes: Any) -> Work:
    return Work(**({"indicators": indicators()} | changes))


def a_label(**changes: Any) -> Label:
    label = Label(
        id="0123456789abcdef" * 2,
        server="laboratory",
        hardware=HardwareConfiguration(
            node_type="hopper", gpu="H200", gpu_count=2, communication="nvlink", pcie_generation=5, pcie_lanes=16,
            cpu_cores=8, sockets=1, memory_bytes=16 << 30, loader_workers=3, pinned_memory=True,
        ),
        image=ImageReference(reference="docker.io/pytorch/pytorch:2.13.0", digest="sha256:" + "b" * 64),
        program_digest=DIGEST,
        rules_version="2026.11",
        predicted=PredictedTime(seconds=30.5, low_seconds=20.0, high_seconds=40.0, steps=1000),
        issued_at=NOW - 10,
        expires_at=NOW + 3600,
    )  # fmt: skip
    return replace(label, **changes)
