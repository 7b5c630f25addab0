"""What a user names is told apart by looking into it."""

from __future__ import annotations

import gzip
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tonnage.errors import InvalidFile, NotFound, UsageError
from tonnage.program.program import Program
from tonnage.split.checked import checked_network
from tonnage.split.network import Network, Operation
from tonnage.split.sources.network_file import write_network
from tonnage.split.sources.opening import open_network

PROFILE = "n1 -- A -- forward_compute_time=1, backward_compute_time=1, activation_size=1, parameter_size=1"


def network(name: str) -> Network:
    return checked_network(name, [Operation(id=1, seconds={"any": 1.0})], [])


def opened(target: str | Path) -> Network:
    def from_program(program: Program) -> Network:
        return network(f"{program.kind} {program.name}")

    def from_public(plain: Mapping[str, Any], name: str) -> Network:
        return network(f"public {name} with {plain['maxFPGAs']}")

    return open_network(target, from_program=from_program, from_public=from_public)


@pytest.mark.parametrize(
    ("name", "text", "found"),
    [
        ("a.json", json.dumps({"maxFPGAs": 6, "nodes": [], "edges": []}), "public a.json with 6"),
        ("a.json.gz", json.dumps({"maxFPGAs": 2, "nodes": [], "edges": []}), "public a.json.gz with 2"),
        ("a.txt", PROFILE, "a"),
        ("a.whatever.gz", PROFILE, "a.whatever"),
    ],
)
def test_files_are_told_apart_by_what_they_say(tmp_path: Path, name: str, text: str, found: str) -> None:
    path = tmp_path / name
    path.write_bytes(gzip.compress(text.encode()) if name.endswith(".gz") else text.encode())

    assert opened(path).name == found


def test_a_network_of_our_own_is_read_back(tmp_path: Path) -> None:
    write_network(network("net"), tmp_path / "a.json.gz")

    assert opened(tmp_path / "a.json.gz") == network("net")


def test_functions_and_onnx_files_are_programs(tmp_path: Path) -> None:
    (tmp_path / "model.onnx").write_bytes(b"onnx")

    assert opened("package.module:build").name == "function package.module:build"
    assert opened(tmp_path / "model.onnx").name == f"onnx {tmp_path}/model.onnx"


@pytest.mark.parametrize(
    ("name", "told", "hint"),
    [
        ("a.trace", "cannot be split: a trace tells what a program did", "model.py:build"),
        ("a.py", "names no function that builds a network", "a.py:build"),
        ("a.caffemodel", "holds weights; the network is in a prototxt", "deploy.prototxt"),
    ],
)
def test_programs_that_are_no_networks_are_refused(tmp_path: Path, name: str, told: str, hint: str) -> None:
    (tmp_path / name).write_text("something")

    with pytest.raises(UsageError, match=told) as refused:
        opened(tmp_path / name)

    assert hint in refused.value.hint


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("some words", "is no network"),
        ('{"a": 1}', "is JSON, but no network"),
        ('{"a": 1', "is not JSON"),
        ("[1, 2]", "is no network"),
    ],
)
def test_anything_else_is_refused(tmp_path: Path, text: str, told: str) -> None:
    (tmp_path / "a.json").write_text(text)

    with pytest.raises(InvalidFile, match=told) as refused:
        opened(tmp_path / "a.json")

    assert refused.value.hint


def test_a_file_that_is_not_there_is_told(tmp_path: Path) -> None:
    with pytest.raises(NotFound, match="there is no file"):
        opened(tmp_path / "a.json")
