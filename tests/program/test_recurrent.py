"""Recurrent networks on the virtual GPU. Its modes are process-wide, so every program runs in a process of its own."""

import json
import subprocess
import sys
from typing import Any

import pytest

pytest.importorskip("torch")

_HARNESS = """
import json, torch
from torch import nn
from tonnage.program.virtual_gpu import recurrent
from tonnage.program.virtual_gpu.child import VirtualGpu

recurrent.install()
GPU = {"name": "NVIDIA H200", "compute_capability": (9, 0), "memory_bytes": 150754820096, "sms": 132, "l2_bytes": 9}
virtual = VirtualGpu(4, GPU)
facts = {}
with virtual.operators, virtual.device:
%s
recorder = virtual.recorder
calls = [recorder.operators[index] for index in recorder.call_operator]
facts["names"] = [call.name.removeprefix("aten::") for call in calls]
facts["outputs"] = [[[spec.shape, spec.dtype] for spec in call.outputs] for call in calls]
facts["blocks"] = list(recorder.block_bytes)
print("FACTS" + json.dumps(facts))
"""


def run(program: str) -> dict[str, Any]:
    lines = "\n".join("    " + line for line in program.strip().splitlines())
    done = subprocess.run([sys.executable, "-c", _HARNESS % lines], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    facts: dict[str, Any] = json.loads(done.stdout.rsplit("FACTS", 1)[1])
    return facts


def outputs_of(facts: dict[str, Any], name: str) -> list[Any]:
    outputs: list[Any] = facts["outputs"][facts["names"].index(name)]
    return outputs


def test_a_bidirectional_lstm_is_one_operator_with_the_reserve_of_cudnn() -> None:
    facts = run("""
network = nn.LSTM(96, 128, 2, bidirectional=True, dropout=0.3).cuda()
sequence = torch.randn(30, 8, 96, device="cuda", requires_grad=True)
output, _ = network(sequence)
output.sum().backward()
""")
    assert facts["names"].count("_cudnn_rnn") == 1
    # Shapes and bytes of the same network on an H200 (benchmarks/workspace).
    assert outputs_of(facts, "_cudnn_rnn") == [
        [[30, 8, 256], "float32"], [[4, 8, 128], "float32"], [[4, 8, 128], "float32"],
        [[2718976], "uint8"], [[626688], "float32"],
    ]  # fmt: skip
    calls = zip(facts["names"], facts["outputs"], strict=True)
    backward = [len(outputs) for name, outputs in calls if name == "_cudnn_rnn_backward"]
    assert backward == [3, 16]  # input and states, then the weights


def test_weights_become_views_of_one_buffer_and_so_do_their_gradients() -> None:
    facts = run("""
network = nn.GRU(96, 128, 2).cuda()
network(torch.randn(30, 8, 96, device="cuda"))[0].sum().backward()
storages = lambda tensors: len({t.untyped_storage()._cdata for t in tensors})
facts["weights"] = storages(network.parameters())
facts["gradients"] = storages(p.grad for p in network.parameters())
""")
    assert (facts["weights"], facts["gradients"]) == (1, 1)
    assert facts["blocks"].count(185856 * 4) == 2  # the buffer and its gradient, nothing twice


def test_evaluation_keeps_nothing_for_backward() -> None:
    facts = run("""
network = nn.RNN(96, 128).cuda().eval()
with torch.no_grad():
    network(torch.randn(30, 8, 96, device="cuda"))
""")
    assert outputs_of(facts, "_cudnn_rnn")[3] == [[0], "uint8"]


def test_a_packed_sequence_stays_packed() -> None:
    facts = run("""
packed = nn.utils.rnn.PackedSequence(torch.randn(11, 96, device="cuda"), torch.tensor([5, 4, 2]))
output, state = nn.GRU(96, 128, bidirectional=True).cuda()(packed)
output.data.sum().backward()
facts["output"], facts["state"] = output.data.shape, state.shape
""")
    assert facts["output"] == [11, 256]
    assert facts["state"] == [2, 5, 128]
    assert outputs_of(facts, "_cudnn_rnn_backward")[0] == [[11, 96], "float32"]


def test_projection_and_batch_first_give_the_shapes_of_torch() -> None:
    facts = run("""
output, (state, cell) = nn.LSTM(96, 128, proj_size=64, batch_first=True).cuda()(torch.randn(8, 30, 96, device="cuda"))
facts["shapes"], facts["stride"] = [output.shape, state.shape, cell.shape], output.stride()
""")
    assert facts["shapes"] == [[8, 30, 64], [1, 8, 64], [1, 8, 128]]
    assert facts["stride"] == [64, 8 * 64, 1]  # time comes first in memory


def test_without_biases_gradients_are_separate() -> None:
    facts = run("""
network = nn.LSTM(96, 128, bias=False).cuda()
network(torch.randn(30, 8, 96, device="cuda"))[0].sum().backward()
facts["gradients"] = len({p.grad.untyped_storage()._cdata for p in network.parameters()})
""")
    assert facts["gradients"] == 2


def test_autocast_runs_in_float16_with_a_new_buffer() -> None:
    facts = run("""
network = nn.LSTM(96, 128).cuda()
with torch.autocast("cuda", dtype=torch.float16):
    output, _ = network(torch.randn(30, 8, 96, device="cuda"))
output.float().sum().backward()
facts["dtypes"] = [str(output.dtype), str(network.weight_hh_l0.grad.dtype)]
""")
    assert facts["dtypes"] == ["torch.float16", "torch.float32"]
    assert outputs_of(facts, "_cudnn_rnn")[4] == [[115712], "float16"]


def test_with_cudnn_switched_off_the_network_is_taken_apart() -> None:
    facts = run("""
torch.backends.cudnn.enabled = False
nn.GRU(9, 12).cuda()(torch.randn(3, 8, 9, device="cuda"))[0].sum().backward()
""")
    assert "_cudnn_rnn" not in facts["names"]


@pytest.mark.parametrize(("cell", "operator", "kept"), [("LSTM", "lstm", 4), ("GRU", "gru", 5)])
def test_a_cell_is_one_fused_operator_that_keeps_its_gates(cell: str, operator: str, kept: int) -> None:
    facts = run(f"""
cell = nn.{cell}Cell(96, 128).cuda()
state = cell(torch.randn(8, 96, device="cuda"))
(state if isinstance(state, torch.Tensor) else state[0]).sum().backward()
facts["bias"] = cell.bias_hh.grad.shape
""")
    assert outputs_of(facts, f"_thnn_fused_{operator}_cell")[-1] == [[8, kept * 128], "float32"]
    assert facts["bias"] == [{"LSTM": 4, "GRU": 3}[cell] * 128]
