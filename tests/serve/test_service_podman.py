"""A service for real: built, asked by Triton's clients, reconfigured, killed, drained."""

from __future__ import annotations

import json
import os
import signal
import socket
import ssl
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
import tritonclient.grpc as grpc_client
import tritonclient.http as http_client
import yaml
from service_rig import podman, run_podman, serve_image, write_certificate, write_model, write_slow_model, write_wheel
from tritonclient.utils import InferenceServerException

from tonnage.engines.base import EngineOptions
from tonnage.engines.kubernetes import KubernetesEngine
from tonnage.engines.names import fresh_name
from tonnage.engines.ports import free_port
from tonnage.serve.health import ask_health
from tonnage.serve.service_file import read_service
from tonnage.serve.service_job import job_of_service

__all__ = ["podman", "serve_image"]

pytestmark = pytest.mark.slow
TOKEN = "a-token-of-many-letters"
ROWS = np.arange(4, dtype=np.float32).reshape(1, 4)


@dataclass
class Rig:
    folder: Path
    name: str
    ports: dict[str, int]

    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "tonnage", *arguments], capture_output=True, text=True, check=False, timeout=200,
            cwd=self.folder, env={**os.environ, "TONNAGE_STATE": str(self.folder / "state")},
        )  # fmt: skip

    def write(self, **changes: object) -> None:
        document = yaml.safe_load((self.folder / "service.yaml").read_text())
        document["server"] |= changes
        (self.folder / "service.yaml").write_text(yaml.safe_dump(document))

    def deploy(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return self.run("deploy", "service.yaml", "--engine", "podman", *arguments)

    def infer(self, model: str = "double") -> np.ndarray:
        with http_client.InferenceServerClient(f"127.0.0.1:{self.ports['http']}") as client:
            given = http_client.InferInput("INPUT", [1, 4], "FP32")
            given.set_data_from_numpy(ROWS)
            return client.infer(model, [given]).as_numpy("OUTPUT")

    def state(self) -> dict:  # type: ignore[type-arg]
        return dict(json.loads(self.run("status", self.name, "--json").stdout))

    def inspect(self) -> dict:  # type: ignore[type-arg]
        return dict(json.loads(run_podman("inspect", self.name).stdout)[0])


def until(is_so: Callable[[], bool], what: str, seconds: float = 40.0) -> None:
    deadline = time.monotonic() + seconds
    while not is_so():
        assert time.monotonic() < deadline, what
        time.sleep(0.2)


def answers(rig: Rig, model: str = "double") -> bool:
    try:
        rig.infer(model)
    except (InferenceServerException, OSError):
        return False
    return True


def new_rig(folder: Path, image: str, **more: object) -> Rig:
    rig = Rig(folder, fresh_name("service"), {name: free_port() for name in ("http", "grpc", "metrics")})
    write_model(folder / "models", "double", 2.0)
    document = {
        "name": rig.name, "image": image, "install": [write_wheel(folder).name], "models": "models",
        "resources": {"memory": "1 GiB", "cpus": 2}, "ports": rig.ports,
        "server": {"control": "poll", "poll_seconds": 0.5, "drain_seconds": 20}, **more,
    }  # fmt: skip
    (folder / "service.yaml").write_text(yaml.safe_dump(document))
    return rig


@pytest.fixture(scope="module")
def service(serve_image: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rig]:
    rig = new_rig(tmp_path_factory.mktemp("service"), serve_image)
    done = rig.deploy("--wait")
    try:
        assert done.returncode == 0, done.stderr
        assert done.stdout == f"{rig.name}\n"
        yield rig
    finally:
        run_podman("rm", "--force", "--time=0", rig.name)


def test_triton_s_clients_are_answered(service: Rig) -> None:
    assert (service.infer() == ROWS * 2).all()
    with grpc_client.InferenceServerClient(f"127.0.0.1:{service.ports['grpc']}") as client:
        given = grpc_client.InferInput("INPUT", [1, 4], "FP32")
        given.set_data_from_numpy(ROWS)
        assert (client.infer("double", [given]).as_numpy("OUTPUT") == ROWS * 2).all()


def test_status_and_logs_tell_about_the_server(service: Rig) -> None:
    told = service.state()
    assert (told["state"], told["server"]["is_ready"]) == ("running", True)
    assert [model["name"] for model in told["server"]["models"]] == ["double"]
    assert "double version 1 ready" in service.run("status", service.name).stdout
    assert "REST at http://0.0.0.0:8000" in service.run("logs", service.name).stdout


def test_the_server_may_do_nothing_that_it_need_not(service: Rig) -> None:
    document = service.inspect()
    assert document["Config"]["User"] == "65534:65534"
    assert document["HostConfig"]["ReadonlyRootfs"]
    assert {mount["Destination"]: mount["RW"] for mount in document["Mounts"]} == {
        "/models": False, "/etc/tonnage": False
    }  # fmt: skip


def test_a_new_model_in_the_folder_is_served(service: Rig) -> None:
    write_model(service.folder / "models", "triple", 3.0)
    until(lambda: answers(service, "triple"), "the new model is not served")
    assert (service.infer("triple") == ROWS * 3).all()


def test_a_changed_file_is_applied_while_it_runs(service: Rig) -> None:
    pid = service.inspect()["State"]["Pid"]
    service.write(rate_limit=2)
    done = service.deploy()
    assert "it was given the new configuration" in done.stderr
    until(lambda: not all(answers(service) for _ in range(8)), "the rate is not limited")
    with pytest.raises(InferenceServerException, match="may ask 2 times a second"):
        [service.infer() for _ in range(8)]
    service.write(rate_limit=0)
    assert service.deploy().returncode == 0
    until(lambda: all(answers(service) for _ in range(8)), "the rate is still limited")
    assert service.inspect()["State"]["Pid"] == pid
    assert "the new configuration is used" in service.run("logs", service.name).stdout


def test_a_broken_file_leaves_the_old_one_in_force(service: Rig) -> None:
    start = service.inspect()["Config"]["Labels"]["tonnage.start"]
    inside = service.folder / "state" / "podman" / "services" / start / "etc-tonnage" / "service.yaml"
    good = inside.read_text()
    inside.write_text(good.replace("poll_seconds", "pol_seconds"))
    until(lambda: "the new configuration is not used" in service.run("logs", service.name).stdout, "nothing is said")
    assert "server.pol_seconds: there is no such field" in service.run("logs", service.name).stdout
    assert answers(service)
    inside.write_text(good)


def test_what_needs_a_new_start_is_refused(service: Rig) -> None:
    service.write(device="cuda")
    done = service.deploy()
    assert done.returncode == 2, done.stderr
    service.write(device="cpu", drain_seconds=25)
    assert "more has changed than can be while it does" in service.deploy().stderr
    service.write(drain_seconds=20)


def test_a_killed_server_is_started_again(service: Rig) -> None:
    os.kill(service.inspect()["State"]["Pid"], signal.SIGKILL)
    until(lambda: service.inspect()["RestartCount"] == 1 and answers(service), "it does not come back")
    assert "it failed and was started again" in service.state()["reason"]


def test_podman_can_ask_whether_it_lives(service: Rig) -> None:
    assert run_podman("healthcheck", "run", service.name).returncode == 0
    assert service.inspect()["State"]["Health"]["Status"] == "healthy"


def test_a_cluster_s_pod_is_the_same_server(service: Rig, tmp_path: Path) -> None:
    """As Podman plays it: image, command, ConfigMap, models, security and limits of the Deployment's pod work together."""
    document = yaml.safe_load((service.folder / "service.yaml").read_text())
    image, port = service.inspect()["ImageName"], free_port()
    document |= {"image": image, "install": [], "name": fresh_name("pod"), "models": f"node:{service.folder}/models"}
    (tmp_path / "service.yaml").write_text(yaml.safe_dump(document))
    job = job_of_service(read_service(tmp_path / "service.yaml"), "kubernetes")
    config, deployment, _ = yaml.safe_load_all(KubernetesEngine().plan(job, EngineOptions()).text)
    spec = deployment["spec"]["template"]["spec"]
    for container in spec["containers"]:
        container["ports"] = [{"containerPort": 8000, "hostPort": port, "hostIP": "127.0.0.1"}]
        for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
            container.pop(probe)  # podman asks with curl, which the image does not have
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": job.name}, "spec": spec}
    (tmp_path / "pod.yaml").write_text(yaml.safe_dump_all([config, pod]))
    try:
        played = run_podman("play", "kube", str(tmp_path / "pod.yaml"))
        assert played.returncode == 0, played.stderr
        until(lambda: ask_health(f"http://127.0.0.1:{port}").is_ready, "the pod is not ready")
        assert "double" in [model.name for model in ask_health(f"http://127.0.0.1:{port}").models]
        assert (Rig(tmp_path, "", {"http": port}).infer() == ROWS * 2).all()
    finally:
        run_podman("play", "kube", "--down", str(tmp_path / "pod.yaml"))


def test_stopping_answers_what_has_come_in(service: Rig) -> None:
    write_slow_model(service.folder / "models", "slow", rounds=6_000)
    until(lambda: answers(service, "slow"), "the slow model is not served")
    results: list[np.ndarray] = []
    asking = threading.Thread(target=lambda: results.append(service.infer("slow")))
    asking.start()
    until(lambda: busy(service, "slow"), "nothing is being computed")
    assert service.run("stop", service.name).stdout == f"{service.name} cancelled\n"
    asking.join()
    assert len(results) == 1
    assert (results[0] == ROWS * 2).all()
    assert service.state()["exit_code"] == service.inspect()["State"]["ExitCode"] == 0
    assert service.run("stop", service.name, "--remove").returncode == 0
    assert run_podman("inspect", service.name).returncode != 0
    assert not list((service.folder / "state" / "podman" / "services").iterdir())


def busy(rig: Rig, model: str) -> bool:
    with urllib.request.urlopen(f"http://127.0.0.1:{rig.ports['metrics']}/metrics") as answer:
        return f'tonnage_instances_busy{{model="{model}",version="1"}} 1' in answer.read().decode()


def test_tokens_and_certificates_are_the_server_s_alone(serve_image: str, tmp_path: Path) -> None:
    """Files that only their owner can read here; the server in the container runs as nobody, and reads copies."""
    write_certificate(tmp_path)
    (tmp_path / "access.yaml").write_text(f"clients:\n- {{name: alice, token: {TOKEN}}}\n")
    for name in ("access.yaml", "key.pem"):
        (tmp_path / name).chmod(0o600)
    rig = new_rig(tmp_path, serve_image)
    rig.write(access="access.yaml", tls={"certificate": "certificate.pem", "key": "key.pem"}, control="explicit")
    try:
        done = rig.deploy("--wait")
        assert done.returncode == 0, done.stderr
        assert ask(rig) == 401
        assert ask(rig, TOKEN) == 200
        (tmp_path / "access.yaml").write_text(f"clients:\n- {{name: alice, token: {TOKEN[::-1]}}}\n")
        assert rig.deploy().returncode == 0
        until(lambda: ask(rig, TOKEN[::-1]) == 200, "the new token is not taken over")
        assert ask(rig, TOKEN) == 401
        assert {path.stat().st_mode & 0o777 for path in (tmp_path / "state", tmp_path / "state" / "podman")} == {0o700}
    finally:
        run_podman("rm", "--force", "--time=0", rig.name)


def ask(rig: Rig, token: str = "") -> int:
    context = ssl.create_default_context(cafile=str(rig.folder / "certificate.pem"))
    url = f"https://127.0.0.1:{rig.ports['http']}/v2/models/double"
    try:
        request = urllib.request.Request(url, headers={"Authorization": f"Bearer {token}"})
        with urllib.request.urlopen(request, context=context) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        error.close()
        return error.code


# -- what does not come up ------------------------------------------------------------------------------------------------


def fails(rig: Rig, *arguments: str) -> str:
    try:
        done = rig.deploy("--wait", *arguments)
        assert done.returncode != 0
        return done.stderr
    finally:
        run_podman("rm", "--force", "--time=0", rig.name)


def test_an_image_without_tonnage_is_told(serve_image: str, tmp_path: Path) -> None:
    said = fails(new_rig(tmp_path, serve_image, install=[], restarts=1))
    assert f"does not come up: {serve_image} has no Tonnage" in said


def test_a_model_that_cannot_be_loaded_is_told(serve_image: str, tmp_path: Path) -> None:
    rig = new_rig(tmp_path, serve_image)
    (tmp_path / "models" / "double" / "1" / "model.onnx").write_bytes(b"nonsense")
    said = fails(rig)
    assert "does not come up: the model double cannot be loaded" in said


def test_a_port_that_is_taken_is_told_with_its_line(serve_image: str, tmp_path: Path) -> None:
    rig = new_rig(tmp_path, serve_image)
    with socket.create_server(("127.0.0.1", rig.ports["grpc"])):
        said = fails(rig)
    assert f"ports.grpc: port {rig.ports['grpc']} is taken" in said
