"""`tonnage pack` as a command, on small files."""

import gzip
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

NODES = "sn,cpu_milli,memory_mib,gpu,model\n" + "".join(f"n{i},64000,262144,{4 if i else 8},G2\n" for i in range(6))
PODS = "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec\n" + "".join(
    f"p{i},4000,8192,{gpus},{milli},\n"
    for i, (gpus, milli) in enumerate([(1, 1000), (1, 470), (1, 320), (2, 1000), (0, 0)])
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("pack")
    (place / "nodes.csv").write_text(NODES)
    (place / "pods.csv").write_text(PODS)
    (place / "nodes.csv.gz").write_bytes(gzip.compress(NODES.encode()))
    (place / "pods.csv.gz").write_bytes(gzip.compress(PODS.encode()))
    (place / "cut.csv.gz").write_bytes(gzip.compress(PODS.encode())[:-20])
    (place / "empty.csv").write_text("")
    (place / "binary.csv").write_bytes(b"name,cpu_milli\n\xff\xfe")
    (place / "negative.csv").write_text(PODS + "bad,-1,1,1,1000,\n")
    (place / "no-gpus.csv").write_text("sn,cpu_milli,memory_mib,gpu,model\na,1,1,0,\n")
    return place


def pack(folder: Path, nodes: str, pods: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "tonnage.cli.main", "pack", "--nodes", nodes, "--pods", pods, *arguments], cwd=folder,
        capture_output=True, text=True, check=False, timeout=120, stdin=subprocess.DEVNULL,
    )  # fmt: skip


def answer(folder: Path, *arguments: str) -> dict[str, Any]:
    done = pack(folder, *arguments, "--json")
    assert done.returncode == 0, done.stderr
    document: dict[str, Any] = json.loads(done.stdout)
    return document


def test_the_document_holds_the_share_the_policy_and_the_time(folder: Path) -> None:
    document = answer(folder, "nodes.csv", "pods.csv", "--seeds", "3")
    shares = [entry["allocated_share"] for entry in document["seeds"]]
    assert document["policy"] == "room"
    assert document["allocated_share"] == pytest.approx(sum(shares) / 3)
    assert 0.8 < document["allocated_share"] <= 1
    assert document["seconds"] > 0
    assert document["capacity_gpus"] == 28


def test_packed_files_give_the_same_answer(folder: Path) -> None:
    plain = answer(folder, "nodes.csv", "pods.csv", "--seeds", "2")
    packed = answer(folder, "nodes.csv.gz", "pods.csv.gz", "--seeds", "2")
    assert plain["seeds"] == packed["seeds"]


def test_compare_runs_every_other_policy(folder: Path) -> None:
    document = answer(folder, "nodes.csv", "pods.csv", "--seeds", "1", "--policy", "fgd", "--compare")
    compared = {entry["policy"] for entry in document["compared"]}
    assert document["policy"] == "fgd"
    assert compared == {"room", "best-fit", "dot-product", "clustering", "random"}


def test_the_table_has_a_line_for_each_policy(folder: Path) -> None:
    done = pack(folder, "nodes.csv", "pods.csv", "--seeds", "1", "--compare")
    assert done.returncode == 0
    assert done.stdout.startswith("6 nodes with 28 GPUs, mean of 1 order of arrival")
    assert len(done.stdout.splitlines()) == 8
    assert done.stderr == ""


@pytest.mark.parametrize(
    ("nodes", "pods", "arguments", "code", "words"),
    [
        ("nodes.csv", "missing.csv", [], 4, "there is no file missing.csv"),
        ("missing.csv", "pods.csv", [], 4, "there is no file missing.csv"),
        ("nodes.csv", "empty.csv", [], 2, "empty.csv is empty"),
        ("nodes.csv", "nodes.csv", [], 2, "there is no column name"),
        ("no-gpus.csv", "pods.csv", [], 2, "no node has a GPU"),
        ("nodes.csv", "negative.csv", [], 2, "negative.csv, line 7: cpu_milli must be from 0"),
        ("nodes.csv", "cut.csv.gz", [], 2, "cut.csv.gz cannot be read"),
        ("nodes.csv", "binary.csv", [], 2, "binary.csv, line 2: this is no text"),
        ("nodes.csv", ".", [], 2, "cannot be read"),
        ("nodes.csv", "pods.csv", ["--policy", "luck"], 2, "there is no policy 'luck'"),
        ("nodes.csv", "pods.csv", ["--seeds", "0"], 2, "--seeds"),
    ],
)  # fmt: skip
def test_bad_input_is_told_in_one_sentence(
    folder: Path, nodes: str, pods: str, arguments: list[str], code: int, words: str
) -> None:
    done = pack(folder, nodes, pods, *arguments)
    assert done.returncode == code
    assert words in done.stderr.splitlines()[0]
    assert "Traceback" not in done.stderr
    assert done.stdout == ""
