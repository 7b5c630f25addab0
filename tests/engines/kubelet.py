"""A cluster in this process: kmock keeps the objects and answers HTTP, and a small kubelet really runs the jobs."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import kmock
from lightkube import Client
from lightkube.config.kubeconfig import Cluster, KubeConfig, User

Document = dict[str, Any]

JOBS, PODS = kmock.resource("batch/v1/jobs"), kmock.resource("v1/pods")
_KNOWN = (
    JOBS, PODS, kmock.resource("v1/services"), kmock.resource("v1/configmaps"), kmock.resource("v1/nodes"),
    kmock.resource("policy/v1/poddisruptionbudgets"), kmock.resource("autoscaling/v2/horizontalpodautoscalers"),
    kmock.resource("apps/v1/deployments"), kmock.resource("resource.k8s.io/v1/resourceclaimtemplates"),
)  # fmt: skip


class Kubelet:
    """Runs the commands of Jobs as processes here, and tells about them as a cluster would."""

    def __init__(self, emulator: kmock.KubernetesEmulator, folder: Path) -> None:
        self.emulator, self.folder = emulator, folder
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        emulator[kmock.subresource("log")] << self.log

    def step(self) -> None:
        for (resource, namespace, name), job in list(self.emulator.objects.items()):
            if resource == JOBS and not job.deleted:
                self._look_after(namespace, name, job)

    def log(self, request: kmock.Request) -> bytes:
        return (self.folder / f"{request.name}.log").read_bytes()

    def _look_after(self, namespace: str, name: str, job: Any) -> None:
        process = self.processes.get(name)
        if process is None:
            self._start(namespace, name, job.raw)
        elif job.raw["spec"].get("suspend") and process.poll() is None:
            process.terminate()
            process.wait()
        elif process.poll() is not None and "conditions" not in job.raw.get("status", {}):
            self._end(namespace, name, job, process.returncode)

    def _start(self, namespace: str, name: str, job: Document) -> None:
        container = job["spec"]["template"]["spec"]["containers"][0]
        command = [sys.executable if word == "python3" else word for word in container["command"]]
        with open(self.folder / f"{name}-pod.log", "wb") as log:
            self.processes[name] = subprocess.Popen(command, stdout=log, stderr=log, cwd=self.folder)
        running = {"state": {"running": {"startedAt": _now()}}}
        self.emulator.objects[PODS, namespace, f"{name}-pod"] = {
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": f"{name}-pod", "namespace": namespace, **job["spec"]["template"]["metadata"]},
            "status": {"containerStatuses": [_container_status(running)]},
        }  # fmt: skip
        self.emulator.objects[JOBS, namespace, name].patch({"status": {"startTime": _now(), "active": 1}})

    def _end(self, namespace: str, name: str, job: Any, code: int) -> None:
        ended = {"state": {"terminated": {"exitCode": code, "finishedAt": _now(), "reason": "Completed"}}}
        pod = self.emulator.objects[PODS, namespace, f"{name}-pod"]
        pod.patch({"status": {"containerStatuses": [_container_status(ended)]}})
        condition = {"type": "Failed" if code else "Complete", "status": "True", "lastTransitionTime": _now()}
        job.patch({"status": {"conditions": [condition], "completionTime": _now(), "active": 0}})


def _container_status(state: Document) -> Document:
    return {"name": "main", "image": "x", "imageID": "", "ready": True, "restartCount": 0, **state}


def _now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


@contextmanager
def cluster() -> Iterator[tuple[Client, kmock.KubernetesEmulator]]:
    """A client of a running cluster; both are gone afterwards."""
    with tempfile.TemporaryDirectory() as folder:
        started, stop = threading.Event(), threading.Event()
        found: dict[str, Any] = {}

        async def serve() -> None:
            async with kmock.KubernetesEmulator() as emulator, kmock.Server(emulator) as server:
                for resource in _KNOWN:
                    emulator.resources[resource] = kmock.ResourceInfo(namespaced=resource.plural != "nodes")
                kubelet = Kubelet(emulator, Path(folder))
                found.update(url=str(server.url), emulator=emulator, kubelet=kubelet)
                started.set()
                while not stop.is_set():
                    kubelet.step()
                    await asyncio.sleep(0.02)

        thread = threading.Thread(target=lambda: asyncio.run(serve()))
        thread.start()
        try:
            assert started.wait(10), "kmock did not start"
            config = KubeConfig.from_one(cluster=Cluster(server=found["url"]), user=User(), namespace="default")
            client = Client(config=config, trust_env=False)
            yield client, found["emulator"]
            client.close()
        finally:
            stop.set()
            thread.join(10)
            for process in found["kubelet"].processes.values():
                process.kill()
                process.wait()
