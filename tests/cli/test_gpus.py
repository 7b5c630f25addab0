"""`tonnage gpus` and `tonnage cluster`, called as commands."""

import json
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from tonnage.cli import gpus as gpus_module
from tonnage.cli.cluster import check_command, schema_command
from tonnage.cli.gpus import gpus_command
from tonnage.errors import InvalidFile, NotFound, Unreachable
from tonnage.hardware import all_gpus, probe
from tonnage.hardware.fake_nvml import FakeNvml

EXAMPLE = str(Path(__file__).parents[2] / "examples" / "cluster.yaml")

app = typer.Typer()
app.command("gpus")(gpus_command)
app.command("check")(check_command)
app.command("schema")(schema_command)


def output(*arguments: str) -> str:
    result = CliRunner().invoke(app, arguments, catch_exceptions=False)
    assert result.exit_code == 0
    return result.stdout


def error(*arguments: str) -> BaseException | None:
    return CliRunner().invoke(app, arguments).exception


def test_the_list_names_every_gpu() -> None:
    listing = output("gpus")
    assert all(gpu.name in listing for gpu in all_gpus())


def test_one_gpu_is_shown_with_its_sources() -> None:
    detail = output("gpus", "t4")
    assert "Tesla T4 data sheet" in detail
    assert "PCIe 3 x16" in detail
    assert "0.526 USD an hour, 2024-12" in detail


def test_two_gpus_are_shown_as_a_table() -> None:
    listing = output("gpus", "H200", "L4")
    assert "H200" in listing
    assert "L4" in listing
    assert "RTX 4090" not in listing


def test_json_is_in_plain_units() -> None:
    (record,) = json.loads(output("gpus", "H200", "--json"))
    assert record["memory_bytes"] == 143771 * 2**20
    assert record["sources"]["context"] == ["h200_measured"]
    assert len(json.loads(output("gpus", "--json"))) == len(all_gpus())


def test_an_unknown_gpu_is_an_error_for_main_to_print() -> None:
    assert isinstance(error("gpus", "H20O"), NotFound)


def test_the_gpus_of_this_machine_are_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpus_module, "probe", lambda: probe(FakeNvml()))
    assert "driver 580.95.05, CUDA 13.0" in output("gpus", "--here")
    assert json.loads(output("gpus", "--here", "--json"))["gpus"][0]["gpu"] == "H200"


def test_a_machine_without_a_driver_is_an_error_for_main_to_print(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpus_module, "probe", lambda: probe(FakeNvml(has_driver=False)))
    assert isinstance(error("gpus", "--here"), Unreachable)


def test_no_color_leaves_no_escape_codes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    assert "\x1b[3" not in output("gpus", "H200")


def test_a_correct_cluster_is_summarised() -> None:
    summary = output("check", EXAMPLE)
    assert "laboratory: 7 nodes, 24 GPUs" in summary
    assert "hopper x 2" in summary


def test_a_cluster_can_be_printed_as_json() -> None:
    record = json.loads(output("check", EXAMPLE, "--json"))
    assert record["nodes"][0]["gpus"] == ["H200"] * 8
    assert record["links"][0]["members"][0] == "hopper-0/gpu0"


def test_a_wrong_cluster_is_an_error_for_main_to_print(tmp_path: Path) -> None:
    path = tmp_path / "cluster.yaml"
    path.write_text("nodes: 3\n")
    assert isinstance(error("check", str(path)), InvalidFile)


def test_the_schema_can_be_printed() -> None:
    assert json.loads(output("schema"))["title"] == "Tonnage cluster file"
