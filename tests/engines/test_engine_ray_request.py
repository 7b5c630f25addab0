"""What is sent to Ray, what comes back from it, and the keeper of a process: all without a cluster."""

from __future__ import annotations

import io
import json
import subprocess
import sys
import time
import zipfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tonnage.engines import ray_keeper
from tonnage.engines.base import EngineOptions, Job, JobId, JobState, Mount, Placement, Resources, Source
from tonnage.engines.ports import free_port
from tonnage.engines.ray import RayEngine
from tonnage.engines.ray_client import Dashboard
from tonnage.engines.ray_fit import check_fits, check_version
from tonnage.engines.ray_request import RayOptions, order_of, package_of, ray_model, request_of
from tonnage.engines.ray_states import job_status, node_inventory
from tonnage.errors import DoesNotFit, InvalidFile, NotFound, TonnageError, Unreachable, UsageError
from tonnage.hardware.catalogue import all_gpus

GOLDEN = Path(__file__).parents[1] / "golden" / "engines" / "ray-gang.yaml"
GIB = 1 << 30

Document = dict[str, Any]

GANG = Job(
    name="train-vit",
    command=("python3", "train.py", "--batch-size", "64"),
    workdir="/app",
    source=Source(files={"train.py": b"import model\n", "model.py": b"LAYERS = 12\n"}, digest="sha256:0"),
    resources=Resources(cpu_cores=6, memory_bytes=48 * GIB),
    environment={"TOKEN": "secret"},
    labels={"team": "vision"},
    placements=(
        Placement(node="volta-0", gpu="V100 SXM2 16GB", gpu_indices=(0, 1)),
        Placement(node="pascal-0", gpu="P100 SXM2", gpu_indices=(1,), share=0.5),
    ),
    after=(JobId("prepare"),),
    requeue=True,
)
ALONE = Job(name="alone", command=("true",))

# -- the request ----------------------------------------------------------------------------------------------------------


def test_the_request_is_as_it_was() -> None:
    assert RayEngine().plan(GANG, RayOptions(restarts=2)).text == GOLDEN.read_text()


def test_secrets_are_not_in_what_every_user_of_the_cluster_reads() -> None:
    assert "secret" not in json.dumps(request_of(GANG, RayOptions()))
    assert order_of(GANG, RayOptions())["environment"] == {"TOKEN": "secret"}


def test_the_working_folder_is_what_was_read() -> None:
    with zipfile.ZipFile(io.BytesIO(package_of(GANG, RayOptions()))) as archive:
        files = {name: archive.read(name) for name in archive.namelist()}
    assert files.pop("train.py") == b"import model\n"
    assert files.pop("model.py") == b"LAYERS = 12\n"
    assert json.loads(files.pop(".tonnage/order.json")) == order_of(GANG, RayOptions())
    assert sorted(files) == [".tonnage/ray_driver.py", ".tonnage/ray_keeper.py"]


def test_requirements_are_installed_by_ray() -> None:
    source = Source(files={}, digest="", requirements=("numpy==2.4.6",))
    assert request_of(replace(GANG, source=source), RayOptions())["runtime_env"]["pip"] == ["numpy==2.4.6"]


def test_a_job_without_placements_goes_anywhere_with_its_resources() -> None:
    job = replace(ALONE, resources=Resources(gpu_count=2, gpu="H200"), node_type="hopper")
    order = order_of(job, RayOptions(node_type_label="node-type"))
    bundle = {"CPU": 1.0, "memory": float(GIB), "GPU": 2, "accelerator_type:H200": 0.001}
    assert order["places"] == [{"node": "", "labels": {"node-type": "hopper"}, "bundle": bundle}]
    assert (order["strategy"], order["restarts"]) == ("PACK", 0)


@pytest.mark.parametrize(
    ("nodes", "strategy"), [(("a", "b"), "STRICT_SPREAD"), (("", ""), "STRICT_SPREAD"), (("a", "a"), "SPREAD")]
)
def test_each_placement_goes_to_another_node_unless_the_plan_says_otherwise(
    nodes: tuple[str, ...], strategy: str
) -> None:
    job = replace(ALONE, placements=tuple(Placement(node=node) for node in nodes))
    assert order_of(job, RayOptions())["strategy"] == strategy


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"image": "python:3"}, "image"),
        ({"mounts": (Mount(source="/data", target="/data"),)}, "mounted"),
        ({"ports": ((8000, 8000),)}, "ports"),
        ({"replicas": 2}, "services"),
        ({"resources": Resources(numa_node=0)}, "NUMA"),
        ({"source": Source(files={"../x": b""}, digest="")}, "../x would be outside"),
        ({"placements": (Placement(gpu_indices=(0, 1), share=0.5),)}, "parts of several"),
        ({"placements": (Placement(gpu_indices=(0,), share=float("nan")),)}, "share of nan"),
        ({"labels": {"a b": "c"}}, "name of a label"),
        ({"environment": {"A=B": "c"}}, "environment variable"),
    ],
)
def test_what_ray_cannot_do_is_refused(change: dict[str, Any], words: str) -> None:
    with pytest.raises(UsageError, match=words):
        RayEngine().plan(replace(ALONE, **change), EngineOptions())


def test_a_gpu_that_nobody_knows_is_not_found() -> None:
    with pytest.raises(NotFound, match="unknown GPU"):
        RayEngine().plan(replace(ALONE, placements=(Placement(gpu="Z1", gpu_indices=(0,)),)), EngineOptions())


def test_gpus_are_called_as_ray_calls_them() -> None:
    manager = pytest.importorskip("ray._private.accelerators.nvidia_gpu").NvidiaGPUAcceleratorManager
    nvidia = [gpu for gpu in all_gpus() if not gpu.driver_name.startswith("AMD")]
    expected = {gpu.name: manager._gpu_name_to_accelerator_type(gpu.driver_name) for gpu in nvidia}
    assert {gpu.name: ray_model(gpu.name) for gpu in nvidia} == expected
    assert ray_model("MI300X") == "AMD-Instinct-MI300X-OAM"


# -- whether a cluster could hold it --------------------------------------------------------------------------------------


def node(name: str, *, state: str = "ALIVE", **resources: float) -> Document:
    named = {key.replace("_type_", "_type:"): value for key, value in resources.items()}
    labels = {"tonnage.node": name}
    return {
        "node_id": f"id-{name}", "node_ip": "10.0.0.1", "node_name": "10.0.0.1", "state": state, "labels": labels,
        "resources_total": {"CPU": 8.0, "memory": 16.0 * GIB, **named},
    }  # fmt: skip


NODES = [
    node("volta", GPU=2.0, accelerator_type_V100=1.0),
    node("pascal", GPU=4.0, accelerator_type_P100=1.0),
    node("gone", state="DEAD", GPU=8.0, accelerator_type_V100=1.0),
]


def fits(placement: Placement, **resources: Any) -> None:
    job = replace(ALONE, placements=(placement,), resources=Resources(**resources))
    check_fits(order_of(job, RayOptions()), NODES)


@pytest.mark.parametrize(
    "placement",
    [
        Placement(),
        Placement(node="volta", gpu="V100 SXM2 16GB", gpu_indices=(0, 1)),
        Placement(node="id-pascal", gpu_indices=(0, 1, 2)),
        Placement(node="10.0.0.1", gpu="P100 SXM2", gpu_indices=(0,)),
    ],
)
def test_what_a_node_could_hold_is_taken(placement: Placement) -> None:
    fits(placement)


@pytest.mark.parametrize(
    ("placement", "resources", "kind", "words"),
    [
        (Placement(node="kepler"), {}, NotFound, "Ray has no node 'kepler'"),
        (Placement(node="gone"), {}, NotFound, "Ray has no node 'gone'"),
        (Placement(gpu="K80", gpu_indices=(0,)), {}, DoesNotFit, "no node has a GPU K80"),
        (Placement(node="volta", gpu="K80", gpu_indices=(0,)), {}, DoesNotFit, "the node volta has no GPU K80"),
        (Placement(gpu_indices=tuple(range(8))), {}, DoesNotFit, "8 of GPU are wanted, the largest node has 4"),
        (Placement(), {"memory_bytes": 20 * GIB}, DoesNotFit, "20.0 GiB of memory are wanted"),
        (Placement(gpu="V100 SXM2 16GB", gpu_indices=(0, 1, 2)), {}, DoesNotFit, "enough of everything"),
    ],
)
def test_what_no_node_could_hold_is_refused(
    placement: Placement, resources: Document, kind: type[TonnageError], words: str
) -> None:
    with pytest.raises(kind, match=words):
        fits(placement, **resources)


def test_a_ray_that_would_ignore_placements_is_refused() -> None:
    check_version((2, 50))
    with pytest.raises(UsageError, match=r"Ray 2\.48: placements need 2\.50"):
        check_version((2, 48))


@pytest.mark.parametrize(("told", "version"), [("2.60.0", (2, 60)), ("3.0.0.dev0", (3, 0)), ("2.50rc1", (2, 50))])
def test_the_version_is_read(told: str, version: tuple[int, int], monkeypatch: pytest.MonkeyPatch) -> None:
    import httpx2

    dashboard = Dashboard()
    monkeypatch.setattr(dashboard, "_ask", lambda *_: httpx2.Response(200, json={"ray_version": told}))
    assert dashboard.version() == version


def test_the_inventory_tells_models_and_who_is_up() -> None:
    volta, _, gone = (node_inventory(each, "tonnage.node") for each in NODES)
    assert (volta.name, volta.gpus, volta.cpu_cores, volta.memory_bytes) == ("volta", {"V100": 2}, 8, 16 * GIB)
    assert (volta.is_up, gone.is_up) == (True, False)


# -- states ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("told", "report", "state", "exit_code", "reason"),
    [
        ({"status": "PENDING"}, {}, JobState.PENDING, None, ""),
        ({"status": "RUNNING"}, {}, JobState.PENDING, None, ""),
        ({"status": "RUNNING"}, {"phase": "waiting", "reason": "waits"}, JobState.PENDING, None, "waits"),
        ({"status": "RUNNING"}, {"phase": "running", "reason": ""}, JobState.RUNNING, None, ""),
        ({"status": "SUCCEEDED"}, {"phase": "over", "exit_code": 0}, JobState.SUCCEEDED, 0, ""),
        ({"status": "FAILED", "driver_exit_code": 1}, {"phase": "over", "exit_code": None, "reason": "the node x is lost"},
         JobState.FAILED, None, "the node x is lost"),
        ({"status": "FAILED", "driver_exit_code": 137, "message": "failed with exit code 137, last available logs: x\ny"},
         {"phase": "running"}, JobState.FAILED, 137, "failed with exit code 137"),
        ({"status": "FAILED", "message": "no such package\nmore"}, {}, JobState.FAILED, None, "no such package"),
        ({"status": "STOPPED", "message": "Job was stopped"}, {"phase": "over"}, JobState.CANCELLED, None, ""),
        ({"status": "HIBERNATING"}, {}, JobState.UNKNOWN, None, ""),
    ],
)  # fmt: skip
def test_states_are_told_in_our_words(
    told: Document, report: Document, state: JobState, exit_code: int | None, reason: str
) -> None:
    status = job_status(told, report)
    assert (status.state, status.exit_code, status.reason) == (state, exit_code, reason)


def test_times_are_those_of_the_processes() -> None:
    told = {"status": "SUCCEEDED", "start_time": 1000, "end_time": 9000}
    status = job_status(
        told, {"phase": "over", "started_at": 3.0, "ended_at": 5.0, "devices": ["a/gpu1"], "restarts": 2}
    )
    assert (status.started_at, status.ended_at, status.devices, status.restarts) == (3.0, 5.0, ("a/gpu1",), 2)


def test_no_ray_is_needed_here() -> None:
    code = "import tonnage.engines.ray, sys; print('ray' in sys.modules, 'torch' in sys.modules)"
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert told.stdout == "False False\n"


# -- the client -----------------------------------------------------------------------------------------------------------


def test_a_ray_that_is_down_is_unreachable() -> None:
    engine = RayEngine(f"http://127.0.0.1:{free_port()}")
    manifest = engine.plan(ALONE, EngineOptions())
    for ask in (lambda: engine.submit(manifest), lambda: engine.state(JobId("x")), engine.inventory):
        with pytest.raises(Unreachable, match="Ray does not answer at") as caught:
            ask()
        assert caught.value.exit_code == 5


def test_the_address_is_found_where_ray_s_own_client_finds_it(monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in ("RAY_API_SERVER_ADDRESS", "RAY_ADDRESS"):
        monkeypatch.delenv(variable, raising=False)
    assert Dashboard().address == "http://127.0.0.1:8265"
    monkeypatch.setenv("RAY_ADDRESS", "10.0.0.1:6379")  # of the cluster's own protocol, not HTTP
    assert Dashboard().address == "http://127.0.0.1:8265"
    monkeypatch.setenv("RAY_ADDRESS", "http://head:8265/")
    assert Dashboard().address == "http://head:8265"
    monkeypatch.setenv("RAY_API_SERVER_ADDRESS", "https://ray.example")
    assert Dashboard().address == "https://ray.example"
    assert Dashboard("http://other").address == "http://other"


def test_headers_that_are_none_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAY_JOB_HEADERS", "Authorization: x")
    with pytest.raises(InvalidFile, match="RAY_JOB_HEADERS"):
        Dashboard().nodes()


# -- the keeper -----------------------------------------------------------------------------------------------------------


def keeper(grace_seconds: float, program: str) -> subprocess.Popen[str]:
    command = [sys.executable, ray_keeper.__file__, str(grace_seconds), sys.executable, "-c", program]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


@pytest.mark.parametrize(
    ("program", "exit_code"),
    [("", 0), ("raise SystemExit(7)", 7), ("import os, signal; os.kill(os.getpid(), signal.SIGKILL)", 137)],
)
def test_a_keeper_ends_as_its_command(program: str, exit_code: int) -> None:
    with keeper(5, program) as kept:
        assert kept.wait(20) == exit_code


@pytest.mark.parametrize(
    ("before", "exit_code"),
    [("", 143), ("import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN)", 137)],
    ids=["obedient", "deaf"],
)
def test_a_command_ends_with_its_keeper_s_input(before: str, exit_code: int) -> None:
    program = f"{before}\nimport os, time; print(os.getpid(), flush=True); time.sleep(600)"
    with keeper(0.3, program) as kept:
        assert kept.stdin is not None
        assert kept.stdout is not None
        pid = int(kept.stdout.readline())
        kept.stdin.close()
        assert kept.wait(20) == exit_code
        assert not Path("/proc", str(pid)).exists()


def test_a_command_has_its_grace_even_if_its_keeper_s_parent_is_killed(tmp_path: Path) -> None:
    last_word = tmp_path / "last-word"
    program = f"""
import signal, sys, time
def stop(*_):
    time.sleep(0.5)
    open({str(last_word)!r}, "w").write("saved")
    sys.exit()
signal.signal(signal.SIGTERM, stop)
print("ready", flush=True)
time.sleep(600)
"""
    with keeper(10, program) as kept:
        assert kept.stdout is not None
        assert kept.stdout.readline() == "ready\n"
        kept.kill()
    for _ in range(100):
        if last_word.exists():
            break
        time.sleep(0.05)
    assert last_word.read_text() == "saved"


def test_what_a_command_started_ends_with_it() -> None:
    program = "import subprocess; print(subprocess.Popen(['sleep', '600']).pid, flush=True)"
    with keeper(5, program) as kept:
        assert kept.stdout is not None
        pid = int(kept.stdout.readline())
        assert kept.wait(20) == 0
    assert not is_running(pid)


def is_running(pid: int) -> bool:
    """One that was killed may wait for somebody to ask how it ended."""
    for _ in range(40):
        try:
            if Path("/proc", str(pid), "stat").read_text().rpartition(")")[2].split()[0] == "Z":
                return False
        except FileNotFoundError:
            return False
        time.sleep(0.05)
    return True


def test_a_command_that_is_not_there_is_told_as_by_a_shell() -> None:
    command = [sys.executable, ray_keeper.__file__, "1", "no-such-command"]
    told = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    assert (told.returncode, told.stderr) == (127, "no-such-command cannot be started: No such file or directory\n")
