"""What a service is on each engine: kept as files, valid by the published schemas, refused where it cannot be."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import kubernetes_validate
import pytest
import yaml

from tonnage.engines.base import Engine
from tonnage.engines.containers import DockerEngine, PodmanEngine
from tonnage.engines.kubernetes import KubernetesEngine
from tonnage.engines.kubernetes_checks import faults
from tonnage.engines.kubernetes_manifest import KubernetesOptions, render
from tonnage.errors import InvalidFile, UsageError
from tonnage.serve.service_file import read_service
from tonnage.serve.service_image import write_image_files
from tonnage.serve.service_job import DIGEST_LABEL, job_of_service

GOLDEN = Path(__file__).parents[1] / "golden" / "serve"
EXAMPLES = Path(__file__).parents[2] / "examples"
CPU = (
    "name: small\nimage: registry.example/tonnage:0.1\nmodels: 'node:/srv/models'\n"
    "resources: {cpus: 1.5, memory: 2 GiB}\nports: {http: 80}\nserver: {control: poll}\n"
)
PODMAN = (
    "name: classifier\nimage: localhost/python:3.12\ninstall: ['tonnage[serve]', 'torch==2.13.0']\n"
    "models: 'image:/srv/models'\nresources: {memory: 2 GiB, gpu: L4}\nserver: {device: cuda, drain_seconds: 20}\n"
)
FILES: dict[str, tuple[Engine, str]] = {
    "kubernetes-gpu.yaml": (KubernetesEngine(), (EXAMPLES / "service-kubernetes.yaml").read_text()),
    "kubernetes-cpu.yaml": (KubernetesEngine(), CPU),
    "podman.txt": (PodmanEngine(), PODMAN),
    "docker.txt": (DockerEngine(), PODMAN),
}


def write(folder: Path, text: str) -> Path:
    path = folder / "service.yaml"
    path.write_text(text)
    return path


@pytest.mark.parametrize("file", FILES)
def test_manifests_are_as_they_were(file: str, tmp_path: Path) -> None:
    engine, text = FILES[file]
    job = job_of_service(read_service(write(tmp_path, text)), engine.name)
    assert engine.plan(job, engine.Options()).text == (GOLDEN / file).read_text()


@pytest.mark.parametrize("version", ["1.34", "1.37"])
@pytest.mark.parametrize("file", [file for file in FILES if file.endswith(".yaml")])
def test_kubernetes_takes_them(file: str, version: str) -> None:
    for document in yaml.safe_load_all((GOLDEN / file).read_text()):
        kubernetes_validate.validate(document, version, strict=True)


def documents(tmp_path: Path, text: str = CPU + "autoscale: {min: 2, max: 3, queue_delay: 1 s}\n") -> list[dict]:  # type: ignore[type-arg]
    return render(job_of_service(read_service(write(tmp_path, text)), "kubernetes"), KubernetesOptions())


def test_a_pod_has_longer_than_it_needs_to_drain(tmp_path: Path) -> None:
    text = CPU.replace("control: poll", "drain_seconds: 100")
    (deployment,) = (each for each in documents(tmp_path, text) if each["kind"] == "Deployment")
    assert deployment["spec"]["template"]["spec"]["terminationGracePeriodSeconds"] == 110


@pytest.mark.parametrize(
    ("kind", "path", "value", "words"),
    [
        ("HorizontalPodAutoscaler", ("spec", "scaleTargetRef", "name"), "other", "there is no Deployment 'other'"),
        ("HorizontalPodAutoscaler", ("spec", "minReplicas"), 9, "at least 9 instances are more than at most 3"),
        ("PodDisruptionBudget", ("spec", "selector", "matchLabels"), {"a": "b"}, "no pod is behind"),
        ("ConfigMap", ("metadata", "name"), "other", "the ConfigMap 'small' has no object"),
        (
            "Deployment",
            ("spec", "template", "spec", "containers", 0, "livenessProbe", "httpGet", "port"),
            1,
            "asks at port 1",
        ),
    ],
)
def test_what_no_schema_sees_is_noticed(
    tmp_path: Path, kind: str, path: tuple[str, ...], value: object, words: str
) -> None:
    found = yaml.safe_load(yaml.safe_dump(documents(tmp_path)))  # nothing shared between documents
    assert list(faults(found)) == []
    place = next(each for each in found if each["kind"] == kind)
    for step in path[:-1]:
        place = place[step]
    place[path[-1]] = value
    assert any(words in fault for fault in faults(found))


MISTAKES = {
    "name: a\nmodels: 'image:/m'\n": ("podman", ":1: image: is missing"),
    "image: a\nmodels: 'image:/m'\n": ("podman", "name: is missing"),
    "name: A\nimage: a\nmodels: 'image:/m'\n": ("podman", ":1: name: 'A' cannot be a name"),
    "name: a\nimage: a\nmodels: m\n": ("podman", ":3: models: there is no folder"),
    "name: a\nimage: b\nmodels: m\n": ("kubernetes", ":3: models: is a folder of this machine"),
    "name: a\nimage: a\nmodels: 'pvc:m'\n": ("podman", ":3: models: is for a cluster"),
    "name: a\nimage: a\nmodels: 'image:/m'\ninstances: 2\n": ("podman", ":4: instances: is 2, and one container"),
    "name: a\nimage: a\nmodels: 'image:/m'\nserver: {device: cuda}\n": (
        "podman",
        "device: is cuda, but resources have no",
    ),
    "name: a\nimage: a\nmodels: 'image:/m'\nresources: {gpu: nonsense}\n": ("podman", ":4: resources.gpu: unknown GPU"),
    "name: a\nimage: a\nmodels: 'image:/m'\nserver: {access: a.yaml}\n": ("kubernetes", "access: is a file of this"),
    "name: a\nimage: a\nmodels: 'image:/m'\nserver: {access: 'secret:a'}\n": ("docker", "access: is a Secret of a"),
    "name: a\nimage: a\nmodels: 'image:/m'\nserver: {tls: {secret: b}}\n": ("docker", "tls: is a Secret of a cluster"),
    "name: a\nimage: a\nmodels: 'image:/m'\ninstall: [a.whl]\n": ("docker", ":4: install[0]: there is no file"),
}


@pytest.mark.parametrize("text", MISTAKES)
def test_what_an_engine_cannot_do_is_told_with_its_line(tmp_path: Path, text: str) -> None:
    engine, words = MISTAKES[text]
    with pytest.raises(InvalidFile) as caught:
        job_of_service(read_service(write(tmp_path, text)), engine)
    assert words in caught.value.message


@pytest.mark.parametrize("engine", ["local", "slurm", "ray"])
def test_other_engines_run_no_services(tmp_path: Path, engine: str) -> None:
    with pytest.raises(UsageError, match="is a service"):
        job_of_service(read_service(write(tmp_path, PODMAN)), engine)


def test_nothing_is_installed_in_a_cluster(tmp_path: Path) -> None:
    job = job_of_service(read_service(write(tmp_path, PODMAN)), "kubernetes")
    with pytest.raises(UsageError, match="nothing can be installed"):
        render(job, KubernetesOptions())


def test_tokens_are_not_shown(tmp_path: Path) -> None:
    (tmp_path / "access.yaml").write_text("clients:\n- {name: a, token: surely-a-secret-token}\n")
    text = "name: a\nimage: a\nmodels: 'image:/m'\nserver: {access: access.yaml}\n"
    job = job_of_service(read_service(write(tmp_path, text)), "podman")
    shown = PodmanEngine().plan(job, PodmanEngine.Options()).text
    assert "# /etc/tonnage-access/access.yaml: not shown" in shown
    assert "surely" not in shown
    with pytest.raises(UsageError, match="is not written into a ConfigMap"):
        render(replace(job, replicas=1), KubernetesOptions())


def test_health_must_be_public(tmp_path: Path) -> None:
    (tmp_path / "access.yaml").write_text("public: []\nclients: []\n")
    text = "name: a\nimage: a\nmodels: 'image:/m'\nserver: {access: access.yaml}\n"
    with pytest.raises(InvalidFile, match="nobody could watch the service"):
        job_of_service(read_service(write(tmp_path, text)), "podman")


@pytest.mark.parametrize(
    ("before", "after", "is_the_same"),
    [
        ("drain_seconds: 20", "drain_seconds: 20, rate_limit: 3", True),
        ("drain_seconds: 20", "drain_seconds: 20, control: poll", True),
        ("drain_seconds: 20", "drain_seconds: 30", False),
        ("device: cuda", "device: 'cuda:0'", False),
        ("memory: 2 GiB", "memory: 3 GiB", False),
        ("torch==2.13.0", "torch==2.14.0", False),
        ("image:/srv/models", "image:/models", False),
    ],
)
def test_only_some_changes_need_a_new_start(tmp_path: Path, before: str, after: str, is_the_same: bool) -> None:
    jobs = [
        job_of_service(read_service(write(tmp_path, text)), "podman")
        for text in (PODMAN, PODMAN.replace(before, after))
    ]
    assert (jobs[0].labels[DIGEST_LABEL] == jobs[1].labels[DIGEST_LABEL]) == is_the_same


# -- an image for a cluster -----------------------------------------------------------------------------------------------


def test_models_are_put_into_an_image_before_its_user_loses_its_rights(tmp_path: Path) -> None:
    (tmp_path / "models" / "a").mkdir(parents=True)
    (tmp_path / "models" / "a" / "config.yaml").write_text("backend: caffe\n")
    write_image_files(read_service(write(tmp_path, PODMAN)), tmp_path / "build", tmp_path / "models")
    lines = (tmp_path / "build" / "Containerfile").read_text().splitlines()
    assert lines.index("COPY models/ /srv/models/") == lines.index("USER 65534:65534") - 1
    assert (tmp_path / "build" / "models" / "a" / "config.yaml").is_file()
    assert (tmp_path / "build" / "requirements.txt").read_text() == "tonnage[serve]\ntorch==2.13.0\n"


@pytest.mark.parametrize(
    ("text", "folder", "words"),
    [
        (PODMAN.replace("install:", "install: [] #"), "build", "nothing to build"),
        (PODMAN, "models", "is there already"),
        (PODMAN.replace("image:/srv", "srv"), "build", "is not in the image"),
    ],
)
def test_what_cannot_become_an_image_is_told(tmp_path: Path, text: str, folder: str, words: str) -> None:
    (tmp_path / "models").mkdir()
    with pytest.raises(UsageError, match=words):
        write_image_files(read_service(write(tmp_path, text)), tmp_path / folder, tmp_path / "models")
