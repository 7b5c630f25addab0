"""`tonnage deploy service.yaml` and what belongs to it, typed as a user types it; nothing is started."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

Run = Callable[..., subprocess.CompletedProcess[str]]
TEXT = "name: classifier\nimage: localhost/tonnage:1\nmodels: models\nports: {http: 1}\n"


@pytest.fixture
def tonnage(tmp_path: Path) -> Run:
    (tmp_path / "models").mkdir()
    (tmp_path / "service.yaml").write_text(TEXT)
    environment = {**os.environ, "TONNAGE_STATE": str(tmp_path / "state"), "KUBECONFIG": str(tmp_path / "none")}

    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "tonnage", *arguments], capture_output=True, text=True, check=False, cwd=tmp_path,
            env=environment, timeout=60,
        )  # fmt: skip

    return run


def test_a_dry_run_prints_what_kubectl_takes(tonnage: Run, tmp_path: Path) -> None:
    (tmp_path / "service.yaml").write_text(TEXT.replace("models: models", "models: pvc:models"))
    done = tonnage("deploy", "service.yaml", "-e", "kubernetes", "--dry-run", "--name", "other", "-o", "namespace=ml")
    assert done.returncode == 0, done.stderr
    documents = list(yaml.safe_load_all(done.stdout))
    assert [document["kind"] for document in documents] == ["ConfigMap", "Deployment", "Service"]
    assert {document["metadata"]["name"] for document in documents} == {"other"}
    assert {document["metadata"]["namespace"] for document in documents} == {"ml"}


def test_a_dry_run_as_json_has_the_same_text(tonnage: Run) -> None:
    arguments = ("deploy", "service.yaml", "-e", "podman", "--dry-run")
    assert json.loads(tonnage(*arguments, "--json").stdout)["manifest"] == tonnage(*arguments).stdout


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        ((), 2, "service.yaml is a service, and local runs none"),
        (("-e", "podman", "--cpus", "2"), 2, "--cpus cannot be given with it"),
        (("-e", "podman", "--shared-memory", "1GiB"), 2, "--shared-memory cannot be given with it"),
        (("-e", "podman", "--", "more"), 2, "arguments cannot be given with it"),
        (("-e", "kubernetes"), 2, "service.yaml:3: models: is a folder of this machine"),
        (("-e", "podman", "--name", "Not_Valid"), 2, "'Not_Valid' cannot be a name"),
    ],
)
def test_bad_input_is_one_sentence(tonnage: Run, arguments: tuple[str, ...], code: int, words: str) -> None:
    done = tonnage("deploy", "service.yaml", *arguments)
    assert done.returncode == code, done.stderr
    assert words in done.stderr
    assert done.stderr.count("\n") <= 2
    assert json.loads(tonnage("status", "--json").stdout) == {"deployments": []}


def test_a_folder_that_nobody_can_read_is_refused(tonnage: Run, tmp_path: Path) -> None:
    (tmp_path / "models").chmod(0o750)
    done = tonnage("deploy", "service.yaml", "-e", "podman")
    assert "service.yaml:3: models:" in done.stderr
    assert "cannot be read by nobody" in done.stderr


def test_the_files_of_an_image_are_written(tonnage: Run, tmp_path: Path) -> None:
    (tmp_path / "service.yaml").write_text(TEXT + "install: ['tonnage[serve]']\n")
    done = tonnage("serve", "containerfile", "service.yaml", "--folder", "made")
    assert done.stdout == "podman build --tag IMAGE made\n", done.stderr
    assert (tmp_path / "made" / "Containerfile").read_text().startswith("FROM localhost/tonnage:1\n")


def test_the_schema_is_printed(tonnage: Run) -> None:
    assert json.loads(tonnage("serve", "schema").stdout)["title"] == "Tonnage service file"
