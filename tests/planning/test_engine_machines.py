"""Plans for the machines that an engine itself tells of, and shared GPUs only where it can share them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest
from slurm_rig import NODES, SlurmRig, slurm, slurm_rig

from tonnage.allocate.problem import Device, Problem, Profile, Task
from tonnage.engines.base import EngineOptions, NodeInventory
from tonnage.engines.fake import FakeEngine
from tonnage.engines.slurm import SlurmEngine
from tonnage.engines.slurm_script import SlurmOptions
from tonnage.errors import DoesNotFit, NotFound, TonnageError, UsageError
from tonnage.hardware.fake_nvml import FakeDevice, FakeNvml
from tonnage.planning.fitting import sharing_as_possible
from tonnage.planning.inventory import cluster_of, this_machine

__all__ = ["slurm", "slurm_rig"]

TYPES = "V100 SXM2 16GB=v100,P100 SXM2=p100"
TOLD = SlurmOptions(gpu_types=TYPES)
NODE = NodeInventory(name="n", gpus={"h200": 2}, cpu_cores=8, memory_bytes=1 << 36)


@dataclass
class Telling(FakeEngine):
    """An engine in memory with nodes."""

    nodes: tuple[NodeInventory, ...] = ()
    meanings: dict[str, tuple[str, ...]] = field(default_factory=dict)

    def inventory(self, options: EngineOptions | None = None) -> tuple[NodeInventory, ...]:  # noqa: ARG002 - as all
        return self.nodes

    def models_called(self, name: str, options: EngineOptions) -> tuple[str, ...]:  # noqa: ARG002 - as all engines
        return self.meanings.get(name, ())


def test_a_cluster_is_made_of_the_nodes_that_are_up_and_have_gpus() -> None:
    away, bare = replace(NODE, name="away", is_up=False), replace(NODE, name="bare", gpus={})
    mixed = replace(NODE, name="mixed", gpus={"l4": 1, "h200": 1})
    engine = Telling(nodes=(NODE, away, bare, mixed), meanings={"h200": ("H200",), "l4": ("L4",)})
    cluster = cluster_of(engine, EngineOptions())
    assert [(place, gpu.name) for place, gpu in cluster.gpus()] == [
        ("n/gpu0", "H200"), ("n/gpu1", "H200"), ("mixed/gpu0", "H200"), ("mixed/gpu1", "L4"),
    ]  # fmt: skip
    assert (cluster.node("n").cpu_cores, cluster.node("n").memory_bytes) == (8, 1 << 36)


@pytest.mark.parametrize(
    ("engine", "error", "message", "hint"),
    [
        (FakeEngine(), UsageError, "fake does not tell which machines it has", "describe the machines: --cluster"),
        (Telling(), DoesNotFit, "fake has no node with GPUs that takes jobs", "describe the machines: --cluster"),
        (Telling(nodes=(NODE,)), NotFound, "calls h200 are none of the catalogue", "--option gpu_types='GPU=h200', or"),
        (
            Telling(nodes=(NODE,), meanings={"h200": ("H200", "H200 NVL")}),
            UsageError, "calls h200 may be H200, H200 NVL", "--option gpu_types='H200=h200', or",
        ),
        (Telling(nodes=(replace(NODE, gpus={"": 1}),)), NotFound, "does not tell the model", "gpu_types='GPU=', or"),
    ],
    ids=["no inventory", "no nodes", "unknown", "ambiguous", "without a name"],
)  # fmt: skip
def test_what_cannot_be_told_is_one_sentence_with_a_hint(
    engine: FakeEngine, error: type[TonnageError], message: str, hint: str
) -> None:
    with pytest.raises(error, match=message) as caught:
        cluster_of(engine, EngineOptions())
    assert hint in caught.value.hint


def test_this_machine_is_told_by_its_driver() -> None:
    devices = [FakeDevice(), FakeDevice(name="NVIDIA L4", total_bytes=23034 << 20)]
    cluster = this_machine(FakeNvml(devices))
    assert [(place, gpu.name) for place, gpu in cluster.gpus()] == [("here/gpu0", "H200"), ("here/gpu1", "L4")]
    with pytest.raises(NotFound, match="the catalogue has no Nobody's"):
        this_machine(FakeNvml([FakeDevice(name="Nobody's")]))


# -- a real Slurm --------------------------------------------------------------------------------------------------------


def test_slurm_tells_its_nodes_and_gpus(slurm: SlurmEngine) -> None:
    found = {node.name: [gpu.name for gpu in node.gpus] for node in cluster_of(slurm, TOLD).nodes}
    names = {"v100": "V100 SXM2 16GB", "p100": "P100 SXM2", "k80": "K80"}
    assert found == {node.name: [names[node.gpu]] * node.gpus for node in NODES}


def test_a_type_that_may_be_several_models_is_asked_about(slurm: SlurmEngine) -> None:
    with pytest.raises(UsageError, match="calls p100 may be P100 PCIe 12GB, P100 PCIe 16GB, P100 SXM2"):
        cluster_of(slurm, SlurmOptions())


def sharing(*models: str) -> Problem:
    tasks = (Task(name=name, steps=1, profiles={model: Profile(step_seconds=1) for model in models}) for name in "ab")
    devices = (Device(place=f"n/gpu{index}", gpu=model, memory_bytes=1) for index, model in enumerate(models))
    return Problem(devices=tuple(devices), tasks=tuple(tasks))


@pytest.mark.parametrize(
    ("models", "options", "most_together"),
    [
        (["V100 SXM2 16GB"], TOLD, 2),
        (["P100 SXM2"], TOLD, 1),
        (["V100 SXM2 16GB", "P100 SXM2"], TOLD, 1),
        (["P100 SXM2"], replace(TOLD, shards=4), 2),
    ],
    ids=["divided", "whole", "some whole", "as the user says"],
)
def test_gpus_are_shared_where_slurm_divides_them(
    slurm: SlurmEngine, models: list[str], options: SlurmOptions, most_together: int
) -> None:
    assert sharing_as_possible(sharing(*models), slurm, options).most_together == most_together


def test_an_engine_that_says_nothing_of_sharing_gets_whole_gpus() -> None:
    assert sharing_as_possible(sharing("T4"), FakeEngine(), EngineOptions()).most_together == 1


# -- the command ---------------------------------------------------------------------------------------------------------


def allocate(folder: Path, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "tonnage", "allocate", "tasks.yaml", "--seconds", "0.3", *arguments]
    return subprocess.run(
        command, cwd=folder, capture_output=True, text=True, check=False, env={**os.environ, **environment}
    )  # fmt: skip


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    task = {
        "name": "t", "count": 6, "speeds": {"P100 SXM2": 1, "K80": 0.5}, "busy": 0.3, "memory": "1 GiB", "steps": 2,
        "cpus": 0.5, "main_memory": "128 MiB", "command": ["sleep", "1"],
    }  # fmt: skip
    (tmp_path / "tasks.yaml").write_text(json.dumps({"tasks": [task]}))
    return tmp_path


@pytest.mark.usefixtures("slurm_rig")
def test_a_plan_for_a_real_cluster_needs_no_cluster_file(folder: Path) -> None:
    words = ("--engine", "slurm", "--option", f"gpu_types={TYPES}", "--json")
    first = allocate(folder, *words, "--submit")
    assert first.returncode == 0, first.stderr
    assert first.stderr == "note: slurm gives each task whole GPUs here, so the plan shares none\n"
    told = json.loads(first.stdout)
    assert len(told["submitted"]) == 6
    assert {place.rpartition("/")[0] for each in told["assignments"] for place in each["gpus"]} <= {
        "p100n0", "p100n1", "k80n0",
    }  # fmt: skip
    assert all(each["beside"] == [] for each in told["assignments"])
    again = allocate(folder, *words, "--watch")
    assert again.returncode == 0, again.stderr
    over = json.loads(again.stdout)
    assert over["submitted"] == []
    assert {each["state"] for each in over["tasks"]} == {"succeeded"}
    assert {each["task"]: each["gpus"] for each in over["assignments"]} == {
        each["task"]: each["gpus"] for each in told["assignments"]
    }


def test_a_cluster_that_is_not_there_is_exit_5_and_leaves_nothing(folder: Path, slurm_rig: SlurmRig) -> None:
    (folder / "cluster.yaml").write_text(
        "nodes: [{name: p100n0, gpus: [{model: P100 SXM2, count: 2}], cpu: {cores: 8}, memory: 64 GiB}]"
    )
    nowhere = folder / "slurm.conf"
    nowhere.write_text(slurm_rig.configuration.read_text().replace("SlurmctldPort=", "SlurmctldPort=1#"))
    for more in ([], ["--cluster", "cluster.yaml"]):
        done = allocate(folder, "--engine", "slurm", "--submit", *more, SLURM_CONF=str(nowhere))
        assert (done.returncode, done.stdout) == (5, ""), done.stderr
        assert done.stderr.startswith("error: Slurm does not answer: ")
    assert list((folder / "state" / "deployments").glob("*")) == []
    shown = allocate(folder, "--engine", "slurm", "--cluster", "cluster.yaml", SLURM_CONF=str(nowhere))
    assert shown.returncode == 0, shown.stderr  # what would be submitted can be read without a cluster


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["--engine", "slrum"], 4, "error: there is no engine 'slrum'\nhint: known are local, podman"),
        (
            ["--engine", "slurm", "--option", "queue=x"],
            2,
            "error: --option queue=x is no option of this engine\nhint: ",
        ),
        (["--engine", "podman", "--submit"], 2, "error: podman needs an image for the program\nhint: "),
        (["--engine", "slurm", "--image", "x"], 2, "error: slurm processes have no image\nhint: "),
        (["--watch"], 2, "error: --watch needs an engine\nhint: name one: --engine slurm\n"),
        ([], 2, "error: which GPUs there are is not said\nhint: name a file, --cluster cluster.yaml, or an engine\n"),
    ],
)
def test_bad_words_are_one_sentence_and_a_hint(folder: Path, arguments: list[str], code: int, words: str) -> None:
    done = allocate(folder, *arguments)
    assert (done.returncode, done.stdout) == (code, "")
    assert done.stderr.startswith(words)
