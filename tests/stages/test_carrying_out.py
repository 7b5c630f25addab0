"""Predicted beside measured, in numbers; and what workers are started with."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pipelines import chain
from worlds import always, cluster_of, report_of

from tonnage.engines.base import EngineOptions
from tonnage.engines.local import LocalEngine
from tonnage.errors import UsageError
from tonnage.hardware import Cluster, read_cluster
from tonnage.split.cluster_problem import Training
from tonnage.split.distributing import best_for
from tonnage.split.distribution import Distribution
from tonnage.split.fabric_of import fabric_of
from tonnage.split.pool import Pool, make_pool
from tonnage.split.targets import Target
from tonnage.stages.carrying_out import Beside, Outcome, Where, beside, carry_out
from tonnage.stages.launchers import EngineLauncher, ProcessLauncher
from tonnage.stages.report import LinkTimes, Spread


def planned(cluster: Cluster, training: Training | None = None) -> tuple[Distribution, Pool]:
    """Two operations of 1 s and one tensor of 1 MB between two nodes."""
    pool = make_pool(chain([1.0, 1.0], backward=2.0 if training else 0.0), fabric_of(cluster), training=training)
    return best_for(pool, Target.THROUGHPUT), pool


@pytest.fixture
def pair(tmp_path: Path) -> Cluster:
    return cluster_of(tmp_path, speeds=(1, 1), rates=("1 GB/s", "1 GB/s"))


def test_period_latency_stages_and_links_stand_side_by_side(pair: Cluster) -> None:
    distribution, pool = planned(pair)
    first, second = distribution.stages
    link = LinkTimes(source=first, target=second, bytes_sample=1e6, seconds=always(0.002))
    report = replace(
        report_of(1.5, {first: always(1.25), second: always(0.8)}, [link]), latency_seconds=always(4.0)
    )  # fmt: skip
    assert distribution.metrics is not None
    found = {each.what: each for each in beside(distribution.metrics, report, pool)}
    assert list(found) == ["period", "latency", first, second, f"{first}->{second}"]
    assert (found["period"].predicted, found["period"].measured) == (1.0, 1.5)
    assert (found["latency"].predicted, found["latency"].measured) == (pytest.approx(2.00104), 4.0)  # two hops of 20 us
    assert (found[first].predicted, found[first].measured) == (1.0, 1.25)
    assert found[second].error == pytest.approx(0.25)
    assert found[f"{first}->{second}"].predicted == pytest.approx(0.00104)
    assert found[f"{first}->{second}"].error == pytest.approx(-0.48)


def test_training_compares_steps(pair: Cluster) -> None:
    distribution, pool = planned(pair, Training(micro_batches=4))
    report = report_of(20.0, dict.fromkeys(distribution.stages, always(3.0)), mode="training")
    assert distribution.metrics is not None
    first, *stages = beside(distribution.metrics, report, pool)
    assert (first.what, first.predicted) == ("step", distribution.metrics.step_seconds)
    assert first.predicted > 4 * 3.0  # the pipeline fills and empties
    assert [each.error for each in stages] == [0.0, 0.0]


def test_a_link_that_carried_nothing_is_left_out(pair: Cluster) -> None:
    distribution, pool = planned(pair)
    idle = LinkTimes(source="n1", target="n0", bytes_sample=0.0, seconds=Spread(median=0.0, p95=0.0, count=0))
    assert distribution.metrics is not None
    found = beside(distribution.metrics, report_of(1.0, {}, [idle]), pool)
    assert [each.what for each in found] == ["period"]


def test_what_was_not_measured_has_no_error() -> None:
    assert Beside(what="n0", predicted=1.0, measured=0.0).error == 0.0


# -- workers --------------------------------------------------------------------------------------------------------------


def started(monkeypatch: pytest.MonkeyPatch, cluster: Cluster, where: Where) -> dict[str, Any]:
    """What `run_distribution` is called with."""
    called: dict[str, Any] = {}
    distribution, pool = planned(cluster)

    def run_distribution(_network: Any, assignment: Any, **more: Any) -> Any:
        called.update(more, assignment=assignment)
        return report_of(1.0, dict.fromkeys(distribution.stages, always(1.0)))

    monkeypatch.setattr("tonnage.stages.run.run_distribution", run_distribution)
    outcome = carry_out("network", distribution, pool, cluster, where)  # type: ignore[arg-type]  # it is only passed on
    assert isinstance(outcome, Outcome)
    return called


def addressed(folder: Path) -> Cluster:
    path = folder / "addressed.yaml"
    path.write_text(
        "nodes:\n"
        "  - {name: n0, cpu: {cores: 1}, memory: 8 GiB, address: '10.0.0.7:9000'}\n"
        "  - {name: n1, cpu: {cores: 1}, memory: 8 GiB, speed: 0.8}\n"
        "links: [{kind: e, bandwidth: 1 GB/s}]\n"
    )
    return read_cluster(path)


def test_workers_of_this_machine_are_processes(monkeypatch: pytest.MonkeyPatch, pair: Cluster) -> None:
    called = started(monkeypatch, pair, Where())
    assert isinstance(called["launcher"], ProcessLauncher)
    assert sorted(called["assignment"].values()) == ["n0", "n1"]
    assert [host.node for host in called["hosts"]] == ["", ""]


def test_a_node_s_address_is_without_the_port_of_its_agent(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    hosts = {host.device: host for host in started(monkeypatch, addressed(tmp_path), Where())["hosts"]}
    assert {name: host.address for name, host in hosts.items()} == {"n0": "10.0.0.7", "n1": "127.0.0.1"}


@pytest.mark.parametrize(("emulates", "pace"), [(False, 1.0), (True, 1.25)])
def test_slow_nodes_are_emulated_only_if_asked(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, emulates: bool, pace: float
) -> None:
    hosts = {host.device: host for host in started(monkeypatch, addressed(tmp_path), Where(emulates=emulates))["hosts"]}
    assert (hosts["n0"].pace, hosts["n1"].pace) == (1.0, pace)


def test_jobs_of_an_engine_get_memory_for_the_largest_stage(
    monkeypatch: pytest.MonkeyPatch, pair: Cluster, tmp_path: Path
) -> None:
    distribution, _ = planned(pair)
    assert distribution.metrics is not None
    engine = LocalEngine(tmp_path / "local")
    launcher = started(monkeypatch, pair, Where(engine=engine, control_host="10.0.0.1"))["launcher"]
    assert isinstance(launcher, EngineLauncher)
    assert (launcher.engine, launcher.control, launcher.python) == (engine, "10.0.0.1", sys.executable)
    largest = max(distribution.metrics.memory_bytes.values())
    assert largest >= 10_000_000  # the weights of an operation
    assert launcher.job.resources.memory_bytes == 2 * largest + (2 << 30)


def test_an_image_brings_its_own_python(monkeypatch: pytest.MonkeyPatch, pair: Cluster, tmp_path: Path) -> None:
    options = EngineOptions()
    where = Where(engine=LocalEngine(tmp_path / "local"), image="stages:1", options=options)
    launcher = started(monkeypatch, pair, where)["launcher"]
    assert (launcher.job.image, launcher.python, launcher.options) == ("stages:1", "python3", options)


def with_gpus(folder: Path) -> Cluster:
    path = folder / "gpus.yaml"
    path.write_text(
        "nodes:\n"
        "  - name: a\n"
        "    gpus: [{model: V100 SXM2 32GB, count: 2}]\n"
        "    cpu: {cores: 8}\n"
        "    memory: 64 GiB\n"
        "    links: [{kind: nvlink, bandwidth: 10 GB/s}]\n"
    )
    return read_cluster(path)


@pytest.mark.parametrize("engine", [None, "local"])
def test_a_stage_on_a_gpu_gets_its_gpu(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, engine: str | None) -> None:
    """A process of this machine sees all of them; a job sees its own alone."""
    where = Where() if engine is None else Where(engine=LocalEngine(tmp_path / "local"))
    called = started(monkeypatch, with_gpus(tmp_path), where)
    hosts = {host.device: host for host in called["hosts"]}
    assert {name: host.gpu_index for name, host in hosts.items()} == {"a/gpu0": 0, "a/gpu1": 1}
    assert hosts["a/gpu1"].torch_device == ("cuda:1" if engine is None else "cuda:0")
    if engine is None:
        return
    job = called["launcher"].job_for(hosts["a/gpu1"], ("-m", "worker"), {})
    assert (job.resources.gpu_count, job.resources.gpu_indices) == (1, (1,))
    assert job.resources.gpu == hosts["a/gpu1"].gpu
    assert job.placements == ()  # this machine has no name that the engine knows
    (placement,) = called["launcher"].job_for(replace(hosts["a/gpu1"], node="a"), (), {}).placements
    assert (placement.node, placement.gpu, placement.gpu_indices) == ("a", job.resources.gpu, (1,))


def test_a_distribution_without_a_cluster_is_refused(pair: Cluster) -> None:
    distribution, pool = planned(pair)
    with pytest.raises(UsageError, match="without a cluster cannot be run"):
        carry_out("network", replace(distribution, metrics=None), pool, pair, Where())  # type: ignore[arg-type]
