"""`tonnage split` as people type it."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"
CHAIN: dict[str, Any] = {
    "maxFPGAs": 2, "maxCPUs": 0, "maxSizePerFPGA": 100.0,
    "nodes": [{"id": each, "fpgaLatency": 2.0, "cpuLatency": 20.0, "size": 1.0} for each in range(4)],
    "edges": [{"sourceId": each, "destId": each + 1, "cost": 1.0} for each in range(3)],
}  # fmt: skip
PROFILE = """\
node1 -- Input -- forward_compute_time=1.0, backward_compute_time=0.0, activation_size=1000.0, parameter_size=0.0
node2 -- Linear -- forward_compute_time=2.0, backward_compute_time=4.0, activation_size=1000.0, parameter_size=4000.0
node3 -- Linear -- forward_compute_time=2.0, backward_compute_time=4.0, activation_size=1000.0, parameter_size=4000.0
\tnode1 -- node2
\tnode2 -- node3
"""
NODES = """name: pair
nodes:
  - {name: one, cpu: {cores: 1}, memory: 1 GiB}
  - {name: two, cpu: {cores: 1}, memory: 1 GiB, speed: 2}
links:
  - {kind: ethernet, bandwidth: 10 Gbit/s}
"""


PERCEPTRON = """\
import torch
from torch import nn


class Loss(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(*(nn.Linear(256, 256) for _ in range(4)))

    def forward(self, inputs):
        return self.layers(inputs).square().mean()


def build(batch_size=512):
    return Loss(), torch.randn(batch_size, 256)
"""


def tonnage(*words: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "tonnage", *map(str, words)], capture_output=True, text=True, timeout=300, check=False
    )


@pytest.fixture
def public(tmp_path: Path) -> Path:
    path = tmp_path / "chain.json"
    path.write_text(json.dumps(CHAIN))
    return path


@pytest.fixture
def profile(tmp_path: Path) -> Path:
    path = tmp_path / "profile.txt"
    path.write_text(PROFILE)
    return path


@pytest.fixture
def nodes(tmp_path: Path) -> Path:
    path = tmp_path / "nodes.yaml"
    path.write_text(NODES)
    return path


def test_a_public_network_answers_by_the_contract(public: Path) -> None:
    result = tonnage("split", "--network", public, "--target", "throughput", "--contiguous", "--json")
    assert result.returncode == 0, result.stderr
    found = json.loads(result.stdout)
    assert found.keys() >= {"target", "value", "bound", "gap", "proven_optimal", "assignment", "seconds"}
    assert (found["target"], found["value"], found["bound"], found["gap"]) == ("throughput", 5.0, 5.0, 0.0)
    assert found["proven_optimal"] is True
    assert set(found["assignment"]) == {"0", "1", "2", "3"}


def test_a_public_network_is_split_for_latency(public: Path) -> None:
    found = json.loads(tonnage("split", "--network", public, "--target", "latency", "--json").stdout)
    assert found["value"] == 8.0  # all on one: nothing is moved
    assert found["proven_optimal"]


def test_a_front_lists_metrics_and_assignments(public: Path) -> None:
    found = json.loads(tonnage("split", "--network", public, "--front", "latency,throughput", "--json").stdout)
    values = [(each["metrics"]["latency"], each["metrics"]["throughput"]) for each in found["distributions"]]
    assert values == [(8.0, 8.0), (10.0, 5.0)]
    assert all(len(each["assignment"]) == 4 for each in found["distributions"])


def test_any_network_is_split_over_a_cluster(profile: Path, nodes: Path) -> None:
    found = json.loads(tonnage("split", profile, "--cluster", nodes, "--json").stdout)
    assert found["assignment"] == {"node1": "one", "node2": "two", "node3": "two"}
    assert found["value"] == found["metrics"]["period_seconds"] == pytest.approx(0.006)


def test_inputs_and_outputs_that_the_cluster_pins_count(profile: Path, nodes: Path) -> None:
    free = json.loads(tonnage("split", profile, "--cluster", nodes, "--target", "latency", "--json").stdout)
    nodes.write_text(NODES.replace("10 Gbit/s", "1 Mbit/s, latency: 0 s") + "inputs: one\noutputs: one\n")
    found = json.loads(tonnage("split", profile, "--cluster", nodes, "--target", "latency", "--json").stdout)
    # Two thousand bytes take 16 ms on their way to two and back, where half of 13 ms could be saved.
    assert (free["stages"], found["stages"]) == (["two"], ["one"])
    assert (free["value"], found["value"]) == (pytest.approx(0.0065), pytest.approx(0.013))
    assert found["proven_optimal"]


def test_a_pin_to_a_node_that_is_not_there_is_refused(nodes: Path, tmp_path: Path) -> None:
    operations = [{"id": "a", "seconds": {"any": 1.0}, "pinned": "three"}]
    path = tmp_path / "pinned.json"
    network = {"format": "tonnage-network", "version": 1, "name": "net", "operations": operations, "edges": []}
    path.write_text(json.dumps(network))
    result = tonnage("split", path, "--cluster", nodes)
    assert result.returncode == 2
    assert "operation a is pinned to 'three', which is not in the cluster" in result.stderr


def test_tables_name_devices_and_bounds(profile: Path, nodes: Path) -> None:
    result = tonnage("split", profile, "--cluster", nodes, "--target", "throughput", "--target", "latency")
    assert result.returncode == 0
    assert "throughput:" in result.stdout
    assert "latency:" in result.stdout
    assert "two" in result.stdout


def test_a_page_and_a_document_are_written(profile: Path, nodes: Path, tmp_path: Path) -> None:
    page, document = tmp_path / "split.html", tmp_path / "split.json"
    result = tonnage(
        "split", profile, "-c", nodes, "--front", "latency,throughput", "--html", page, "--output", document
    )
    assert result.returncode == 0, result.stderr
    assert page.read_text().startswith("<!DOCTYPE html>")
    assert json.loads(document.read_text())["distributions"]


def test_a_saved_network_is_split_again(profile: Path, nodes: Path, tmp_path: Path) -> None:
    saved = tmp_path / "network.json.gz"
    first = json.loads(tonnage("split", profile, "-c", nodes, "--save-network", saved, "--json").stdout)
    second = json.loads(tonnage("split", saved, "-c", nodes, "--json").stdout)
    assert first["value"] == second["value"]


def test_a_replan_tells_what_moves(profile: Path, nodes: Path, tmp_path: Path) -> None:
    last, statistics = tmp_path / "last.json", tmp_path / "now.yaml"
    last.write_text(tonnage("split", profile, "-c", nodes, "--json").stdout)
    statistics.write_text(
        "version: 1\ntaken_at: 2020-01-01T00:00:00Z\nvalid_seconds: 1000000000\n"
        "nodes: [{name: two, speed: {median: 0.1, p95: 0.1}}]\n"
    )
    result = tonnage("split", profile, "-c", nodes, "--replan", last, "--statistics", statistics, "--json")
    assert result.returncode == 0, result.stderr
    found = json.loads(result.stdout)
    assert found["pays"]
    assert found["distribution"]["value"] < found["old_period_seconds"]
    assert found["migration"]["moved_bytes"]


def test_devices_take_turns_where_they_may(public: Path, tmp_path: Path) -> None:
    alike, plain, last = (tmp_path / name for name in ("alike.yaml", "plain.json", "last.json"))
    nodes = "".join(f"  - {{name: n{each}, cpu: {{cores: 1}}, memory: 1 GiB}}\n" for each in range(3))
    alike.write_text(f"name: alike\nnodes:\n{nodes}links:\n  - {{kind: ethernet, bandwidth: 10 Gbit/s}}\n")
    words = ("split", "--network", public, "--cluster", alike)
    plain.write_text(tonnage(*words, "--json").stdout)
    assert json.loads(plain.read_text())["value"] == pytest.approx(0.04)
    shared = tonnage(*words, "--replicas", "--output", last, "--html", tmp_path / "page.html")
    assert shared.returncode == 0, shared.stderr
    assert "n1 in turn with n0" in shared.stdout
    found = json.loads(last.read_text())
    assert found["value"] == pytest.approx(0.08 / 3)
    assert found["replicas"] == {"n0": ["n1", "n2"]}
    for given in (("--replan", last), ("--replan", plain, "--replicas")):
        again = tonnage(*words, *given)
        assert again.returncode == 2
        assert "replicated stages" in again.stderr


@pytest.mark.slow
@pytest.mark.parametrize("training", [(), ("--train", "--micro-batches", "4")])
def test_a_program_runs_with_devices_that_take_turns(training: tuple[str, ...], tmp_path: Path) -> None:
    program = tmp_path / "model.py"
    program.write_text(PERCEPTRON)
    seen = tmp_path / "seen.json"
    result = tonnage(
        "split", f"{program}:build", "--cluster", EXAMPLES / "alike.yaml", "--replicas", "--run", *training,
        "--samples", "16", "--save-statistics", seen, "--json",
    )  # fmt: skip
    assert result.returncode == 0, result.stderr
    found = json.loads(result.stdout)
    (further,) = found["replicas"].values()
    assert found["run"]["report"]["largest_difference"] < 1e-6
    assert len(found["run"]["report"]["stages"]) == len(found["stages"]) + len(further)
    assert len(json.loads(seen.read_text())["nodes"]) == len(found["run"]["report"]["stages"])


@pytest.mark.slow
def test_the_example_runs_and_is_equal_to_the_last_bit(tmp_path: Path) -> None:
    result = tonnage(
        "split", f"{EXAMPLES / 'residual.py'}:build", "--cluster", EXAMPLES / "nodes.yaml", "--run", "--emulate",
        "--samples", "8", "--save-statistics", tmp_path / "seen.json", "--json",
    )  # fmt: skip
    assert result.returncode == 0, result.stderr
    found = json.loads(result.stdout)
    assert found["run"]["report"]["is_equal"] is True
    assert {each["what"] for each in found["run"]["beside"]} >= {"period", "latency"}
    assert json.loads((tmp_path / "seen.json").read_text())["nodes"]


@pytest.mark.parametrize(
    ("words", "code", "sentence"),
    [
        ((), 2, "name one network"),
        (("NETWORK", "--target", "speed"), 2, "no target 'speed'"),
        (("NETWORK", "--target", "energy"), 2, "energy is not known"),
        (("NETWORK", "--front", "latency"), 2, "two or three"),
        (("NETWORK", "--engine", "slurm"), 2, "--engine is about running"),
        (("NETWORK", "--recompute"), 2, "about training"),
        (("NETWORK", "--replicas"), 2, "no replicated stages"),
        (("NETWORK", "--html", "/nowhere/page.html"), 2, "no folder"),
        (("NETWORK", "--replan", "absent.json"), 4, "no file"),
        (("PROFILE",), 2, "which machines"),
        (("absent.json",), 4, "there is no file"),
        (("PROFILE", "--cluster", "NODES", "--run"), 2, "only a program"),
        (("PROFILE", "--cluster", "NODES", "--target", "step"), 2, "training alone"),
    ],
)
def test_mistakes_get_one_sentence(
    words: tuple[str, ...], code: int, sentence: str, public: Path, profile: Path, nodes: Path
) -> None:
    given = [{"NETWORK": public, "PROFILE": profile, "NODES": nodes}.get(word, word) for word in words]
    result = tonnage("split", *given)
    assert result.returncode == code, result.stderr
    assert sentence in result.stderr
    assert "Traceback" not in result.stderr


def test_what_does_not_fit_ends_with_three(tmp_path: Path) -> None:
    path = tmp_path / "tight.json"
    path.write_text(json.dumps(CHAIN | {"maxSizePerFPGA": 1.0}))
    result = tonnage("split", "--network", path, "--contiguous")
    assert result.returncode == 3
    assert "would be enough" in result.stderr


def test_a_cluster_in_two_parts_is_refused(profile: Path, tmp_path: Path) -> None:
    apart = tmp_path / "apart.yaml"
    apart.write_text(NODES.replace("links:\n  - {kind: ethernet, bandwidth: 10 Gbit/s}\n", ""))
    result = tonnage("split", profile, "--cluster", apart)
    assert result.returncode == 2
    assert "no way leads from one to two" in result.stderr


def test_old_statistics_are_refused_by_name(profile: Path, nodes: Path, tmp_path: Path) -> None:
    old = tmp_path / "old.yaml"
    old.write_text("version: 1\ntaken_at: 2020-01-01T00:00:00Z\nvalid_seconds: 60\nnodes: [{name: two, load: 0.5}]\n")
    result = tonnage("split", profile, "--cluster", nodes, "--statistics", old)
    assert result.returncode == 2
    assert "statistics of two" in result.stderr
