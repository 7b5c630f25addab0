"""service.yaml: what it may say, and how mistakes in it are told."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import fields
from pathlib import Path

import jsonschema
import pytest
import typer
import yaml

from tonnage.cli.main import app
from tonnage.errors import InvalidFile, NotFound
from tonnage.serve.service_file import read_service
from tonnage.serve.service_folders import folders_of
from tonnage.serve.service_models import ServerSection
from tonnage.serve.service_schema import published_schema, schema_text
from tonnage.serve.settings import ServeSettings, SettingsSource, settings_of

EXAMPLES = Path(__file__).parents[2] / "examples"


def write(folder: Path, text: str) -> Path:
    path = folder / "service.yaml"
    path.write_text(text)
    return path


def test_models_are_all_that_must_be_said(tmp_path: Path) -> None:
    service = read_service(write(tmp_path, "models: models\n"))
    assert service.models == ("folder", str(tmp_path / "models"))
    assert (service.file.ports.http, service.file.server.control) == (8000, "explicit")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("name: a\n", r":1: models: is missing"),
        (
            "models: m\nserver:\n  contrl: poll\n",
            r":3: server\.contrl: there is no such field here; did you mean control",
        ),
        (
            "models: m\nserver:\n  control: pol\n",
            r":3: server\.control: must be 'none', 'explicit' or 'poll', not 'pol'",
        ),
        ("models: m\nresources:\n  memory: 8\n", r":3: resources\.memory: must be a size with its unit"),
        ("models: m\n\nports: {http: 70000}\n", r":3: ports\.http: must be at most 65535, not 70000"),
        ("models: m\ninstances: two\n", r":2: instances: must be a whole number, not 'two'"),
        ("models: 'node:models'\n", r":1: models: node: takes a full path"),
        ("models: 'pvc:'\n", r":1: models: pvc: takes the name"),
        ("models: m\nserver:\n  tls:\n    key: a\n", r":3: server\.tls: certificate is missing: TLS needs both"),
        ("models: m\nserver:\n  tls: {}\n", r":3: server\.tls: takes certificate and key, or the name of a secret"),
        (
            "models: m\nautoscale:\n  min: 4\n  max: 2\n  queue_delay: 5 ms\n",
            r":4: autoscale\.max: is less than min, 4",
        ),
        ("models: m\nautoscale: {max: 2, queue_delay: 5 us}\n", r":2: autoscale\.queue_delay: must be at least 1 ms"),
        ("models: m\nserver:\n  drain_seconds: .nan\n", r":3: server\.drain_seconds"),
        ("models: [a\n", r"not valid YAML"),
    ],
)
def test_a_mistake_is_told_with_its_line(tmp_path: Path, text: str, words: str) -> None:
    with pytest.raises(InvalidFile, match=words):
        read_service(write(tmp_path, text))


def test_a_file_that_is_not_there_is_not_found(tmp_path: Path) -> None:
    with pytest.raises(NotFound):
        read_service(tmp_path / "none.yaml")


# -- the same file as options of the server -------------------------------------------------------------------------------

EVERYTHING = """
models: m
ports: {http: 1, grpc: 2, metrics: 3}
server:
  host: 0.0.0.0
  control: poll
  load: [a, b]
  poll_seconds: 0.5
  device: cuda:1
  access: access.yaml
  rate_limit: 7
  body_limit: 2 MiB
  memory_limit: 3 GiB
  in_flight_limit: 1 GiB
  connection_limit: 5
  log_requests: true
  drain_seconds: 9
  log_format: json
  tls: {certificate: /c.pem, key: k.pem}
"""


def test_every_option_of_the_server_can_be_said_in_the_file(tmp_path: Path) -> None:
    path = write(tmp_path, EVERYTHING)
    assert SettingsSource(ServeSettings(), file=path).read() == ServeSettings(
        models=tmp_path / "m", host="0.0.0.0", http_port=1, grpc_port=2, metrics_port=3, device="cuda:1",
        control="poll", load_model=("a", "b"), poll_seconds=0.5, access=tmp_path / "access.yaml", rate_limit=7.0,
        tls_certificate=Path("/c.pem"), tls_key=tmp_path / "k.pem", body_limit=2 << 20, memory_limit=3 << 30,
        in_flight_limit=1 << 30, connection_limit=5, log_requests=True, drain_seconds=9.0,
        log_format="json",
    )  # fmt: skip


def test_every_option_of_the_command_can_be_said_in_the_file(tmp_path: Path) -> None:
    """An option that is added to `tonnage serve` is added to service.yaml, or this test says that it was forgotten."""
    command = typer.main.get_command(app).commands["serve"].commands["run"]  # type: ignore[attr-defined]
    options = {parameter.name for parameter in command.params} - {"config", "debug", "help"}
    assert options == {field.name for field in fields(ServeSettings)}
    assert options == set(settings_of(read_service(write(tmp_path, EVERYTHING))))


def test_what_is_typed_wins_over_the_file(tmp_path: Path) -> None:
    typed = ServeSettings(models=Path("elsewhere"), http_port=0, rate_limit=5.0)
    source = SettingsSource(typed, frozenset({"models", "http_port"}), write(tmp_path, EVERYTHING))
    settings = source.read()
    assert (settings.models, settings.http_port) == (Path("elsewhere"), 0)
    assert (settings.grpc_port, settings.rate_limit) == (2, 7.0)


def test_what_the_container_reads_says_what_the_file_says(tmp_path: Path) -> None:
    (tmp_path / "access.yaml").write_text("clients: []\n")
    (tmp_path / "k.pem").write_text("key")
    (tmp_path / "c.pem").write_text("certificate")
    path = write(tmp_path, EVERYTHING.replace("/c.pem", "c.pem"))
    inside = folders_of(read_service(path), is_cluster=False, models="/models")[0]
    written = write(tmp_path, inside.files["service.yaml"].decode())
    found, given = settings_of(read_service(written)), settings_of(read_service(write(tmp_path, EVERYTHING)))
    for name in ("device", "control", "load_model", "poll_seconds", "rate_limit", "body_limit", "drain_seconds"):
        assert found[name] == given[name], name
    assert found["models"] == Path("/models")
    assert found["access"] == Path("/etc/tonnage-access/access.yaml")
    assert found["tls_key"] == Path("/etc/tonnage-tls/tls.key")
    assert (found["http_port"], found["host"]) == (8000, "0.0.0.0")
    assert set(yaml.safe_load(inside.files["service.yaml"])["server"]) == set(ServerSection.model_fields)


@pytest.mark.parametrize("models", ["pvc:models", "node:/models"])
def test_models_of_a_cluster_are_not_served_here(tmp_path: Path, models: str) -> None:
    with pytest.raises(InvalidFile, match="is in a cluster"):
        settings_of(read_service(write(tmp_path, f"models: {models}\n")))


def test_a_server_without_models_says_how_to_name_them() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tonnage", "serve", "run"], capture_output=True, text=True, check=False, timeout=60
    )
    assert done.returncode == 2
    assert "no models are named" in done.stderr


# -- for editors ----------------------------------------------------------------------------------------------------------


def test_the_published_schema_is_what_the_models_say() -> None:
    assert published_schema() == schema_text(), "run python -m tonnage.serve.service_schema"


def test_every_field_has_a_description() -> None:
    schema = json.loads(published_schema())
    jsonschema.Draft202012Validator.check_schema(schema)
    sections = [schema, *schema["$defs"].values()]
    assert all("description" in field for section in sections for field in section["properties"].values())


@pytest.mark.parametrize("name", ["service.yaml", "service-kubernetes.yaml"])
def test_the_examples_pass_the_schema_and_the_reader(name: str) -> None:
    jsonschema.validate(yaml.safe_load((EXAMPLES / name).read_text()), json.loads(published_schema()))
    assert read_service(EXAMPLES / name).file.name == "classifier"


def test_every_field_is_on_its_page() -> None:
    text = (EXAMPLES.parent / "docs" / "reference" / "service-file.md").read_text()
    schema = json.loads(published_schema())
    fields = {field for section in (schema, *schema["$defs"].values()) for field in section["properties"]}
    assert [field for field in sorted(fields) if f"`{field}`" not in text] == []
