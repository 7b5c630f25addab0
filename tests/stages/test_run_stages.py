"""Distributions on real processes: inference keeps every bit, training ends with the same weights."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
import torch
from networks import Averaging, Odd, Perceptron, Residual, WithLoss, bert, gpt2
from splitting import in_a_row, operations, scattered

from tonnage.errors import UsageError
from tonnage.program.exported import Exported, export_module
from tonnage.stages.hosts import StageHost, Timeouts
from tonnage.stages.run import run_distribution
from tonnage.stages.training import Training

QUICK = Timeouts(start_seconds=100, setup_seconds=60)
SGD = {"lr": 0.1, "momentum": 0.9}


def perceptron() -> Exported:
    return export_module(Perceptron(), torch.randn(4, 32))


def tokens(count: int) -> list[dict[str, torch.Tensor]]:
    """Different each time, so that sums of gradients round."""
    drawn = [torch.randint(0, 100, (2, 16)) for _ in range(count)]
    return [{"input_ids": each, "labels": each} for each in drawn]


def images(count: int) -> list[tuple[torch.Tensor, torch.Tensor]]:
    return [(torch.randn(2, 3, 8, 8), torch.randint(0, 5, (2,))) for _ in range(count)]


@pytest.mark.parametrize("transport", ["sockets", "gloo"])
@pytest.mark.parametrize(
    "make",
    [
        lambda: (Perceptron(), torch.randn(4, 32)),
        lambda: (Residual(), torch.randn(2, 3, 8, 8)),
        gpt2,
        bert,
    ],
    ids=["perceptron", "residual", "gpt2", "bert"],
)
def test_a_pipeline_gives_the_bits_of_the_whole(make: Callable[[], Any], transport: str) -> None:
    network = export_module(*make())
    report = run_distribution(
        network, in_a_row(network.module, 3), samples=6, transport=transport, compare=True, timeouts=QUICK
    )
    assert report.is_equal
    assert [stage.device for stage in report.stages] == ["d0", "d1", "d2"]
    assert {(link.source, link.target) for link in report.links} >= {("d0", "d1"), ("d1", "d2")}


def test_a_skip_from_the_first_to_the_third_stage_has_a_link_of_its_own() -> None:
    network = export_module(Residual(), torch.randn(2, 3, 8, 8))
    report = run_distribution(network, in_a_row(network.module, 3), samples=4, compare=True, timeouts=QUICK)
    (skip,) = [link for link in report.links if (link.source, link.target) == ("d0", "d2")]
    assert skip.bytes_sample >= 2 * 8 * 8 * 8 * 4
    assert report.is_equal


def test_devices_that_wait_for_each_other_in_a_circle_run() -> None:
    network = export_module(Odd(), torch.randn(6, 8))
    report = run_distribution(network, scattered(network.module, 3, 1), samples=6, compare=True, timeouts=QUICK)
    assert max(stage.segments for stage in report.stages) > 1
    assert report.is_equal


def test_each_sample_comes_back_in_the_structure_of_the_network() -> None:
    network = export_module(Odd(), torch.randn(6, 8))
    inputs, found = [torch.randn(6, 8) for _ in range(5)], {}
    run_distribution(network, in_a_row(network.module, 2), samples=inputs, timeouts=QUICK, on_output=found.__setitem__)
    assert sorted(found) == [0, 1, 2, 3, 4]
    assert [int(found[number]["calls"]) for number in range(5)] == [1, 2, 3, 4, 5]  # a buffer that counts
    assert (found[0]["fixed"], found[0]["mask"]) == (3, None)
    assert isinstance(found[3]["count"], int)


def test_replicas_of_a_stage_take_turns() -> None:
    network = perceptron()
    report = run_distribution(
        network, in_a_row(network.module, 2), replicas={"d1": ["e1"]}, samples=8, compare=True, timeouts=QUICK
    )
    assert report.is_equal
    assert {stage.device: stage.stage for stage in report.stages} == {"d0": "d0", "d1": "d1", "e1": "d1"}
    counts = [stage.forward_seconds.count for stage in report.stages]
    assert counts[1] + counts[2] == counts[0]


def test_a_paced_node_computes_so_many_times_longer() -> None:
    network = export_module(Perceptron(512), torch.randn(256, 512))
    hosts = [StageHost(device="d0"), StageHost(device="d1", pace=8.0)]
    report = run_distribution(network, in_a_row(network.module, 2), hosts=hosts, samples=8, timeouts=QUICK)
    slow = report.stages[1]
    # A run that others disturb needs more than the least, of which its length is a multiple; test_timings is exact.
    assert slow.forward_seconds.median >= 2 * slow.processor_seconds.median
    assert report.period_seconds.median >= 2 * slow.processor_seconds.median


def test_the_report_is_plain_data() -> None:
    network = perceptron()
    report = run_distribution(network, in_a_row(network.module, 2), samples=4, timeouts=QUICK)
    document = json.loads(json.dumps(report.to_json()))
    assert document["samples"] == 4
    assert document["latency_seconds"]["count"] == 5
    assert document["stages"][0]["forward_seconds"]["median"] > 0
    assert document["links"][0]["bytes_sample"] >= 4 * 32 * 4
    assert document["is_equal"] is None


@pytest.mark.skipif(not torch.cuda.is_available(), reason="NO GPU: stages on GPUs are not tried")
@pytest.mark.parametrize("transport", ["sockets", "gloo"])
def test_stages_share_a_gpu(transport: str) -> None:
    model, inputs = gpt2()
    network = export_module(model.cuda(), {name: value.cuda() for name, value in inputs.items()})
    hosts = [StageHost(device=f"d{number}", torch_device="cuda:0") for number in range(3)]
    report = run_distribution(
        network, in_a_row(network.module, 3), hosts=hosts, samples=6, transport=transport, compare=True, timeouts=QUICK
    )
    assert report.is_equal


# -- training -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("optimizer", ["sgd", "adam", "adamw"])
def test_three_steps_end_with_the_bits_of_the_whole(optimizer: str) -> None:
    network = export_module(WithLoss(Residual()), images(1)[0], training=True)
    report = run_distribution(
        network, in_a_row(network.module, 3), samples=images(12), compare=True, timeouts=QUICK,
        training=Training(steps=3, micro_batches=4, optimizer=optimizer),
    )  # fmt: skip
    assert report.is_equal
    assert len(set(report.losses)) == 3


def test_recomputing_changes_nothing_but_time() -> None:
    network = export_module(WithLoss(Residual()), images(1)[0], training=True)
    report = run_distribution(
        network, in_a_row(network.module, 3), samples=images(12), compare=True, timeouts=QUICK,
        training=Training(steps=3, micro_batches=4, recompute=True, options=SGD),
    )  # fmt: skip
    assert report.is_equal


@pytest.mark.parametrize("transport", ["sockets", "gloo"])
def test_a_weight_that_two_stages_hold_stays_the_same_in_both(transport: str) -> None:
    model, inputs = gpt2(labels=True)
    network = export_module(model, inputs, training=True)
    report = run_distribution(
        network, in_a_row(network.module, 3), samples=tokens(3), compare=True, transport=transport, timeouts=QUICK,
        training=Training(steps=3, micro_batches=1, options=SGD),
    )  # fmt: skip
    assert report.is_equal
    assert any(link.bytes_update > 100 * 32 * 4 for link in report.links)


def test_sums_in_another_order_differ_by_no_more_than_rounding() -> None:
    """Each holder of a tied weight, and each replica, first adds up the gradients of its own micro-batches."""
    model, inputs = gpt2(labels=True)
    network = export_module(model, inputs, training=True)
    report = run_distribution(
        network, in_a_row(network.module, 3), replicas={"d1": ["e1"]}, samples=tokens(12), compare=True,
        timeouts=QUICK, training=Training(steps=3, micro_batches=4, options=SGD),
    )  # fmt: skip
    assert report.largest_difference is not None
    assert 0 < report.largest_difference < 1e-6


def test_exact_sums_keep_the_bits_even_so() -> None:
    model, inputs = gpt2(labels=True)
    network = export_module(model, inputs, training=True)
    report = run_distribution(
        network, in_a_row(network.module, 3), replicas={"d1": ["e1"]}, samples=tokens(12), compare=True,
        timeouts=QUICK, training=Training(steps=3, micro_batches=4, options=SGD, exact=True),
    )  # fmt: skip
    assert report.is_equal


def test_a_block_without_gradients_runs_in_its_stage() -> None:
    examples = [(torch.randn(4, 8), torch.randint(0, 3, (4,))) for _ in range(4)]
    network = export_module(WithLoss(Averaging()), examples[0], training=True)
    assert any("wrap_with_set_grad_enabled" in str(node.target) for node in network.module.graph.nodes)
    report = run_distribution(
        network, in_a_row(network.module, 2), samples=examples, compare=True, timeouts=QUICK,
        training=Training(steps=2, micro_batches=2, options=SGD),
    )  # fmt: skip
    assert report.is_equal


def test_training_where_the_data_leaves_and_returns() -> None:
    network = export_module(WithLoss(Perceptron()), (torch.randn(4, 32), torch.randint(0, 32, (4,))), training=True)
    names = operations(network.module)
    report = run_distribution(
        network, {name: f"d{place // 2 % 2}" for place, name in enumerate(names)}, samples=12, compare=True,
        timeouts=QUICK, training=Training(steps=3, micro_batches=4, options=SGD),
    )  # fmt: skip
    assert [stage.segments for stage in report.stages] == [3, 2]
    assert report.is_equal


def test_trained_weights_come_back() -> None:
    network = export_module(WithLoss(Residual()), images(1)[0], training=True)
    before = {name: value.clone() for name, value in network.module.state_dict().items()}
    found: dict[str, torch.Tensor] = {}
    run_distribution(
        network, in_a_row(network.module, 2), samples=images(2), timeouts=QUICK, on_weights=found.update,
        training=Training(steps=1, micro_batches=2, options=SGD),
    )  # fmt: skip
    assert set(found) == set(before)
    changed = {name for name, value in found.items() if not torch.equal(value, before[name])}
    assert "network.head.weight" in changed
    assert "network.blocks.0.norm_one.running_mean" in changed


# -- what is refused ------------------------------------------------------------------------------------------------------


def test_a_sample_of_another_size_is_refused_before_anything_starts() -> None:
    network = perceptron()
    with pytest.raises(UsageError, match=r"x of a sample is \(5, 32\).*exported for \(4, 32\)"):
        run_distribution(network, in_a_row(network.module, 2), samples=[torch.randn(5, 32)])


def test_training_needs_a_network_that_was_exported_for_it() -> None:
    network = perceptron()
    with pytest.raises(UsageError, match="exported for inference"):
        run_distribution(network, in_a_row(network.module, 2), training=Training())


def test_a_device_without_a_host_is_named() -> None:
    network = perceptron()
    with pytest.raises(UsageError, match="no host for the device d1"):
        run_distribution(network, in_a_row(network.module, 2), hosts=[StageHost(device="d0")])


def test_an_unknown_transport_is_refused() -> None:
    network = perceptron()
    with pytest.raises(UsageError, match="pigeons"):
        run_distribution(network, in_a_row(network.module, 2), transport="pigeons")


@pytest.mark.parametrize("pace", [0.5, 0.0, float("nan")])
def test_a_node_cannot_be_made_faster(pace: float) -> None:
    with pytest.raises(UsageError, match="slower"):
        StageHost(device="d0", pace=pace)
