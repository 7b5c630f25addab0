"""The whole way on one machine: a server, a client, a label that is deployed once, and what was measured."""

import json
import re
import socket
import subprocess
from pathlib import Path
from typing import Any

import pytest
from placing import EXAMPLE, indicators
from serving import tonnage

from tonnage.cli.configure_server import configure_server_command
from tonnage.configure.refusals import Replayed
from tonnage.engines.ports import free_port
from tonnage.errors import InvalidFile, UsageError
from tonnage.program.program import parse_program
from tonnage.service.client import Client
from tonnage.service.indicators_of import indicators_from_file
from tonnage.service.known_servers import known_servers
from tonnage.service.labels import claimed
from tonnage.service.seen_labels import SeenLabels


def configure(url: str, *words: str) -> subprocess.CompletedProcess[str]:
    return tonnage("configure", "train.py", "--server", url, "--indicators", "seen.indicators.json", *words)


def test_from_indicators_to_a_measurement(server: str, tmp_path: Path) -> None:
    unknown = configure(server)
    assert unknown.returncode == 0, unknown.stderr
    assert "is not known here, so its label will not be deployed" in unknown.stderr
    assert tonnage("servers", "add", server, "--yes").returncode == 0
    assert re.search(r"^laboratory  http", tonnage("servers", "list").stdout)

    answered = configure(server, "--max-gpus", "8")
    assert (answered.returncode, answered.stderr) == (0, "label: label.json\n")
    assert "hardware       hopper: 8 x H200, nvlink (PCIe 5.0 x16)" in answered.stdout
    assert "puts hopper: 8 x H200, nvlink first" in " ".join(answered.stdout.split())

    program, seen = parse_program("train.py"), SeenLabels()
    with claimed(tmp_path / "label.json") as label:
        assert label.hardware.gpu_count == 8
    with pytest.raises(Replayed), claimed(tmp_path / "label.json", program, seen=seen):
        pass

    shown = Client(server).report(label.id, indicators(gpu="H200", program_digest=label.program_digest))
    assert shown == Client(server).label(label.id)
    assert shown.measurements[0].step_seconds == 0.1
    assert list(known_servers()) == ["laboratory"]


ANY_DEVICE = """
import torch
device = "cuda" if torch.cuda.is_available() else "cpu"
model = torch.nn.Linear(64, 64).to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(30):
    model(torch.ones(4, 64, device=device)).sum().backward()
    optimizer.step()
"""


def test_a_program_that_was_seen_on_a_processor_is_estimated_on_the_gpus(server: str) -> None:
    Path("any.py").write_text(ANY_DEVICE)
    done = tonnage("configure", "any.py", "--server", server, "--json")
    assert done.returncode == 0, done.stderr
    considered = {one["name"]: one["basis"] for one in json.loads(done.stdout)["choice"]["considered"]}
    assert considered["hopper: H200, pcie"] == "estimate"
    assert considered["hopper: no GPU"] == "measured"
    alone = tonnage("configure", "any.py", "--server", server, "--json", "--no-estimates")
    assert json.loads(alone.stdout)["choice"]["configuration"]["gpu"] == ""


def test_an_answer_says_what_does_not_fit(server: str) -> None:
    Path("seen.indicators.json").write_text(json.dumps(indicators(program_digest="", peak_gpu_bytes=1 << 40).as_dict()))
    refused = configure(server)
    assert refused.returncode == 3
    assert "GPU memory binds" in refused.stderr
    assert not Path("label.json").exists()


@pytest.mark.usefixtures("environment")
class TestWithoutAServer:
    def test_nobody_answers(self) -> None:
        refused = configure(f"http://127.0.0.1:{free_port()}")
        assert refused.returncode == 5
        assert "does not answer" in refused.stderr
        assert not Path("label.json").exists()

    @pytest.mark.parametrize("url", ["train.py", "ftp://host", "http://", "http://host:port", "http://host?x"])
    def test_an_address_that_is_none(self, url: str) -> None:
        with pytest.raises(UsageError, match="is no address of a server"):
            Client(url)

    @pytest.mark.parametrize(
        ("options", "message"),
        [
            ({"key": Path("damaged.key")}, "is no key, or a damaged one"),
            ({"rules": Path("bad.yaml")}, r"bad.yaml:2: rules\[0\]\.name: is missing"),
            ({"images": Path("bad.yaml")}, r"bad.yaml:1: formats: is missing"),
            ({"cluster": "bad.yaml"}, r"bad.yaml:1: nodes: is missing"),
            ({"listen": "nowhere"}, "is no address and port"),
            ({"name": "a b"}, "is no name of a server"),
            ({"valid": "2000d"}, "labels cannot be valid for 2000d"),
        ],
    )
    def test_a_server_that_cannot_start_says_why(self, options: dict[str, Any], message: str) -> None:
        Path("damaged.key").write_text("zz")
        Path("bad.yaml").write_text('version: "1"\nrules: [{whe: 1}]\n')
        with pytest.raises(UsageError, match=message):
            configure_server_command(**({"cluster": str(EXAMPLE), "key": Path("new.key")} | options))

    def test_a_port_that_is_taken(self) -> None:
        with socket.create_server(("127.0.0.1", 0)) as taken:
            address = f"127.0.0.1:{taken.getsockname()[1]}"
            with pytest.raises(UsageError, match=f"cannot listen at {address}"):
                configure_server_command(cluster=str(EXAMPLE), key=Path("new.key"), listen=address)

    def test_indicators_of_another_program_are_refused(self) -> None:
        Path("seen.indicators.json").write_text(json.dumps(indicators().as_dict()))
        with pytest.raises(UsageError, match=r"of another program than train\.py"):
            indicators_from_file(Path("seen.indicators.json"), parse_program("train.py"))

    @pytest.mark.parametrize("text", ["", "[]", "{", '{"program": "x"}', '{"indicators": {"steps": NaN}}'])
    def test_a_file_without_indicators_is_refused(self, text: str) -> None:
        Path("seen.indicators.json").write_text(text)
        with pytest.raises(InvalidFile, match="indicators"):
            indicators_from_file(Path("seen.indicators.json"), parse_program("train.py"))
