"""The engine against a cluster in this process, its states against what clusters tell, and pods run by Podman."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import kmock
import pytest
import yaml
from contract import PROGRAMS, EngineContract, is_over, wait_for
from kubelet import cluster
from lightkube import Client
from lightkube.config.kubeconfig import Cluster, KubeConfig, User

from tonnage.engines.base import Engine, EngineOptions, Job, JobId, JobState, Resources, Source
from tonnage.engines.kubernetes import KubernetesEngine
from tonnage.engines.kubernetes_client import _translate
from tonnage.engines.kubernetes_manifest import KubernetesOptions
from tonnage.engines.kubernetes_states import CANCELLED, deployment_status, job_status
from tonnage.engines.names import fresh_name
from tonnage.engines.ports import free_port
from tonnage.errors import DoesNotFit, NotFound, Unreachable
from tonnage.profile.recorded import without_records
from tonnage.profile.recorder import PREFIX

Document = dict[str, Any]


def python(program: str, **more: object) -> Job:
    job = Job(name=fresh_name("contract"), image="python:3", command=("python3", "-c", program))
    return replace(job, **more)


@pytest.fixture(scope="module")
def running_cluster() -> Iterator[tuple[Client, kmock.KubernetesEmulator]]:
    with cluster() as found:
        yield found


@pytest.fixture
def kubernetes(running_cluster: tuple[Client, kmock.KubernetesEmulator]) -> KubernetesEngine:
    return KubernetesEngine(running_cluster[0])


class TestKubernetes(EngineContract):
    @pytest.fixture
    def engine(self, kubernetes: KubernetesEngine) -> Engine:
        return kubernetes

    def job(self, program: str) -> Job:
        return python(PROGRAMS[program])


def kinds(emulator: kmock.KubernetesEmulator, name: str) -> set[str]:
    return {key[0].plural for key, found in emulator.objects.items() if key[2] == name and not found.deleted}


def test_a_service_comes_and_goes_as_a_whole(
    kubernetes: KubernetesEngine, running_cluster: tuple[Client, kmock.KubernetesEmulator]
) -> None:
    emulator = running_cluster[1]
    source = Source(files={"a.py": b"1"}, digest="")
    job = python("", replicas=2, ports=((80, 8000),), source=source, resources=Resources(gpu_count=1))
    job_id = kubernetes.submit(kubernetes.plan(job, KubernetesOptions(dra=True)))
    assert kinds(emulator, job.name) == {"deployments", "services", "configmaps", "resourceclaimtemplates"}
    assert kubernetes.state(job_id).state is JobState.PENDING
    kubernetes.cancel(job_id)
    assert kubernetes.state(job_id).state is JobState.CANCELLED
    assert kubernetes.cluster.get("Deployment", "default", job.name)["spec"]["replicas"] == 0
    kubernetes.remove(job_id)
    assert kinds(emulator, job.name) == set()


def test_a_start_that_fails_half_way_leaves_nothing(
    kubernetes: KubernetesEngine,
    running_cluster: tuple[Client, kmock.KubernetesEmulator],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    create = kubernetes.cluster.create

    def refuse_jobs(document: Document) -> None:
        if document["kind"] == "Job":
            raise Unreachable("the cluster went away")
        create(document)

    monkeypatch.setattr(kubernetes.cluster, "create", refuse_jobs)
    job = python("", source=Source(files={"a.py": b"1"}, digest=""))
    with pytest.raises(Unreachable):
        kubernetes.submit(kubernetes.plan(job, EngineOptions()))
    assert kinds(running_cluster[1], job.name) == set()


def test_a_cluster_that_does_not_answer_is_unreachable() -> None:
    config = KubeConfig.from_one(cluster=Cluster(server=f"http://127.0.0.1:{free_port()}"), user=User(), namespace="x")
    with Client(config=config, trust_env=False) as client:
        engine = KubernetesEngine(client)
        with pytest.raises(Unreachable, match="does not answer"):
            engine.submit(engine.plan(python(""), EngineOptions()))


def test_no_configuration_is_unreachable(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "none"))
    engine = KubernetesEngine()
    with pytest.raises(Unreachable, match="no cluster is known"):
        engine.submit(engine.plan(python(""), EngineOptions()))


def test_what_no_node_holds_is_refused(kubernetes: KubernetesEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    small = {"status": {"allocatable": {"cpu": "3500m", "memory": "8Gi", "nvidia.com/gpu": "1"}}}
    wide = {"status": {"allocatable": {"cpu": "64", "memory": "8Gi"}}}
    monkeypatch.setattr(kubernetes.cluster, "list", lambda *_: [small, wide])
    for resources, words in [
        (
            Resources(memory_bytes=10 << 30),
            "10.0 GiB of memory are wanted, the largest node has 8.00 GiB: 2.00 GiB too",
        ),
        (Resources(gpu_count=4), "4 of nvidia.com/gpu are wanted, the largest node has 1: 3 too little"),
        (Resources(cpu_cores=8, gpu_count=1), "no node has enough of everything"),
    ]:
        with pytest.raises(DoesNotFit, match=words):
            kubernetes.submit(kubernetes.plan(python("", resources=resources), EngineOptions()))


@pytest.mark.parametrize("code", [401, 403])
def test_who_may_not_look_at_nodes_may_still_deploy(
    kubernetes: KubernetesEngine, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    def refuse(*_: object) -> list[Document]:
        raise _translate(code, "nodes is forbidden", "Node")

    with monkeypatch.context() as patch:
        patch.setattr(kubernetes.cluster, "list", refuse)
        job_id = kubernetes.submit(kubernetes.plan(python(""), EngineOptions()))
    kubernetes.cancel(job_id)
    kubernetes.remove(job_id)


def test_a_cluster_that_only_talks_of_refusing_is_unreachable(
    kubernetes: KubernetesEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> list[Document]:
        raise _translate(503, "etcd refuses to elect a leader", "Node")

    monkeypatch.setattr(kubernetes.cluster, "list", fail)
    with pytest.raises(Unreachable, match="answers 503"):
        kubernetes.submit(kubernetes.plan(python(""), EngineOptions()))


def test_records_are_told_from_other_lines_of_several_pods(
    kubernetes: KubernetesEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    pods = [{"metadata": {"name": name, "namespace": "default"}} for name in ("a", "b")]
    record = PREFIX + '{"window": null, "whole": {}}'
    monkeypatch.setattr(kubernetes, "_find", lambda job_id: {})
    monkeypatch.setattr(kubernetes, "_pods", lambda document: pods)
    monkeypatch.setattr(kubernetes.cluster, "log", lambda *_, follow: iter(["loss 1", "", record]))
    lines = list(kubernetes.logs(JobId("default/x")))
    assert list(without_records(lines)) == ["a: loss 1", "b: loss 1"]
    assert sum(line.startswith(PREFIX) for line in lines) == 2


# -- states, from what clusters tell --------------------------------------------------------------------------------------


def pod(state: Document, **more: object) -> Document:
    return {"metadata": {}, "status": {"containerStatuses": [{"name": "main", "state": state, **more}]}}


def job_with(*conditions: Document) -> Document:
    return {"metadata": {}, "status": {"conditions": list(conditions), "startTime": "2026-01-01T00:00:00Z"}}


FAILED = {"type": "Failed", "status": "True", "reason": "BackoffLimitExceeded", "message": "too many retries"}


def test_a_pod_killed_for_memory_is_told() -> None:
    end = {"terminated": {"exitCode": 137, "reason": "OOMKilled", "finishedAt": "2026-01-01T00:01:00Z"}}
    status = job_status(job_with(FAILED), [pod(end)])
    assert (status.state, status.exit_code, status.reason) == (JobState.FAILED, 137, "killed for memory (exit 137)")


@pytest.mark.parametrize(
    ("pods", "state", "words"),
    [
        ([], JobState.PENDING, ""),
        ([pod({"running": {"startedAt": "2026-01-01T00:00:00Z"}})], JobState.RUNNING, ""),
        ([pod({"waiting": {"reason": "ContainerCreating"}})], JobState.PENDING, ""),
        ([pod({"waiting": {"reason": "ImagePullBackOff", "message": "no such image"}})], JobState.PENDING,
         "the image cannot be fetched (ImagePullBackOff): no such image"),
        ([{"status": {"conditions": [{"reason": "Unschedulable", "message": "0/3 nodes"}]}}], JobState.PENDING,
         "no node takes it: 0/3 nodes"),
        ([pod({"waiting": {"reason": "CreateContainerConfigError"}})], JobState.PENDING, "CreateContainerConfigError"),
    ],
)  # fmt: skip
def test_what_is_not_over_says_why(pods: list[Document], state: JobState, words: str) -> None:
    status = job_status(job_with(), pods)
    assert (status.state, status.reason) == (state, words)


def test_a_failure_without_a_pod_has_the_cluster_s_words() -> None:
    assert job_status(job_with(FAILED), []).reason == "too many retries"


def test_a_job_that_a_queue_suspended_is_not_cancelled() -> None:
    suspended = job_with({"type": "Suspended", "status": "True"})
    assert job_status(suspended, []).state is JobState.PENDING
    suspended["metadata"]["annotations"] = {CANCELLED: "true"}
    assert job_status(suspended, []).state is JobState.CANCELLED


def test_a_service_runs_when_an_instance_is_ready() -> None:
    service = {"metadata": {}, "spec": {"replicas": 3}, "status": {"readyReplicas": 1}}
    assert deployment_status(service, []).reason == "1 of 3 instances are ready"
    crash = pod({}, lastState={"terminated": {"exitCode": 137, "reason": "OOMKilled"}})
    waiting = deployment_status(service | {"status": {}}, [crash])
    assert (waiting.state, waiting.reason) == (
        JobState.PENDING, "it ended and is started again: killed for memory (exit 137)"
    )  # fmt: skip


# -- a real pod -----------------------------------------------------------------------------------------------------------


def test_podman_runs_the_pod(image: str, tmp_path: Path) -> None:
    """The pod's own part of the manifest: image, command, variables, files, mounts and limits really work."""
    name = fresh_name("pod")
    program = (
        b"import os, helper; print(helper.WORD, os.getuid(), os.environ['HOME'], flush=True)\nopen('/tmp/x', 'w')\n"
    )
    source = Source(files={"main.py": program, "helper.py": b"WORD = 'hello'\n"}, digest="")
    job = Job(
        name=name, image=image, command=("/usr/bin/python3", "main.py"), workdir="/app", source=source,
        resources=Resources(memory_bytes=128 << 20), environment={"PYTHONDONTWRITEBYTECODE": "1"},
    )  # fmt: skip
    config, batch = yaml.safe_load_all(KubernetesEngine().plan(job, EngineOptions()).text)
    template = batch["spec"]["template"]
    runs = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, **template["metadata"]},
        "spec": template["spec"],
    }
    path = tmp_path / "pod.yaml"
    path.write_text(yaml.safe_dump_all([config, runs]))
    try:
        played = _podman("play", "kube", "--network=none", str(path))
        if "unsupported" in played.stderr.lower():
            pytest.skip(f"this podman plays less of Kubernetes: {played.stderr[-300:]}")
        assert played.returncode == 0, played.stderr
        assert _podman("wait", f"{name}-main").stdout.strip() == "0", _podman("logs", f"{name}-main")
        assert _podman("logs", f"{name}-main").stdout.split() == ["hello", "65534", "/tmp"]
        document = json.loads(_podman("inspect", f"{name}-main").stdout)[0]
        assert document["HostConfig"]["Memory"] == 128 << 20
        assert document["HostConfig"]["ReadonlyRootfs"]
    finally:
        _podman("play", "kube", "--down", str(path))


def _podman(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["podman", *arguments], capture_output=True, text=True, check=False, timeout=120)


def test_an_unknown_namespace_is_not_found(kubernetes: KubernetesEngine) -> None:
    with pytest.raises(NotFound):
        kubernetes.state("nowhere/nothing")  # type: ignore[arg-type]


def test_following_ends_with_the_job(kubernetes: KubernetesEngine) -> None:
    job_id = kubernetes.submit(kubernetes.plan(python(PROGRAMS["hello"]), EngineOptions()))
    wait_for(kubernetes, job_id, is_over)
    assert list(kubernetes.logs(job_id, follow=True)) == ["hello", "world"]
