"""Exported graphs become networks: operations, what flows between them, what they cost and what training keeps."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from exported_models import Choosing, Halves, InPlace, Tied, WithoutGradients, exported  # noqa: E402
from torch import fx, nn  # noqa: E402

from tonnage.benchmark.time_models import shipped_model  # noqa: E402
from tonnage.errors import CaptureError  # noqa: E402
from tonnage.estimate.graph_costs import Costs, Processor, gpu_costs, processor_costs  # noqa: E402
from tonnage.estimate.step import last_step  # noqa: E402
from tonnage.estimate.step_time import time_step  # noqa: E402
from tonnage.hardware import find_gpu  # noqa: E402
from tonnage.program.virtual_gpu.graph_run import run_graph  # noqa: E402
from tonnage.split.network import Input, Network, Operation  # noqa: E402
from tonnage.split.sources.graph import network_from_graph  # noqa: E402

WORDS = torch.zeros(4, 8, dtype=torch.long)
GPUS = [find_gpu("H200"), find_gpu("T4")]


def plain(graph: fx.GraphModule) -> Network:
    return network_from_graph(graph, {"any": Costs(forward_seconds={})}, name="net")


def trained(graph: fx.GraphModule) -> Network:
    run = run_graph(graph, optimizer=torch.optim.AdamW)
    return network_from_graph(graph, gpu_costs(run.trace, GPUS, shipped_model()), name="net", run=run)


def named(network: Network, name: str) -> Operation:
    return next(operation for operation in network.operations if operation.id == name)


def edges(network: Network) -> set[tuple[str | int, str | int]]:
    ids = [operation.id for operation in network.operations]
    return {(ids[first], ids[second]) for first, second in network.edges}


def test_each_call_is_an_operation_with_its_kind_its_result_and_its_place_in_the_model() -> None:
    network = plain(exported(Tied(), WORDS))

    assert [operation.kind for operation in network.operations] == [
        "aten::embedding", "aten::linear", "aten::tanh", "aten::linear",
    ]  # fmt: skip
    assert [operation.output_bytes for operation in network.operations] == [2048, 2048, 2048, 12800]
    assert [operation.name for operation in network.operations] == ["embedding", "inner", "", "head"]
    assert network.edges == ((0, 1), (1, 2), (2, 3))


def test_a_tied_weight_is_named_by_all_that_read_it_and_counted_once() -> None:
    network = plain(exported(Tied(), WORDS))

    first, last = network.operations[0], network.operations[-1]
    assert first.weights == last.weights == ("embedding.weight",)
    assert first.weight_bytes == last.weight_bytes == 6400
    assert network.weight_bytes == {"embedding.weight": 6400, "inner.weight": 1024, "inner.bias": 64}


def test_parts_of_a_result_stay_with_what_makes_it_and_are_sent_by_themselves() -> None:
    network = plain(exported(Halves(), torch.ones(2, 8)))

    split, left, right, product = network.operations
    assert split.together == left.together == right.together is not None
    assert product.together is None
    assert (left.output_bytes, right.output_bytes) == (32, 32)


def test_who_reads_a_tensor_that_was_changed_in_place_waits_for_the_last_change() -> None:
    graph = exported(InPlace(), torch.ones(4, 8))
    made, *between, added, product = (node.name for node in graph.graph.nodes if node.op == "call_function")
    group = frozenset((made, *between, added))

    network = network_from_graph(
        graph, {"any": Costs(forward_seconds={})}, name="net", together=[group], final={made: added}
    )

    assert (added, product) in edges(network)
    assert (made, product) not in edges(network)
    assert named(network, added).output_bytes == 128  # all of it, although a column was written
    assert len({named(network, name).together for name in group}) == 1


def test_inputs_and_outputs_are_those_of_the_graph() -> None:
    network = plain(exported(Tied(), WORDS))
    assert network.inputs == (Input(name="words", nbytes=4 * 8 * 8, readers=(0,)),)
    assert network.outputs == (3,)


def test_an_output_that_was_changed_in_place_is_made_by_the_last_change() -> None:
    class Changed(nn.Module):
        def forward(self, values: torch.Tensor) -> torch.Tensor:
            made = values * 2
            made[:, 0].add_(1)
            return made

    graph = exported(Changed(), torch.ones(4, 8))
    made, *_, added = (node.name for node in graph.graph.nodes if node.op == "call_function")
    costs = {"any": Costs(forward_seconds={})}
    network = network_from_graph(graph, costs, name="net", final={made: added})
    assert [network.operations[position].id for position in network.outputs] == [added]


def test_of_training_the_loss_goes_out() -> None:
    class WithLoss(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = nn.Linear(8, 8)

        def forward(self, values: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            made = self.inner(values)
            return made.mean(), made

    network = trained(exported(WithLoss(), torch.ones(4, 8), training=True))
    assert [network.operations[position].kind for position in network.outputs] == ["aten::mean"]
    assert [each.nbytes for each in network.inputs] == [4 * 8 * 4]


def test_seconds_of_the_operations_add_up_to_the_estimate_of_the_whole() -> None:
    run = run_graph(exported(Tied(), WORDS))

    costs = gpu_costs(run.trace, GPUS, shipped_model())

    for gpu in GPUS:
        whole = time_step(last_step(run.trace), gpu, shipped_model()).step_seconds
        assert sum(costs[gpu.name].forward_seconds.values()) == pytest.approx(whole, rel=1e-6)


def test_the_larger_product_takes_longer_on_every_kind_of_device() -> None:
    model = nn.Sequential(nn.Linear(1024, 8192), nn.Linear(8192, 16))
    run = run_graph(exported(model, torch.ones(4096, 1024)))
    costs = {**gpu_costs(run.trace, GPUS, shipped_model()), "cpu": processor_costs(run.trace, Processor())}

    network = network_from_graph(exported(model, torch.ones(4096, 1024)), costs, name="net")

    first, second = network.operations
    assert all(first.seconds[kind] > 3 * second.seconds[kind] for kind in ("H200", "T4", "cpu"))
    assert first.seconds["cpu"] > first.seconds["T4"] > 5 * first.seconds["H200"]


def test_a_processor_needs_as_long_as_its_arithmetic() -> None:
    run = run_graph(exported(nn.Linear(512, 512, bias=False), torch.ones(512, 512)))

    costs = processor_costs(run.trace, Processor(flops_second=1e9, bytes_second=1e15, call_seconds=0.0))

    assert costs.forward_seconds == pytest.approx({"linear": 2 * 512**3 / 1e9}, rel=0.01)


def test_the_backward_of_an_operation_counts_to_it() -> None:
    model = nn.Sequential(nn.Linear(64, 4096), nn.Linear(4096, 4096), nn.ReLU())

    network = trained(exported(model, torch.ones(4096, 64), training=True))

    small, large, relu = network.operations
    assert network.is_training
    assert large.backward_seconds["H200"] > 1.5 * large.seconds["H200"]  # two products for one
    assert large.backward_seconds["H200"] > 10 * relu.backward_seconds["H200"] > 0
    assert large.backward_seconds["H200"] > 3 * small.backward_seconds["H200"] > 0


def test_the_optimizer_counts_to_the_operations_that_own_the_weights() -> None:
    network = trained(exported(Tied(), WORDS, training=True))

    shares = [operation.update_seconds.get("H200", 0.0) for operation in network.operations]
    states = [operation.state_bytes for operation in network.operations]
    # Gradient, two moments and a counter for each of the weights; a tied one belongs to its first reader.
    assert states == [3 * 6400 + 4, 3 * (1024 + 64) + 8, 0, 0]
    assert shares[0] / shares[1] == pytest.approx(states[0] / states[1])
    assert shares[2:] == [0.0, 0.0]


def test_what_autograd_keeps_counts_once_to_the_first_that_wants_it() -> None:
    network = trained(exported(Tied(), WORDS, training=True))

    words, activations = 4 * 8 * 8, 4 * 8 * 16 * 4
    # The indices; what goes into the inner layer; its tanh, which the last layer wants as well.
    assert [operation.stash_bytes for operation in network.operations] == [words, activations, activations, 0]


def test_a_part_without_gradients_is_one_operation() -> None:
    network = trained(exported(WithoutGradients(), torch.ones(2, 8), training=True))

    part = next(operation for operation in network.operations if operation.kind == "wrap_with_set_grad_enabled")
    assert part.seconds["H200"] > 0
    assert part.backward_seconds == {"H200": 0.0, "T4": 0.0}


def test_a_recurrent_layer_runs_as_one_kernel_as_on_a_gpu() -> None:
    run = run_graph(exported(nn.LSTM(8, 8, batch_first=True), torch.ones(2, 50, 8)))

    assert sum(operator.name == "aten::_cudnn_rnn" for operator in run.trace.operators) == 1
    assert len(run.trace.last_step_calls()) < 10


def test_following_a_graph_leaves_torch_as_it_was() -> None:
    run_graph(exported(nn.LSTM(8, 8), torch.ones(5, 2, 8)))

    attention = torch.nn.functional.scaled_dot_product_attention(*torch.ones(3, 1, 2, 4, 8, device="meta"))
    assert attention.shape == (1, 2, 4, 8)
    assert torch.ones(2, device="meta").is_meta


def test_control_flow_is_refused_with_the_operation() -> None:
    with pytest.raises(CaptureError, match=r"operation cond \(cond\) cannot be followed: cond is control flow"):
        run_graph(exported(Choosing(), torch.ones(3)))


def test_a_model_without_weights_to_train_is_refused() -> None:
    model = nn.Linear(4, 4).requires_grad_(False)

    with pytest.raises(CaptureError, match="no weights to train") as refused:
        run_graph(exported(model, torch.ones(2, 4), training=True), optimizer=torch.optim.SGD)

    assert refused.value.hint == "split it for inference"


def test_a_graph_without_operators_is_refused() -> None:
    with pytest.raises(CaptureError, match="net calls no operators"):
        plain(exported(nn.Identity(), torch.ones(2)))
