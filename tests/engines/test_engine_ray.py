"""The engine against a real Ray of four nodes: the contract, the inventory, and programs with their files."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest
from contract import PROGRAMS, EngineContract, is_over, wait_for
from ray_rig import RayRig, ray_rig

from tonnage.engines.base import Engine, EngineOptions, HasInventory, Job, JobId, JobState, Resources, Source
from tonnage.engines.names import fresh_name
from tonnage.engines.ray import RayEngine
from tonnage.errors import Unreachable

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
