"""From indicators to a label, to a run, and back: predicted beside measured on both sides."""

import json
from pathlib import Path

import pytest
from placing import indicators
from serving import tonnage

from tonnage.service.client import Client
from tonnage.store.database import open_database

TRAINING = """
import torch
model = torch.nn.Linear(8, 8)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(60):
    model(torch.ones(4, 8)).sum().backward()
    optimizer.step()
print("loss 0.5")
"""
HERE = """
name: laboratory
nodes:
  - {name: here, cpu: {cores: 1}, memory: 4 GiB}
"""


@pytest.fixture
def inventory(tmp_path: Path, environment: None) -> Path:  # noqa: ARG001  (it says where files are)
    """This machine alone, so that what is configured can run here."""
    path = tmp_path / "cluster.yaml"
    path.write_text(HERE)
    return path


@pytest.fixture
def label(server: str) -> str:
    """Of a program that trains, for this machine."""
    Path("train.py").write_text(TRAINING)
    seen = indicators(
        program_digest="", device="cpu", gpu="", gpu_count=0, peak_gpu_bytes=None, peak_host_bytes=1 << 29
    )
    Path("seen.indicators.json").write_text(json.dumps(seen.as_dict()))
    assert tonnage("servers", "add", server, "--yes").returncode == 0
    made = tonnage("configure", "train.py", "--server", server, "--indicators", "seen.indicators.json")
    assert made.returncode == 0, made.stderr
    return str(json.loads(Path("label.json").read_text())["label"]["id"])


def test_what_a_run_did_goes_back_to_its_server(server: str, label: str) -> None:
    done = tonnage("deploy", "label.json", "--wait", "--json")
    assert done.returncode == 0, done.stderr
    assert "a step took" in done.stderr
    report = json.loads(done.stdout)["report"]
    view = Client(server).label(label)
    assert view.measurements[0].step_seconds == report["measured_step_seconds"]
    assert view.measurements[0].run == {"state": "succeeded", "steps": 59, "seconds": report["run_seconds"]}
    assert view.predicted_step_seconds == report["predicted_step_seconds"]

    identity = json.loads(done.stdout)["id"]
    assert tonnage("logs", identity).stdout == "loss 0.5\n"
    table = tonnage("status").stdout
    assert all(word in table for word in ("predicted", "measured"))
    assert len(Client(server).label(label).measurements) == 1  # told once, however often somebody looks


def test_a_run_is_a_measurement_of_the_benchmark_database(label: str, tmp_path: Path) -> None:
    assert tonnage("deploy", "label.json", "--wait").returncode == 0
    with open_database(tmp_path / "benchmark.db") as database:
        [(environment, measurement)] = list(database.measurements(family="program"))
    assert (environment.device, measurement.structure["label"]) == ("cpu", label)
    assert measurement.step_seconds is not None


def test_a_server_that_is_away_loses_nothing(server: str, label: str) -> None:
    known = Path("servers.json").read_text()
    Path("servers.json").write_text(known.replace(server, "http://127.0.0.1:9"))
    done = tonnage("deploy", "label.json", "--wait")
    assert done.returncode == 0
    assert "could not be reported" in done.stderr
    Path("servers.json").write_text(known)
    assert "measured" in tonnage("status").stdout
    assert len(Client(server).label(label).measurements) == 1
