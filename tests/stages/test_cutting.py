"""Cuts of real networks, run in one process: whatever goes where, the outputs keep every bit."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from networks import Odd, Perceptron, Residual, bert, gpt2
from splitting import in_a_row, operations, run_here, scattered
from torch import nn

from tonnage.errors import UsageError
from tonnage.program.exported import Exported, export_module
from tonnage.stages import reference
from tonnage.stages.calling import flat_inputs
from tonnage.stages.cutting import cut
from tonnage.stages.stage import CONTROLLER

NETWORKS = {
    "perceptron": lambda: (Perceptron(), torch.randn(4, 32)),
    "residual": lambda: (Residual(), torch.randn(2, 3, 8, 8)),
    "odd": lambda: (Odd(), torch.randn(6, 8)),
    "gpt2": gpt2,
    "bert": bert,
}


def exported(name: str, **more: Any) -> Exported:
    return export_module(*NETWORKS[name](), **more)


def flat_example(network: Exported) -> list[Any]:
    return flat_inputs(network.module, network.keywords or network.arguments)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("name", NETWORKS)
def test_any_distribution_gives_the_same_bits(name: str, seed: int) -> None:
    network = exported(name)
    flat = flat_example(network)
    (expected,) = reference.infer(network.module, [flat])
    parts = cut(network.module, scattered(network.module, 3, seed))
    assert reference.difference(expected, run_here(parts, network.module, flat, seed)) == 0.0


@pytest.mark.parametrize("name", ["perceptron", "residual", "gpt2", "bert"])
def test_a_contiguous_distribution_is_one_segment_a_device(name: str) -> None:
    network = exported(name)
    parts = cut(network.module, in_a_row(network.module, 4))
    assert [len(stage.segments) for stage in parts.stages] == [1] * 4


def test_a_skip_goes_straight_to_its_reader() -> None:
    network = exported("residual")
    parts = cut(network.module, in_a_row(network.module, 3))
    assert ("d0", "d2") in parts.links
    first, middle, _ = parts.stages
    assert "d2" in first.readers["conv2d"]
    assert "conv2d" not in middle.readers


def test_a_way_that_leaves_and_returns_makes_segments() -> None:
    network = exported("perceptron")
    names = operations(network.module)
    parts = cut(network.module, {name: f"d{place // 2 % 2}" for place, name in enumerate(names)})
    assert {stage.device: len(stage.segments) for stage in parts.stages} == {"d0": 2, "d1": 2}
    assert max(segment.level for stage in parts.stages for segment in stage.segments) == 3


def test_a_weight_that_two_stages_read_is_in_both() -> None:
    network = exported("gpt2")
    parts = cut(network.module, in_a_row(network.module, 3))
    assert parts.holders["transformer.wte.weight"] == ("d0", "d2")
    assert all(len(devices) == 1 for name, devices in parts.holders.items() if "wte" not in name)


def test_operations_that_are_left_out_follow_what_they_read() -> None:
    network = exported("perceptron")
    names = operations(network.module)
    parts = cut(network.module, {names[0]: "first", names[4]: "second"})
    sizes = {stage.device: sum(len(segment.code) for segment in stage.segments) for stage in parts.stages}
    assert sizes == {"first": 4, "second": len(names) - 4}


def test_only_outputs_go_back_to_the_controller() -> None:
    network = exported("bert")
    parts = cut(network.module, in_a_row(network.module, 2))
    returned = [name for stage in parts.stages for name, readers in stage.readers.items() if CONTROLLER in readers]
    assert sorted(returned) == sorted(what for _, what in parts.outputs)


def test_in_place_operators_cannot_be_torn_from_what_they_change() -> None:
    network = exported("residual")
    assignment = in_a_row(network.module, 2)
    with pytest.raises(UsageError, match="belong together") as caught:
        cut(network.module, assignment | {"relu_": "elsewhere"})
    assert "batch_norm" in caught.value.hint


def test_an_operation_that_is_not_there_is_named() -> None:
    with pytest.raises(UsageError, match="no operation 'linear_99'"):
        cut(exported("perceptron").module, {"linear_99": "d0"})


def test_an_empty_assignment_is_refused() -> None:
    with pytest.raises(UsageError, match="empty"):
        cut(exported("perceptron").module, {})


class ReadsBeforeWriting(nn.Module):
    """The order of reads and writes decides the result."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("total", torch.zeros(4))

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        hidden = x * 2
        before = hidden.sum()
        view = hidden.view(-1)
        hidden.add_(1)
        after = view.sum()
        self.total.add_(hidden)
        hidden = hidden * self.total
        with torch.no_grad():
            self.total.mul_(0.5)
        return before, after, hidden, self.total + 0


@pytest.mark.parametrize("seed", range(8))
def test_reads_and_writes_of_one_memory_keep_their_order(seed: int) -> None:
    network = export_module(ReadsBeforeWriting(), torch.randn(4))
    flat = flat_example(network)
    (expected,) = reference.infer(network.module, [flat])
    parts = cut(network.module, scattered(network.module, 3, seed))
    assert reference.difference(expected, run_here(parts, network.module, flat, seed)) == 0.0
