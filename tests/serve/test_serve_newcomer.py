"""`tonnage serve` as somebody meets it for the first time."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from page_rig import running

from tonnage.serve import page

EXAMPLE = Path(__file__).parents[2] / "examples" / "serving.py"
ANY_PORTS = ["--http-port", "0", "--grpc-port", "0", "--metrics-port", "0"]


def tonnage(*words: str, without: str = "") -> subprocess.CompletedProcess[str]:
    """`without` is a package that shall not be there."""
    code = f"import sys; sys.modules[{without!r}] = None; from tonnage.cli.main import main; main()"
    command = [sys.executable, "-c", code, *words]
    environment = os.environ | {"NO_COLOR": "1", "COLUMNS": "160"}
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False, env=environment)


def test_the_help_names_options_and_tuning() -> None:
    told = tonnage("serve", "--help").stdout
    assert "--http-port" in told
    assert "tonnage serve tune" in told


def test_without_a_folder_it_says_that_one_is_missing() -> None:
    ended = tonnage("serve")
    assert ended.returncode == 2
    assert "error: no models are named" in ended.stderr


def test_a_folder_that_is_not_there(tmp_path: Path) -> None:
    ended = tonnage("serve", str(tmp_path / "nowhere"))
    assert ended.returncode == 4
    assert "hint: expected a folder with MODEL/1/model.onnx" in ended.stderr


def test_a_file_is_no_folder(tmp_path: Path) -> None:
    (tmp_path / "model.onnx").write_bytes(b"")
    ended = tonnage("serve", str(tmp_path / "model.onnx"))
    assert ended.returncode == 2
    assert "is a file, not a folder of models" in ended.stderr


@pytest.mark.parametrize("file", ["model.onnx", "config.pbtxt", "1/model.pt2"])
def test_the_folder_of_one_model_is_not_that_of_several(tmp_path: Path, file: str) -> None:
    (tmp_path / "1").mkdir()
    (tmp_path / file).write_bytes(b"")
    ended = tonnage("serve", str(tmp_path))
    assert ended.returncode == 2
    assert "hint: name the folder around it" in ended.stderr


@pytest.mark.parametrize("option", ["--http-port", "--grpc-port", "--metrics-port"])
def test_a_port_that_is_taken(tmp_path: Path, option: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        ended = tonnage("serve", str(tmp_path), *ANY_PORTS, option, port)
    assert ended.returncode == 2
    assert f"port {port} of 127.0.0.1 cannot be used" in ended.stderr
    assert f"note: there are no models in {tmp_path} yet" in ended.stderr


@pytest.mark.parametrize("package", ["uvloop", "grpc", "httptools", "orjson"])
def test_a_package_that_is_missing(tmp_path: Path, package: str) -> None:
    ended = tonnage("serve", str(tmp_path), *ANY_PORTS, without=package)
    assert ended.returncode == 1
    assert f"error: the inference server needs the package {package}" in ended.stderr
    assert "hint: pip install 'tonnage[serve]'" in ended.stderr


@pytest.mark.slow
def test_the_example_is_served_and_answered(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    subprocess.run([sys.executable, EXAMPLE, "make", tmp_path], check=True, timeout=120)
    with running(tmp_path) as server:
        command = [sys.executable, EXAMPLE, "ask", server.http]
        told = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout
        shares = server.infer("brightness", [0.0] * 3072, [1, 3, 32, 32], name="image")["outputs"][0]
    assert told.startswith("output [2, 3] ")
    assert shares["data"] == pytest.approx([1 / 3] * 3)


def test_all_files_of_the_page_are_in_the_package() -> None:
    here = {each.name for each in Path(page.__file__).parent.iterdir() if each.suffix in (".html", ".css", ".js")}
    asked = [name for name in here if f"page/{name}" in page.file("index.html")[1].decode()]
    assert {*asked, "index.html"} == here
    assert all(page.file(name)[1] for name in here)
