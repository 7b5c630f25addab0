"""The engine against a real Ray of four nodes: the contract, the inventory, programs with their files, and placements:
devices, shares, gangs, dependencies, restarts and lost nodes.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from contract import PROGRAMS, SECONDS, EngineContract, is_over, wait_for
from ray_rig import RayRig, RigNode, ray_rig

from tonnage.engines.base import (
    Engine,
    EngineOptions,
    HasInventory,
    Job,
    JobId,
    JobState,
    JobStatus,
    Placement,
    Resources,
    Source,
)
from tonnage.engines.names import fresh_name
from tonnage.engines.ray import RayEngine
from tonnage.errors import NotFound, Unreachable

Submit = Callable[..., JobId]

FILES = {
    "train.py": b"import os, sys, parts.model\nprint(parts.model.LAYERS, sys.argv[1:], sorted(os.listdir()))",
    "parts/model.py": b"LAYERS = 12",
}


@pytest.fixture(scope="module")
def rig() -> Iterator[RayRig]:
    with ray_rig() as found:
        yield found


@pytest.fixture(scope="module")
def ray(rig: RayRig) -> RayEngine:
    return RayEngine(rig.address)


class TestRay(EngineContract):
    @pytest.fixture
    def engine(self, ray: RayEngine) -> Engine:
        return ray

    def job(self, program: str) -> Job:
        command = ("python3", "-c", PROGRAMS[program])
        resources = Resources(cpu_cores=0.5, memory_bytes=1 << 28)
        return Job(name=fresh_name("contract"), command=command, resources=resources)

    @pytest.mark.parametrize(
        "change",
        [
            {"command": ("python3", "train.py", "a b"), "workdir": "/app"},
            {"command": (sys.executable, "train.py", "a b"), "workdir": "/home/of/somebody", "copied_words": (1,)},
        ],
        ids=["as in an image", "as on the user's machine"],
    )
    def test_a_program_runs_from_what_was_read(self, ray: RayEngine, submit: Submit, change: dict[str, object]) -> None:
        job_id = submit("hello", source=Source(files=FILES, digest=""), environment={"TOKEN": "secret"}, **change)
        assert wait_for(ray, job_id, is_over).state is JobState.SUCCEEDED, list(ray.logs(job_id))
        assert list(ray.logs(job_id)) == ["12 ['a b'] ['.tonnage', 'parts', 'train.py']"]
        assert "secret" not in json.dumps(ray.dashboard.job(job_id))

    def test_a_request_whose_answer_is_lost_runs_once(
        self, ray: RayEngine, submit: Submit, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        send = ray.dashboard.submit

        def lose_the_answer(request: dict[str, object]) -> None:
            send(request)
            raise Unreachable("timed out")

        monkeypatch.setattr(ray.dashboard, "submit", lose_the_answer)
        job_id = submit("hello")
        assert job_id in {listed for listed, _, _ in ray.jobs()}

    def test_a_name_that_was_removed_starts_afresh(self, ray: RayEngine, submit: Submit) -> None:
        first = replace(self.job("fail"), name="contract-again")
        wait_for(ray, ray.submit(ray.plan(first, EngineOptions())), is_over)
        ray.remove(JobId(first.name))
        job_id = submit("hello", name=first.name)
        assert wait_for(ray, job_id, is_over).state is JobState.SUCCEEDED, ray.state(job_id)
        assert list(ray.logs(job_id)) == ["hello", "world"]


def test_the_inventory_is_what_the_nodes_have(ray: RayEngine) -> None:
    assert isinstance(ray, HasInventory)
    found = {node.name: node for node in ray.inventory() if node.is_up}
    assert {name: node.gpus for name, node in found.items()} == {
        "volta-0": {"V100": 2}, "volta-1": {"V100": 2}, "pascal-0": {"P100": 2}, "kepler-0": {"K80": 1},
    }  # fmt: skip
    assert (found["volta-1"].cpu_cores, found["volta-1"].memory_bytes) == (8, 16 << 30)


# -- placements ----------------------------------------------------------------------------------------------------------

V100, P100, K80, T4 = "V100 SXM2 16GB", "P100 SXM2", "K80", "T4"
SMALL = Resources(cpu_cores=0.5, memory_bytes=1 << 28)
# Tells what it sees, and ends with the code that somebody writes into its file.
PATIENT = """
import os, sys, time
from pathlib import Path
print(os.environ["CUDA_VISIBLE_DEVICES"], flush=True)
end = Path(sys.argv[1])
Path(f"{end}.pid").write_text(str(os.getpid()))
while not end.exists():
    time.sleep(0.05)
sys.exit(int(end.read_text()))
"""


@pytest.fixture
def run(ray: RayEngine, tmp_path: Path) -> Iterator[Callable[..., JobId]]:
    """Submits; whatever was submitted is gone afterwards."""
    made: list[JobId] = []

    def run(name: str, *command: str, **more: object) -> JobId:
        patient = ("python3", "-c", PATIENT, str(tmp_path / name))
        job = Job(name=fresh_name(name), command=command or patient, resources=SMALL)
        made.append(ray.submit(ray.plan(replace(job, **more), EngineOptions())))
        return made[-1]

    yield run
    for job_id in made:
        ray.cancel(job_id)
    for job_id in made:
        ray.remove(job_id)


def running(status: JobStatus) -> bool:
    assert not status.state.is_over, status
    return status.state is JobState.RUNNING


def on(node: str, gpu: str, *indices: int, share: float = 1.0) -> tuple[Placement, ...]:
    return (Placement(node=node, gpu=gpu, gpu_indices=indices, share=share),)


def test_each_job_sees_the_devices_of_its_placement(ray: RayEngine, run: Callable[..., JobId], tmp_path: Path) -> None:
    wanted = {
        "both": on("volta-1", V100, 0, 1), "one": on("pascal-0", P100, 1), "any": (Placement(gpu=K80, gpu_indices=(0,)),),
        "none": (Placement(node="volta-0"),),
    }  # fmt: skip
    jobs = {name: run(name, placements=placements) for name, placements in wanted.items()}
    devices = {name: wait_for(ray, job_id, running).devices for name, job_id in jobs.items()}
    for name in jobs:
        (tmp_path / name).write_text("0")
    seen = {name: list(ray.logs(job_id, follow=True)) for name, job_id in jobs.items()}
    assert sorted(devices.pop("both")) == ["volta-1/gpu0", "volta-1/gpu1"]
    assert devices.pop("one") in (("pascal-0/gpu0",), ("pascal-0/gpu1",))
    assert devices == {"any": ("kepler-0/gpu0",), "none": ()}
    assert (sorted(seen.pop("both")[0].split(",")), len(seen.pop("one")[0])) == (["0", "1"], 1)
    assert seen == {"any": ["0"], "none": [""]}


def test_two_halves_share_a_gpu_and_a_third_waits(ray: RayEngine, run: Callable[..., JobId], tmp_path: Path) -> None:
    half = on("kepler-0", K80, 0, share=0.5)
    first, second = run("first", placements=half), run("second", placements=half)
    assert {wait_for(ray, job_id, running).devices for job_id in (first, second)} == {("kepler-0/gpu0",)}
    third = run("third", placements=half)
    waiting = wait_for(ray, third, lambda status: status.reason.startswith("waits for"))
    assert (waiting.state, waiting.reason) == (JobState.PENDING, "waits for 0.5 GPU K80, 0.5 CPU, 0.25 GiB on kepler-0")
    (tmp_path / "first").write_text("0")
    assert wait_for(ray, third, running).started_at >= ray.state(first).ended_at  # type: ignore[operator]
    assert ray.state(second).state is JobState.RUNNING


MEETING = """
import os, socket, sys
place = (os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]))
who = " ".join(os.environ[key] for key in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "CUDA_VISIBLE_DEVICES"))
if os.environ["RANK"] == "0":
    with socket.create_server(place) as server:
        print(who, "met", server.accept()[0].recv(100).decode())
else:
    while True:
        try:
            socket.create_connection(place).send(who.encode())
            break
        except ConnectionRefusedError:
            pass
"""


def test_a_gang_over_two_nodes_meets(ray: RayEngine, run: Callable[..., JobId]) -> None:
    both = on("volta-0", V100, 0) + on("volta-1", V100, 0)
    job_id = run("gang", "python3", "-c", MEETING, placements=both)
    status = wait_for(ray, job_id, is_over)
    assert (status.state, status.devices) == (JobState.SUCCEEDED, ("volta-0/gpu0", "volta-1/gpu0")), status
    assert list(ray.logs(job_id)) == ["0: 0 2 0 0 met 1 2 0 0"]


def test_a_gang_ends_with_the_first_that_fails(ray: RayEngine, run: Callable[..., JobId], tmp_path: Path) -> None:
    program = f"""
import os, sys, time
from pathlib import Path
mark = Path({str(tmp_path / "waits.pid")!r})
if os.environ["RANK"] == "0":
    mark.write_text(str(os.getpid()))
    time.sleep(600)
while not mark.exists():
    time.sleep(0.05)
sys.exit(3)
"""
    job_id = run("gang", "python3", "-c", program, placements=(Placement(), Placement()))
    status = wait_for(ray, job_id, is_over)
    assert (status.state, status.exit_code) == (JobState.FAILED, 3)
    assert not Path("/proc", (tmp_path / "waits.pid").read_text()).exists()


def test_a_job_waits_for_others_however_they_end(ray: RayEngine, run: Callable[..., JobId], tmp_path: Path) -> None:
    first = run("first")
    second = run("second", "true", after=(JobId("long-gone"), first))
    waiting = wait_for(ray, second, lambda status: first in status.reason)
    assert (waiting.state, waiting.reason) == (JobState.PENDING, f"waits for the end of {first}")
    (tmp_path / "first").write_text("9")
    status = wait_for(ray, second, is_over)
    assert status.state is JobState.SUCCEEDED
    assert ray.state(first).exit_code == 9
    assert status.started_at >= ray.state(first).ended_at  # type: ignore[operator]


def kill(path: Path) -> None:
    deadline = time.monotonic() + SECONDS
    while not path.exists() or not path.read_text():
        assert time.monotonic() < deadline
        time.sleep(0.05)
    os.kill(int(path.read_text()), signal.SIGKILL)


def test_a_killed_job_is_started_again_and_says_so(ray: RayEngine, run: Callable[..., JobId], tmp_path: Path) -> None:
    allowed, refused = run("allowed", requeue=True, placements=on("pascal-0", P100, 0)), run("refused")
    for name in ("allowed", "refused"):
        kill(tmp_path / f"{name}.pid")
    again = wait_for(ray, allowed, lambda status: status.restarts == 1 and running(status))
    assert again.reason == "started again: ended by signal SIGKILL (exit 137)"
    (tmp_path / "allowed").write_text("0")
    status = wait_for(ray, allowed, is_over)
    assert (status.state, status.exit_code, status.restarts) == (JobState.SUCCEEDED, 0, 1)
    status = wait_for(ray, refused, is_over)
    assert (status.state, status.exit_code, status.restarts) == (JobState.FAILED, 137, 0)
    assert status.reason == "ended by signal SIGKILL (exit 137)"


def test_jobs_of_a_lost_node_go_elsewhere_or_say_so(
    rig: RayRig, ray: RayEngine, run: Callable[..., JobId], tmp_path: Path
) -> None:
    rig.add(RigNode(name="turing-0", model="T4", gpus=1))
    movable = run("movable", requeue=True, placements=(Placement(gpu=T4, gpu_indices=(0,)),))
    pinned = run("pinned", requeue=True, placements=(Placement(node="turing-0"),))
    assert wait_for(ray, movable, running).devices == ("turing-0/gpu0",)
    wait_for(ray, pinned, running)
    rig.add(RigNode(name="turing-1", model="T4", gpus=1))
    rig.remove("turing-0")
    moved = wait_for(ray, movable, lambda status: status.restarts == 1 and running(status))
    assert (moved.devices, moved.reason) == (("turing-1/gpu0",), "started again: the node turing-0 was lost")
    lost = wait_for(ray, pinned, is_over)
    assert (lost.state, lost.exit_code, lost.reason) == (JobState.FAILED, None, "the node turing-0 is lost")
    with pytest.raises(NotFound, match="turing-0"):
        run("late", placements=(Placement(node="turing-0"),))
    (tmp_path / "movable").write_text("0")
    assert wait_for(ray, movable, is_over).state is JobState.SUCCEEDED
    rig.remove("turing-1")
