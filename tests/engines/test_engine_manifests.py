"""What would be submitted: kept as files, valid by the published schemas, and free of what schemas do not see."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from manifests import DIGEST, MANIFESTS, SERVE, TRAIN

from tonnage.engines.base import EngineOptions, Job, Mount, Resources, Source
from tonnage.engines.containerfile import image_tag, render_containerfile, write_context
from tonnage.engines.kubernetes import KubernetesEngine
from tonnage.engines.kubernetes_checks import faults, parse_quantity
from tonnage.engines.kubernetes_manifest import KubernetesOptions, bytes_quantity, cpu_quantity, render
from tonnage.errors import UsageError

GOLDEN = Path(__file__).parents[1] / "golden" / "engines"
VERSIONS = ("1.34", "1.37")  # the first with resource.k8s.io/v1, and the newest that the schemas know

Document = dict[str, Any]


@pytest.mark.parametrize("file", MANIFESTS)
def test_manifests_are_as_they_were(file: str) -> None:
    engine, job, options = MANIFESTS[file]
    assert engine.plan(job, options).text == (GOLDEN / file).read_text()


@pytest.mark.parametrize("file", [file for file in MANIFESTS if file.endswith(".txt")])
def test_a_plan_asks_no_machine(file: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """So that `--dry-run` of a GPU job works on a laptop."""
    monkeypatch.setattr("tonnage.engines.containers.read_host", refuse)
    monkeypatch.setattr("tonnage.engines.local.read_host", refuse)
    monkeypatch.setattr("tonnage.engines.containers.cdi_devices", refuse)
    engine, job, options = MANIFESTS[file]
    assert type(engine)().plan(job, options).text == (GOLDEN / file).read_text()


def refuse(*_: object) -> None:
    raise AssertionError("a plan is pure")


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("file", [file for file in MANIFESTS if file.endswith(".yaml")])
def test_kubernetes_takes_them(file: str, version: str) -> None:
    for document in yaml.safe_load_all((GOLDEN / file).read_text()):
        kubernetes_validate.validate(document, version, strict=True)


def test_strict_validation_would_notice() -> None:
    (document,) = (d for d in render(SERVE, KubernetesOptions()) if d["kind"] == "Deployment")
    document["spec"]["replicsa"] = 3
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(document, VERSIONS[-1], strict=True)


names = st.from_regex(r"[a-z]([-a-z0-9]{0,20}[a-z0-9])?", fullmatch=True)
texts = st.text(st.characters(exclude_categories=("Cs", "Cc")), max_size=80)


@settings(deadline=None)  # validation by schemas takes 0.3 s for the largest, on a busy machine
@given(
    name=names,
    command=st.lists(texts, min_size=1, max_size=4).map(tuple),
    cores=st.floats(0.01, 512),
    memory_bytes=st.integers(1, 1 << 45),
    gpus=st.integers(0, 16),
    gpu=st.sampled_from(["", "H200", "L4", "A100 SXM 80GB"]),
    labels=st.dictionaries(st.sampled_from(["team", "example.com/x", "tonnage.y"]), texts),
    variables=st.dictionaries(st.from_regex(r"[A-Z_][A-Z0-9_]{0,9}", fullmatch=True), texts, max_size=3),
    content=st.one_of(st.none(), st.binary(max_size=50)),
    replicas=st.integers(0, 3),
    ports=st.lists(st.integers(1, 65535), max_size=3, unique=True),
    dra=st.booleans(),
)
def test_whatever_is_rendered_is_valid(
    name: str, command: tuple[str, ...], cores: float, memory_bytes: int, gpus: int, gpu: str, labels: dict[str, str],
    variables: dict[str, str], content: bytes | None, replicas: int, ports: list[int], dra: bool,
) -> None:  # fmt: skip
    job = Job(
        name=name, image="x", command=command, environment=variables, labels=labels, replicas=replicas,
        resources=Resources(cpu_cores=cores, memory_bytes=memory_bytes, gpu_count=gpus, gpu=gpu),
        source=None if content is None else Source(files={"a/b.py": content}, digest=DIGEST),
        ports=tuple((port, port) for port in ports),
    )  # fmt: skip
    text = KubernetesEngine().plan(job, KubernetesOptions(dra=dra)).text
    assert list(yaml.safe_load_all(text)) == render(job, KubernetesOptions(dra=dra))
    for document in yaml.safe_load_all(text):
        kubernetes_validate.validate(document, VERSIONS[-1], strict=True)
    amounts = render(job, KubernetesOptions())[-2 if replicas and ports else -1]["spec"]["template"]["spec"][
        "containers"
    ][0]
    assert float(parse_quantity(amounts["resources"]["limits"]["cpu"])) >= cores * (1 - 1e-9)
    assert parse_quantity(amounts["resources"]["limits"]["memory"]) == memory_bytes


# -- what the schemas do not see ------------------------------------------------------------------------------------------


def pod(documents: list[Document]) -> Document:
    (found,) = (document["spec"]["template"] for document in documents if "template" in document["spec"])
    return dict(found)


def container(documents: list[Document]) -> Document:
    return dict.__getitem__(pod(documents)["spec"], "containers")[0]


def set_to(place: Document, key: str, value: object) -> None:
    place[key] = value


FAULTS: dict[str, tuple[Callable[[list[Document]], object], str]] = {
    "selector": (lambda d: set_to(d[0]["spec"]["selector"]["matchLabels"], "app", "other"), "selector asks"),
    "no selector": (lambda d: set_to(d[0]["spec"], "selector", {}), "no selector"),
    "service": (lambda d: set_to(d[1]["spec"], "selector", {"app": "other"}), "no pod is behind"),
    "service port": (lambda d: set_to(d[1]["spec"]["ports"][0], "targetPort", 1), "no container opens"),
    "port name": (lambda d: set_to(d[1]["spec"]["ports"][0], "name", "x" * 16), "no name of a port"),
    "name": (lambda d: set_to(d[0]["metadata"], "name", "Serve_Vit"), "no DNS label"),
    "namespace": (lambda d: set_to(d[0]["metadata"], "namespace", "x.y"), "no DNS label"),
    "service name": (lambda d: set_to(d[1]["metadata"], "name", "1serve"), "no DNS label"),
    "label value": (lambda d: set_to(d[0]["metadata"]["labels"], "digest", DIGEST), "cannot be"),
    "label key": (lambda d: set_to(d[0]["metadata"]["labels"], "a b", "c"), "no name of a label"),
    "quantity": (lambda d: set_to(container(d)["resources"]["limits"], "memory", "1 GiB"), "no quantity"),
    "zero": (lambda d: set_to(container(d)["resources"]["limits"], "cpu", "0"), "more than 0"),
    "requests": (lambda d: set_to(container(d)["resources"]["requests"], "cpu", "1"), "differ"),
    "half a gpu": (lambda d: set_to(container(d)["resources"]["limits"], "nvidia.com/gpu", "500m"), "whole numbers"),
    "volume": (lambda d: set_to(container(d)["volumeMounts"][0], "name", "temp"), "no volume of the pod"),
    "mount path": (lambda d: set_to(container(d)["volumeMounts"][0], "mountPath", "tmp"), "full path"),
    "variable": (lambda d: set_to(container(d)["env"][0], "name", "A B"), "environment variable"),
    "restart": (lambda d: set_to(pod(d)["spec"], "restartPolicy", "Never"), "restartPolicy"),
    "claim": (lambda d: set_to(container(d)["resources"], "claims", [{"name": "gpu"}]), "not one of the pod's"),
    "template": (
        lambda d: set_to(pod(d)["spec"], "resourceClaims", [{"name": "g", "resourceClaimTemplateName": "t"}]),
        "no ResourceClaimTemplate",
    ),
    "image": (lambda d: set_to(container(d), "image", "my image"), "no image"),
    "twice": (lambda d: d.append(d[1]), "same name"),
    "config": (
        lambda d: pod(d)["spec"]["volumes"].append({"name": "p", "configMap": {"name": "nowhere"}}), "the ConfigMap",
    ),
}  # fmt: skip


def test_what_is_rendered_has_no_faults() -> None:
    assert list(faults(render(SERVE, KubernetesOptions()))) == []


@pytest.mark.parametrize("fault", FAULTS)
def test_faults_that_schemas_miss_are_found(fault: str) -> None:
    spoil, words = FAULTS[fault]
    documents = copy.deepcopy(render(SERVE, KubernetesOptions()))
    spoil(documents)
    assert any(words in found for found in faults(documents))


@pytest.mark.parametrize(
    ("text", "value"), [("500m", 0.5), ("2", 2), ("1Gi", 1 << 30), ("1.5G", 1.5e9), (3, 3), ("100k", 1e5)]
)
def test_quantities_are_read(text: object, value: float) -> None:
    assert float(parse_quantity(text)) == value


@pytest.mark.parametrize("text", ["", "1 Gi", "1GiB", "-1", "1e", "Gi", "0x1", "1,5", None])
def test_what_is_no_quantity_is_refused(text: object) -> None:
    with pytest.raises(ValueError, match="no quantity"):
        parse_quantity(text)


def test_quantities_are_exact_and_never_too_little() -> None:
    assert [cpu_quantity(cores) for cores in (1, 1.5, 0.0001, 64)] == ["1", "1500m", "1m", "64"]
    assert [bytes_quantity(count) for count in (1 << 30, 1536 << 20, 1000)] == ["1Gi", "1536Mi", "1000"]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"mounts": (Mount(source="/data", target="/data"),)}, "PersistentVolumeClaim|not there on the nodes"),
        ({"source": Source(files={}, digest="", requirements=("numpy",))}, "requirements"),
        ({"source": Source(files={"a": b"x" * (1 << 20)}, digest="")}, "ConfigMap holds"),
        ({"image": ""}, "needs an image"),
        ({"resources": Resources(numa_node=0)}, "NUMA"),
        ({"labels": {"a b": "c"}}, "name of a label"),
    ],
)
def test_what_a_cluster_cannot_do_is_refused(change: dict[str, Any], words: str) -> None:
    with pytest.raises(UsageError, match=words):
        KubernetesEngine().plan(replace(TRAIN, **change), EngineOptions())


def test_a_namespace_that_is_none_is_refused() -> None:
    with pytest.raises(UsageError, match="namespace"):
        KubernetesEngine().plan(TRAIN, KubernetesOptions(namespace="Vision"))


@pytest.mark.parametrize(
    ("options", "keys"),
    [
        (KubernetesOptions(), ["nvidia.com/gpu.product"]),
        (KubernetesOptions(node_type_label="tonnage.io/node-type"), ["nvidia.com/gpu.product", "tonnage.io/node-type"]),
        (KubernetesOptions(node_type_label="tonnage.io/node-type", dra=True), ["tonnage.io/node-type"]),
    ],
)
def test_nodes_of_the_label_s_type_are_taken_where_they_say_their_type(
    options: KubernetesOptions, keys: list[str]
) -> None:
    affinity = pod(render(replace(TRAIN, node_type="hopper"), options)[-1:])["spec"]["affinity"]["nodeAffinity"]
    (term,) = affinity["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
    found = {expression["key"]: expression["values"] for expression in term["matchExpressions"]}
    assert sorted(found) == keys
    assert found.get("tonnage.io/node-type", ["hopper"]) == ["hopper"]


def test_a_device_class_may_have_another_name_than_its_driver() -> None:
    _, template, _ = render(TRAIN, KubernetesOptions(dra=True, device_class="large-gpus"))
    (request,) = template["spec"]["spec"]["devices"]["requests"]
    assert request["exactly"]["deviceClassName"] == "large-gpus"
    assert request["exactly"]["selectors"][0]["cel"]["expression"].startswith('device.attributes["gpu.nvidia.com"].')


def test_a_name_that_no_label_of_a_node_can_have_is_refused() -> None:
    with pytest.raises(UsageError, match="no name of a node's label"):
        KubernetesEngine().plan(replace(TRAIN, node_type="hopper"), KubernetesOptions(node_type_label="a b"))


# -- the Containerfile ----------------------------------------------------------------------------------------------------


def test_requirements_come_before_the_program() -> None:
    source = Source(files={"a.py": b""}, digest=DIGEST, requirements=("numpy==2.4.6",))
    job = Job(name="x", image="python:3", command=("a",))
    assert render_containerfile(job, source).splitlines() == [
        "FROM python:3",
        "COPY requirements.txt /requirements.txt",
        'RUN ["python3", "-m", "pip", "install", "--no-cache-dir", "-r", "/requirements.txt"]',
        "COPY program/ /app/",
        "WORKDIR /app",
    ]


@pytest.mark.parametrize("name", ["../x", "/x", "a/../../x"])
def test_no_file_leaves_the_folder_of_the_build(tmp_path: Path, name: str) -> None:
    job = Job(name="x", image="python:3", command=("a",))
    with pytest.raises(UsageError, match="outside"):
        write_context(tmp_path, job, Source(files={name: b""}, digest=""))


def test_another_program_or_image_has_another_tag() -> None:
    source = Source(files={"a.py": b""}, digest=DIGEST)
    other, more = replace(source, files={"a.py": b"1"}), replace(source, requirements=("numpy",))
    job = Job(name="x", image="python:3", command=("a",))
    tags = {image_tag(job, each) for each in (source, other, more)} | {
        image_tag(replace(job, image="python:4"), source)
    }
    assert len(tags) == 4
