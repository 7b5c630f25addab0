"""The same from Python: configure, deploy, wait, compare."""

from pathlib import Path

import pytest
from test_closed_loop import TRAINING

import tonnage
from tonnage.errors import NotFound, UsageError
from tonnage.service.client import Client
from tonnage.service.known_servers import add_server


@pytest.fixture
def inventory(tmp_path: Path, environment: None) -> Path:  # noqa: ARG001  (it says where files are)
    path = tmp_path / "cluster.yaml"
    path.write_text("name: laboratory\nnodes:\n  - {name: here, cpu: {cores: 1}, memory: 4 GiB}\n")
    return path


def test_from_a_program_to_what_it_took(server: str) -> None:
    add_server(Client(server).server())
    Path("train.py").write_text(TRAINING)
    configured = tonnage.configure("train.py", server=server, run_steps=60)
    assert configured.label.hardware.node_type == "here"
    assert configured.warnings == ()
    deployed = tonnage.deploy(configured.path)
    assert deployed.wait(60).exit_code == 0
    assert list(deployed.logs()) == ["loss 0.5"]
    assert deployed.report["measured_step_seconds"] > 0
    assert deployed.stop(remove=True).state == "succeeded"


def test_a_script_with_resources(tmp_path: Path, environment: None) -> None:  # noqa: ARG001
    script = tmp_path / "hello.py"
    script.write_text("import os\nprint(os.environ['WHO'])\n")
    deployed = tonnage.deploy(script, memory="1GiB", environment={"WHO": "you"}, name="hello")
    deployed.wait(30)
    assert (repr(deployed), list(deployed.logs())) == ("<hello on local>", ["you"])


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"program": "nothing.py"}, NotFound, "there is no file"),
        ({"program": "a.onnx"}, UsageError, "is no script"),
        ({"program": "train.py", "engine": "podman"}, UsageError, "needs an image"),
        ({"program": "train.py", "memory": "much"}, UsageError, "memory much"),
        ({"program": "label.json", "gpus": 2}, UsageError, "says what runs"),
        ({"program": "train.py", "engine": "moon"}, NotFound, "moon"),
    ],
)
def test_what_cannot_be_deployed(
    environment: None,  # noqa: ARG001
    arguments: dict[str, object],
    error: type[Exception],
    message: str,
) -> None:
    with pytest.raises(error, match=message):
        tonnage.deploy(**arguments)
