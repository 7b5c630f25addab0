"""The same distribution through engines: a job for each stage, gone when the run is over."""

from __future__ import annotations

import sysconfig
from pathlib import Path

import pytest
import torch
from networks import Perceptron
from podman_rig import image, podman
from ray_rig import RigNode, ray_rig
from slurm_rig import slurm, slurm_rig
from splitting import in_a_row

import tonnage
from tonnage.engines.base import Engine, Job, Lists, Mount, Resources
from tonnage.engines.container_arguments import ContainerOptions
from tonnage.engines.containers import PodmanEngine
from tonnage.engines.local import LocalEngine
from tonnage.engines.ray import RayEngine
from tonnage.engines.slurm import SlurmEngine
from tonnage.errors import Unreachable
from tonnage.program.exported import export_module
from tonnage.stages.hosts import StageHost, Timeouts
from tonnage.stages.launchers import EngineLauncher
from tonnage.stages.report import RunReport
from tonnage.stages.run import run_distribution

__all__ = ["image", "podman", "slurm", "slurm_rig"]

LIMITS = Timeouts(start_seconds=200, setup_seconds=100)
SMALL = Resources(memory_bytes=1 << 30, cpu_cores=1)
SOURCE, PACKAGES = str(Path(tonnage.__file__).parents[1]), sysconfig.get_paths()["purelib"]
LIBRARIES = "/usr/lib/x86_64-linux-gnu"


def run(launcher: EngineLauncher, hosts: list[StageHost] | None = None) -> RunReport:
    network = export_module(Perceptron(), torch.randn(4, 32))
    return run_distribution(
        network, in_a_row(network.module, 2), hosts=hosts or (), samples=4, launcher=launcher, compare=True,
        timeouts=LIMITS,
    )  # fmt: skip


def jobs_left(engine: Engine) -> list[str]:
    assert isinstance(engine, Lists)
    return [str(job_id) for job_id, _, labels in engine.jobs() if labels.get("rig") == "stages"]


def pattern(**more: object) -> Job:
    return Job(name="stage", command=(), resources=SMALL, labels={"rig": "stages"}, **more)  # type: ignore[arg-type]


def test_stages_are_local_jobs(tmp_path: Path) -> None:
    engine = LocalEngine(tmp_path / "local")
    report = run(EngineLauncher(engine, job=pattern()))
    assert report.is_equal
    assert jobs_left(engine) == []


def test_a_job_that_cannot_work_is_explained(tmp_path: Path) -> None:
    engine = LocalEngine(tmp_path / "local")
    launcher = EngineLauncher(engine, job=pattern(), python="/bin/false")
    with pytest.raises(
        Unreachable, match=r"the worker of d\d ended before it said a word: the job stage-.* has failed, exit code 1"
    ):
        run(launcher)
    assert jobs_left(engine) == []


@pytest.mark.slow
def test_stages_are_containers(image: str) -> None:
    """The image has Python alone; torch, this package and libraries are the host's."""
    if not Path(LIBRARIES).is_dir():
        pytest.skip(f"NO {LIBRARIES}: stages in containers are not tried on this architecture")
    mounts = tuple(Mount(source=path, target=path) for path in (SOURCE, PACKAGES, LIBRARIES))
    job = pattern(image=image, mounts=mounts, environment={"PYTHONPATH": f"{SOURCE}:{PACKAGES}"})
    engine = PodmanEngine()
    launcher = EngineLauncher(engine, ContainerOptions(network="host"), job, python="/usr/bin/python3")
    report = run(launcher)
    assert report.is_equal
    assert jobs_left(engine) == []


@pytest.mark.slow
def test_stages_are_jobs_on_the_nodes_of_a_cluster(slurm: SlurmEngine) -> None:
    hosts = [StageHost(device="d0", node="v100n1", gpu="V100 SXM2 32GB"), StageHost(device="d1", node="p100n0")]
    report = run(EngineLauncher(slurm, job=pattern()), hosts)
    assert report.is_equal
    assert jobs_left(slurm) == []


@pytest.mark.slow
def test_stages_are_jobs_of_ray() -> None:
    nodes = tuple(RigNode(name=f"node-{number}", model="V100", gpus=0, cpu_cores=2) for number in range(2))
    with ray_rig(nodes) as rig:
        engine = RayEngine(rig.address)
        report = run(EngineLauncher(engine, job=pattern()))
        assert report.is_equal
        assert jobs_left(engine) == []
