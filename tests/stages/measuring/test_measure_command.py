"""`tonnage cluster measure` and `statistics` ask real agents."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from agents import cluster_text, token_file

from tonnage.hardware import read_cluster
from tonnage.split.fabric_of import fabric_of
from tonnage.split.statistics import fabric_under
from tonnage.split.statistics_file import read_statistics


def cluster_command(*words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "tonnage", "cluster", *words]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)


@pytest.fixture
def file(tmp_path: Path, addresses: list[str]) -> Path:
    path = tmp_path / "cluster.yaml"
    path.write_text(cluster_text(addresses))
    return path


def quick(token: Path) -> list[str]:
    return ["--repeats", "2", "--seconds", "0.05", "--token-file", str(token)]


def test_a_cluster_is_measured_and_filled_in(file: Path, token: Path, tmp_path: Path) -> None:
    output = tmp_path / "measured.yaml"
    result = cluster_command("measure", str(file), "--output", str(output), "--no-contention", *quick(token))
    assert (result.returncode, "error" in result.stderr) == (0, False)
    assert "a->b" in result.stdout
    cluster = read_cluster(output)
    assert [node.labels for node in cluster.nodes] == [{"rack": "r1"}] * 3
    assert cluster.node("a").memory_bytes > 2**30
    assert cluster.node("a").speed == 1.0
    assert cluster.bandwidth_bytes_second("a", "c") > 10e6
    assert 0 < cluster.latency_seconds("a", "c") < 0.1
    assert len(fabric_of(cluster).ways) == 6


def test_what_was_measured_is_printed_as_json(file: Path, token: Path) -> None:
    result = cluster_command("measure", str(file), "--reference", "b", "--json", *quick(token))
    found = json.loads(result.stdout)
    assert result.returncode == 0
    assert found["nodes"]["b"]["speed"] == 1.0
    assert [(link["from"], link["to"]) for link in found["links"]][:2] == [("a", "b"), ("a", "c")]
    assert len(found["together"]) == 6
    assert found["failures"] == []


def test_a_node_that_does_not_answer_is_named_and_the_rest_is_kept(
    tmp_path: Path, addresses: list[str], token: Path
) -> None:
    file, output = tmp_path / "cluster.yaml", tmp_path / "measured.yaml"
    file.write_text(cluster_text([*addresses[:2], "127.0.0.1:1"]))
    result = cluster_command("measure", str(file), "--output", str(output), *quick(token))
    assert result.returncode == 5
    assert "note: c: the agent at 127.0.0.1:1 does not answer: Connection refused" in result.stderr
    assert f"error: not measured: c\nhint: what was measured is in {output}" in result.stderr
    assert read_cluster(output).bandwidth_bytes_second("a", "b") > 10e6


def test_statistics_are_taken_and_scale_the_fabric(tmp_path: Path, token: Path, file: Path) -> None:
    measured, output = tmp_path / "measured.yaml", tmp_path / "statistics.json"
    cluster_command("measure", str(file), "--output", str(measured), "--no-contention", *quick(token))
    result = cluster_command("statistics", str(file), "--output", str(output), "--valid", "90s", *quick(token))
    assert (result.returncode, result.stdout, result.stderr) == (0, "", "")
    statistics = read_statistics(output)
    assert {entry.valid_seconds for entry in statistics.places} == {90.0}
    assert len(statistics.links) == 6
    now = statistics.places[0].taken_at
    fabric = fabric_under(fabric_of(read_cluster(measured)), statistics, now=now)
    assert all(device.memory_bytes < 2**50 and 0 < device.speed <= 1.5 for device in fabric.devices)


def test_a_lost_node_is_lost_in_the_statistics(tmp_path: Path, addresses: list[str], token: Path) -> None:
    file = tmp_path / "cluster.yaml"
    file.write_text(cluster_text([addresses[0], "127.0.0.1:1"]))
    result = cluster_command("statistics", str(file), "--no-links", *quick(token))
    assert result.returncode == 5
    nodes = json.loads(result.stdout)["nodes"]
    assert [(node["name"], node.get("lost", False)) for node in nodes] == [("a", False), ("b", True)]


def test_this_machine_needs_no_agent(tmp_path: Path) -> None:
    output = tmp_path / "here.yaml"
    result = cluster_command("measure", "--local", "--output", str(output))
    assert (result.returncode, result.stdout) == (0, "")
    assert len(read_cluster(output).nodes) == 1


def test_a_device_is_written_to_and_not_replaced(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with ThreadPoolExecutor(1) as pool:
        text = pool.submit(pipe.read_text)
        assert cluster_command("measure", "--local", "--output", str(pipe)).returncode == 0
        assert text.result().startswith("name: here")
    assert pipe.is_fifo()


def test_another_token_measures_nothing(file: Path, tmp_path: Path) -> None:
    other = token_file(tmp_path, "another token, long enough")
    result = cluster_command("measure", str(file), *quick(other))
    assert result.returncode == 5
    assert "the token is another one" in result.stderr


@pytest.mark.parametrize(
    ("words", "code", "sentence"),
    [
        (["measure"], 2, "give either a cluster file or --local"),
        (["measure", "missing.yaml"], 4, "no such file: missing.yaml"),
        (["measure", "FILE", "--local"], 2, "give either a cluster file or --local"),
        (["measure", "FILE", "--output", "/no/such/folder/x.yaml"], 4, "no such folder: /no/such/folder"),
        (["measure", "FILE", "--output", "/"], 2, "/ is a folder; give a file"),
        (["measure", "FILE", "--reference", "z", "--token-file", "TOKEN"], 4, "no node 'z' in cluster 'rig'"),
        (["measure", "FILE", "--token-file", "none"], 4, "no token: none is not there"),
        (["measure", "FILE", "--repeats", "0"], 2, "'--repeats'"),
        (["measure", "FILE", "--seconds", "1000"], 2, "'--seconds'"),
        (["statistics"], 2, "Missing argument"),
        (["statistics", "FILE", "--valid", "soon", "--token-file", "TOKEN"], 2, "--valid"),
    ],
)
def test_a_wrong_command_is_one_sentence(file: Path, token: Path, words: list[str], code: int, sentence: str) -> None:
    given = [{"FILE": str(file), "TOKEN": str(token)}.get(word, word) for word in words]
    result = cluster_command(*given)
    assert (result.returncode, sentence in result.stderr, result.stdout) == (code, True, ""), result.stderr
