"""A service in a cluster that is emulated in this process: it comes and goes as a whole, and its configuration changes."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import kmock
import pytest
import yaml
from lightkube import Client

sys.path.append(str(Path(__file__).parents[1] / "engines"))
from kubelet import cluster

from tonnage.engines.base import EngineOptions, Job, JobState, JobStatus
from tonnage.engines.deploying import Deployment, Deployments, deploy, stop
from tonnage.engines.kubernetes import KubernetesEngine
from tonnage.engines.names import fresh_name
from tonnage.serve.service_file import read_service
from tonnage.serve.service_job import job_of_service
from tonnage.serve.service_waiting import DoesNotComeUp, wait_until_ready

TEXT = (
    "image: registry.example/tonnage:0.1\nmodels: 'pvc:models'\nautoscale: {min: 2, max: 3, queue_delay: 1 s}\n"
    "server: {rate_limit: RATE, access: 'secret:tokens'}\n"
)
KINDS = {"deployments", "services", "configmaps", "poddisruptionbudgets", "horizontalpodautoscalers"}


@pytest.fixture(scope="module")
def running_cluster() -> Iterator[tuple[Client, kmock.KubernetesEmulator]]:
    with cluster() as found:
        yield found


@pytest.fixture
def kubernetes(running_cluster: tuple[Client, kmock.KubernetesEmulator]) -> KubernetesEngine:
    return KubernetesEngine(running_cluster[0])


def service_job(folder: Path, name: str, rate: int = 0) -> Job:
    path = folder / "service.yaml"
    path.write_text(TEXT.replace("RATE", str(rate)))
    return job_of_service(read_service(path), "kubernetes", name)


def kinds(emulator: kmock.KubernetesEmulator, name: str) -> set[str]:
    return {key[0].plural for key, found in emulator.objects.items() if key[2] == name and not found.deleted}


def test_a_service_comes_changes_and_goes_as_a_whole(
    kubernetes: KubernetesEngine, running_cluster: tuple[Client, kmock.KubernetesEmulator], tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.setattr("tonnage.engines.deploying.find_engine", lambda name: kubernetes)
    deployments, name = Deployments(tmp_path / "deployments"), fresh_name("service")
    deployment = deploy(service_job(tmp_path, name), kubernetes, EngineOptions(), deployments)
    assert kinds(running_cluster[1], name) == KINDS
    kubernetes.reconfigure(kubernetes.plan(service_job(tmp_path, name, rate=7), EngineOptions()))
    inside = kubernetes.cluster.get("ConfigMap", "default", name)["data"]["service.yaml"]
    assert yaml.safe_load(inside)["server"]["rate_limit"] == 7
    assert stop(deployment, deployments).state is JobState.CANCELLED
    assert kubernetes.cluster.get("Deployment", "default", name)["spec"]["replicas"] == 0
    stop(deployment, deployments, remove=True)
    assert kinds(running_cluster[1], name) == set()


class Crashing:
    """An engine whose service does not stay up."""

    def __init__(self, *states: JobStatus) -> None:
        self.states = list(states)

    def state(self, job_id: str) -> JobStatus:  # noqa: ARG002 - there is but one
        return self.states.pop(0) if len(self.states) > 1 else self.states[0]

    def logs(self, job_id: str, *, follow: bool = False) -> Iterator[str]:  # noqa: ARG002
        return iter([f"line {number}" for number in range(30)])


DEPLOYMENT = Deployment(
    id="s", engine="kubernetes", job_id="default/s", labels={"tonnage.service": "http"}, ports=((80, 8000),)
)  # type: ignore[arg-type]  # fmt: skip
PENDING, RUNNING = JobStatus(state=JobState.PENDING, restarts=2), JobStatus(state=JobState.RUNNING)


def test_waiting_ends_when_a_pod_is_ready() -> None:
    assert wait_until_ready(DEPLOYMENT, Crashing(PENDING, RUNNING), 30).state is JobState.RUNNING  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("after", "seconds", "words"),
    [
        (JobStatus(state=JobState.PENDING, restarts=3), 30, "it ended and is started again"),
        (JobStatus(state=JobState.FAILED, exit_code=3), 30, "it ended with exit code 3"),
        (JobStatus(state=JobState.PENDING, restarts=2, reason="no node takes it"), 0, "not ready after 0 s: no node"),
    ],
)
def test_what_does_not_come_up_is_told_with_its_last_lines(after: JobStatus, seconds: float, words: str) -> None:
    with pytest.raises(DoesNotComeUp, match=words) as caught:
        wait_until_ready(DEPLOYMENT, Crashing(PENDING, after), seconds)  # type: ignore[arg-type]
    assert caught.value.lines == [f"line {number}" for number in range(18, 30)]
