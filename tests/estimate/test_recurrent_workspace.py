"""Workspaces and reserves of recurrent networks against what an H200 took (benchmarks/workspace)."""

import gzip
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tonnage.estimate.recurrent import recurrent_workspace
from tonnage.hardware.catalogue import find_gpu
from tonnage.program.trace import Operator, TensorSpec

RESULTS = Path(__file__).parents[2] / "benchmarks/workspace/results/h200-2026-11-15.jsonl.gz"
MODES = {"RNN": 1, "LSTM": 2, "GRU": 3}
GATES = {"RNN": 1, "LSTM": 4, "GRU": 3}
UNSPLIT_BYTES = 1 << 20  # the allocator hands out up to this much more than was asked for, and counts it


def measured() -> list[dict[str, Any]]:
    with gzip.open(RESULTS, "rt") as lines:
        return [row for row in map(json.loads, lines) if "rnn" in row]


def operator_of(row: dict[str, Any], *, training: bool = True, **changes: Any) -> Operator:
    kind, layers, hidden, inputs, batch, length, both, dropout = row["rnn"]
    dtype, directions = row["dtype"].removeprefix("torch."), 2 if both else 1

    def tensor(*shape: int, layout: str = "contiguous") -> TensorSpec:
        return TensorSpec(shape, dtype, layout)

    def weights() -> Iterator[TensorSpec]:
        for layer in range(layers):
            for _ in range(directions):
                yield tensor(GATES[kind] * hidden, hidden * directions if layer else inputs)
                yield tensor(GATES[kind] * hidden, hidden)
                yield from (tensor(GATES[kind] * hidden), tensor(GATES[kind] * hidden))

    state = tensor(layers * directions, batch, hidden)
    buffer = tensor(row["weights"] // (4 if dtype == "float32" else 2))
    heads = (tensor(length, batch, inputs), *weights(), buffer, state, state if kind == "LSTM" else None)
    tails: tuple[TensorSpec | None, ...] = (None,)
    if "backward" in row["op"]:
        output = (length, batch, hidden * directions)
        # The measurement's loss was a sum, whose gradient is a single number seen as a tensor.
        tails = (tensor(*output), tensor(*output, layout="strided"), None, None, None, tensor(1))
    attributes = {
        "weight_stride0": 4, "mode": MODES[kind], "hidden_size": hidden, "proj_size": 0, "num_layers": layers,
        "batch_first": False, "dropout": dropout, "train": training, "bidirectional": both, **changes,
    }  # fmt: skip
    return Operator("aten::" + row["op"].split(".")[1], (*heads, *tails), (), attributes)


def is_training(row: dict[str, Any]) -> bool:
    return "backward" in row["op"] or row["shapes"][3][1] > 0


def test_every_measured_workspace_is_met_up_to_the_allocators_slack() -> None:
    gpu = find_gpu("H200")
    for row in measured():
        blocks = recurrent_workspace(operator_of(row, training=is_training(row)), gpu)
        predicted = sum(-(-size // 512) * 512 for size in blocks)
        assert -UNSPLIT_BYTES <= predicted - row["temporary"] <= UNSPLIT_BYTES, row


def test_most_measured_workspaces_are_met_to_two_kilobytes() -> None:
    gpu = find_gpu("H200")
    rows = measured()
    predicted = [sum(recurrent_workspace(operator_of(row, training=is_training(row)), gpu)) for row in rows]
    close = [abs(bytes_ - row["temporary"]) <= 2048 for bytes_, row in zip(predicted, rows, strict=True)]
    assert sum(close) >= 0.93 * len(rows)


def test_every_measured_reserve_is_met_exactly() -> None:
    pytest.importorskip("torch")
    from tonnage.program.virtual_gpu.recurrent import recurrent_reserve_bytes

    for row in measured():
        if "backward" in row["op"] or not is_training(row):
            continue
        kind, layers, hidden, _, batch, length, both, dropout = row["rnn"]
        reserve = recurrent_reserve_bytes(
            mode=MODES[kind], itemsize=4 if "32" in row["dtype"] else 2, rows=batch * length, hidden=hidden,
            layers=layers, directions=2 if both else 1, dropout=dropout,
        )  # fmt: skip
        assert reserve == row["shapes"][3][1], row


def test_batch_first_costs_a_copy_of_the_input() -> None:
    row = measured()[0]
    plain = recurrent_workspace(operator_of(row), find_gpu("H200"))
    turned = recurrent_workspace(operator_of({**row, "rnn": [*row["rnn"][:4], 30, 8, False, 0.0]}), find_gpu("H200"))
    first = recurrent_workspace(
        operator_of({**row, "rnn": [*row["rnn"][:4], 30, 8, False, 0.0]}, batch_first=True), find_gpu("H200")
    )
    assert plain[1] == turned[1] == 0
    assert first[1] == 30 * 8 * 96 * 4


def test_packed_sequences_take_the_batch_of_their_first_step() -> None:
    row = measured()[0]
    operator = operator_of(row)
    packed = Operator(
        operator.name,
        (TensorSpec((240, 96), "float32"), *operator.inputs[1:]),
        (),
        {**operator.attributes, "batch_sizes": (8,) * 30},
    )
    assert recurrent_workspace(packed, find_gpu("H200")) == recurrent_workspace(operator, find_gpu("H200"))
