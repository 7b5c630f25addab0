"""Distributions with replicated stages on real processes, from the plan to what was observed."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from networks import Averaging, Odd, Perceptron, WithLoss
from splitting import in_a_row

from tonnage.benchmark.time_models import shipped_model
from tonnage.errors import UsageError
from tonnage.estimate.graph_costs import Processor
from tonnage.hardware import Cluster, read_cluster
from tonnage.program.aliasing import aliasing_of
from tonnage.program.exported import Exported, export_module
from tonnage.split.cluster_problem import Training as Pipeline
from tonnage.split.distributing import best_for
from tonnage.split.distribution import Distribution
from tonnage.split.fabric_of import fabric_of
from tonnage.split.layout import Layout
from tonnage.split.pool import Pool, make_pool
from tonnage.split.targets import Target
from tonnage.stages.adapting import adapt
from tonnage.stages.carrying_out import Where, carry_out
from tonnage.stages.cutting import cut
from tonnage.stages.hosts import StageHost, Timeouts
from tonnage.stages.networks import Kinds, network_of
from tonnage.stages.observing import observed
from tonnage.stages.orders import team_of
from tonnage.stages.run import run_distribution
from tonnage.stages.training import Training

QUICK = Timeouts(start_seconds=100, setup_seconds=60)


@pytest.fixture
def alike(tmp_path: Path) -> Cluster:
    nodes = "".join(f"  - {{name: n{each}, cpu: {{cores: 1}}, memory: 1 GiB}}\n" for each in range(3))
    path = tmp_path / "alike.yaml"
    path.write_text(f"name: alike\nnodes:\n{nodes}links:\n  - {{kind: ethernet, bandwidth: 10 Gbit/s}}\n")
    return read_cluster(path)


def pool_of(exported: Exported, cluster: Cluster, training: Pipeline | None = None) -> Pool:
    kinds = Kinds(model=shipped_model(), processor=Processor())
    optimizer = Training().make_optimizer if training else None
    network = network_of(exported, aliasing_of(exported.module), kinds, optimizer=optimizer)
    return make_pool(network, fabric_of(cluster), training=training, replicas=True)


def second_half_twice(pool: Pool, exported: Exported) -> Distribution:
    """The first half on n0; n1 and n2 take turns with the second."""
    halves = in_a_row(exported.module, 2)
    places = tuple(int(halves[str(operation.id)][1:]) for operation in pool.network.operations)
    metrics = pool.add(Layout(places, ((1, 2),)))
    return replace(
        best_for(pool, Target.THROUGHPUT),
        assignment={operation.id: f"n{place}" for operation, place in zip(pool.network.operations, places, strict=True)},
        stages=("n0", "n1"), replicas={"n1": ("n2",)}, metrics=metrics,
    )  # fmt: skip


def test_inference_keeps_every_bit_and_tells_of_every_device(alike: Cluster) -> None:
    exported = export_module(Perceptron(256), torch.randn(64, 256))
    pool = pool_of(exported, alike)
    found = second_half_twice(pool, exported)
    outcome = carry_out(exported, found, pool, alike, Where(timeouts=QUICK), samples=12)
    assert outcome.report.is_equal
    assert {stage.device: stage.stage for stage in outcome.report.stages} == {"n0": "n0", "n1": "n1", "n2": "n1"}
    predicted = {each.what: each.predicted for each in outcome.beside}
    assert found.metrics is not None
    assert predicted["n2"] == predicted["n1"] == pytest.approx(2 * found.metrics.busy_seconds["n1"])
    assert {"n0->n1", "n0->n2"} <= predicted.keys()
    seen = observed(outcome, pool.fabric, alike, taken_at=0.0, valid_seconds=60.0)
    measured = {stage.device: stage.forward_seconds.median for stage in outcome.report.stages}
    speeds = {entry.place: entry.speed.median for entry in seen.places if entry.speed}
    assert set(speeds) == {"n0", "n1", "n2"}
    for device, speed in speeds.items():  # what is too short to tell is as predicted
        assert speed in (1.0, pytest.approx(predicted[device] / measured[device]))


def test_training_ends_with_the_weights_of_one_process(alike: Cluster) -> None:
    exported = export_module(WithLoss(Perceptron(32)), (torch.randn(4, 32), torch.randint(0, 32, (4,))), training=True)
    pool = pool_of(exported, alike, Pipeline(micro_batches=4))
    found = second_half_twice(pool, exported)
    training = Training(steps=3, micro_batches=4, exact=True)
    outcome = carry_out(exported, found, pool, alike, Where(timeouts=QUICK), training=training)
    assert outcome.report.is_equal
    assert found.metrics is not None
    assert outcome.beside[0].what == "step"
    assert outcome.beside[0].predicted == found.metrics.step_seconds > 0


def test_as_many_micro_batches_are_under_way_as_there_are_devices_ahead() -> None:
    exported = export_module(WithLoss(Perceptron()), (torch.randn(4, 32), torch.randint(0, 32, (4,))), training=True)
    parts = cut(exported.module, in_a_row(exported.module, 3), loss=exported.loss)
    hosts = [StageHost(device=name) for name in ("d0", "d1", "d2", "e1", "e2")]
    assert [team_of(parts, {}, hosts).under_way(stage) for stage in parts.stages] == [3, 2, 1]
    team = team_of(parts, {"d1": ["e1", "e2"]}, hosts)
    assert [team.under_way(stage) for stage in parts.stages] == [5, 2, 1]


def test_a_stage_that_every_sample_changes_is_not_shared() -> None:
    exported = export_module(Odd(), torch.randn(6, 8))
    assignment = dict.fromkeys((node.name for node in exported.module.graph.nodes if node.op == "call_function"), "d0")
    with pytest.raises(UsageError, match="samples change calls"):
        run_distribution(exported, assignment, replicas={"d0": ["d1"]}, samples=4)


def test_the_plan_knows_which_operations_samples_change(alike: Cluster) -> None:
    exported = export_module(Averaging(), torch.randn(6, 8))
    pool = pool_of(exported, alike)
    changing = [number for number, each in enumerate(pool.network.operations) if each.changes_weights]
    assert changing
    for layout in pool.found:
        assert not {layout.places[number] for number in changing} & {holders[0] for holders in layout.replicas}


def test_a_distribution_with_replicas_is_not_adapted(alike: Cluster) -> None:
    exported = export_module(Perceptron(), torch.randn(4, 32))
    pool = pool_of(exported, alike)
    found = second_half_twice(pool, exported)
    with pytest.raises(UsageError, match="replicated stages"):
        next(adapt(found, pool, alike, lambda distribution, pool: pytest.fail("it ran"), rounds=2))
