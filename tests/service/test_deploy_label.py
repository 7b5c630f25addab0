"""`tonnage deploy label.json`, typed as a user types it: only what a known server has signed, and only once."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from placing import KEY, SERVERS, a_label
from serving import script

from tonnage.configure import label_json
from tonnage.configure.label import Label
from tonnage.configure.refusals import OtherProgram
from tonnage.configure.signing import sign
from tonnage.program.digest import program_digest
from tonnage.program.program import parse_program
from tonnage.service import labels
from tonnage.service.known_servers import add_server
from tonnage.service.label_jobs import job_of_label
from tonnage.service.label_program import write_program
from tonnage.service.seen_labels import SeenLabels

Deploy = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def label(tmp_path: Path) -> Path:
    """For this machine: no GPU, one core."""
    program, now = parse_program(str(script(tmp_path)), ("--epochs", "3")), int(time.time())
    hardware = replace(
        a_label().hardware, gpu="", gpu_count=0, communication="none", cpu_cores=1, memory_bytes=1 << 30, sockets=1,
        loader_workers=0,
    )  # fmt: skip
    signed = sign(
        a_label(hardware=hardware, program_digest=program_digest(program), issued_at=now, expires_at=now + 600), KEY
    )
    path = tmp_path / "label.json"
    path.write_bytes(label_json.dump(signed))
    write_program(path, program)
    return path


@pytest.fixture
def deploy(tmp_path: Path) -> Deploy:
    servers = tmp_path / "servers.json"
    add_server(SERVERS["laboratory"], servers)
    environment = os.environ | {
        "TONNAGE_STATE": str(tmp_path / "state"), "TONNAGE_SERVERS": str(servers),
        "TONNAGE_SEEN_LABELS": str(tmp_path / "seen.json"),
    }  # fmt: skip

    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "tonnage", "deploy", "label.json", *arguments]
        return subprocess.run(
            command, capture_output=True, text=True, check=False, cwd=tmp_path, env=environment, timeout=60
        )

    return run


def test_a_label_is_deployed_once(label: Path, deploy: Deploy) -> None:  # noqa: ARG001  (the label lies there)
    first = deploy("--wait", "--json")
    again = deploy("--wait")
    assert (first.returncode, json.loads(first.stdout)["state"]) == (0, "succeeded"), first.stderr
    assert (again.returncode, again.stderr.splitlines()[0]) == (2, "error: the label was deployed already")


def test_a_dry_run_shows_what_is_signed_and_uses_nothing_up(label: Path, deploy: Deploy) -> None:  # noqa: ARG001
    shown = deploy("--dry-run", "--engine", "kubernetes")
    assert "docker.io/pytorch/pytorch:2.13.0@sha256:" in shown.stdout
    assert "io.tonnage.label.signature" in shown.stdout
    assert "--epochs" in shown.stdout
    assert deploy("--wait").returncode == 0


def test_a_label_asks_for_its_type_of_node(label: Path, deploy: Deploy) -> None:  # noqa: ARG001
    dry = ("--dry-run", "--engine", "kubernetes")
    shown = deploy(*dry, "-o", "node_type_label=tonnage.io/node-type")
    assert (
        "- key: tonnage.io/node-type\n                operator: In\n                values:\n                - hopper"
        in shown.stdout
    )
    assert shown.stderr == ""
    assert deploy(*dry).stderr.startswith(
        "note: any node that is large enough may be taken, not only those of the type hopper"
    )


def test_a_deployment_that_fails_gives_the_label_back(label: Path, deploy: Deploy) -> None:  # noqa: ARG001
    assert deploy("--port", "x").returncode == 2
    assert deploy("--wait").returncode == 0


def test_what_the_label_says_cannot_be_said_again(label: Path, deploy: Deploy) -> None:  # noqa: ARG001
    refused = deploy("--cpus", "8")
    assert refused.returncode == 2
    assert "--cpus cannot be given with it" in refused.stderr


def test_a_changed_program_is_refused(label: Path, deploy: Deploy) -> None:
    (label.parent / "train.py").write_text("print('something else')\n")
    assert "is for a program with the digest" in deploy("--wait").stderr


def test_a_program_that_changes_after_it_was_verified_is_refused(
    label: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    add_server(SERVERS["laboratory"], tmp_path / "servers.json")
    monkeypatch.setenv("TONNAGE_SERVERS", str(tmp_path / "servers.json"))
    monkeypatch.setenv("TONNAGE_SEEN_LABELS", str(tmp_path / "seen.json"))
    verify = labels.verify

    def change_after(*arguments: Any, **more: Any) -> Label:
        verified = verify(*arguments, **more)
        (tmp_path / "train.py").write_text("print('something else')\n")
        return verified

    monkeypatch.setattr(labels, "verify", change_after)
    with pytest.raises(OtherProgram, match="was changed while it was deployed"), job_of_label(label, "local"):
        raise AssertionError("must not be reached")
    assert SeenLabels().ids() == set()


def test_an_altered_label_is_refused(label: Path, deploy: Deploy) -> None:
    label.write_bytes(label.read_bytes().replace(b'"cpu_cores":1', b'"cpu_cores":9'))
    refused = deploy("--wait")
    assert (refused.returncode, "signature" in refused.stderr) == (2, True)
