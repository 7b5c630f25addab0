"""What the operations of a graph take on this machine, by a clock that is real or is not."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from itertools import count

import pytest

torch = pytest.importorskip("torch")

from exported_models import InPlace, Tied, exported  # noqa: E402
from torch import fx, nn  # noqa: E402

from tonnage.benchmark.graph_seconds import Run, measured_costs  # noqa: E402
from tonnage.benchmark.time_models import shipped_model  # noqa: E402
from tonnage.errors import ProgramFailed  # noqa: E402
from tonnage.estimate.graph_costs import Processor  # noqa: E402
from tonnage.hardware import find_gpu  # noqa: E402
from tonnage.stages.networks import Kinds, network_of  # noqa: E402

WORDS = torch.zeros(4, 8, dtype=torch.long)


@dataclass
class Program:
    """An exported program, and nothing in it is changed in place."""

    module: fx.GraphModule
    name: str = "tied"
    arguments: tuple[torch.Tensor, ...] = (WORDS,)
    keywords: dict[str, object] = field(default_factory=dict)
    together: tuple[frozenset[str], ...] = ()
    final: dict[str, str] = field(default_factory=dict)
    written_weights: frozenset[str] = frozenset()


def test_the_parts_are_scaled_to_what_the_whole_takes_without_looking_at_the_clock() -> None:
    ticks = count()

    costs = measured_costs(exported(Tied(), WORDS), Run(args=(WORDS,), clock=lambda: float(next(ticks))))

    # A tick for each look: four parts take four, the whole, looked at twice, takes one.
    assert costs.forward_seconds == pytest.approx(dict.fromkeys(["embedding", "linear", "tanh", "linear_1"], 0.25))


def test_the_parts_of_a_long_network_are_scaled_to_what_it_takes_from_stop_to_stop() -> None:
    ticks, inputs = count(), torch.ones(4)
    model = nn.Sequential(*(nn.Tanh() for _ in range(40)))

    costs = measured_costs(exported(model, inputs), Run(args=(inputs,), clock=lambda: float(next(ticks))))

    # Stops are after 8, 24 and 40 nodes.
    assert list(costs.forward_seconds.values()) == pytest.approx([1 / 8] * 8 + [1 / 16] * 32)


def test_the_large_product_takes_most_of_the_time() -> None:
    model = nn.Sequential(nn.Linear(16, 1024), nn.Linear(1024, 1024), nn.Linear(1024, 4))
    inputs = torch.ones(256, 16)

    run = Run(args=(inputs,), optimizer=torch.optim.SGD, threads=1, clock=time.thread_time)

    costs = measured_costs(exported(model, inputs, training=True), run)

    for seconds in (costs.forward_seconds, costs.backward_seconds):
        assert seconds["linear_1"] > 0.5 * sum(seconds.values())
    assert costs.update_seconds > 0


def test_measuring_changes_neither_weights_nor_buffers_and_leaves_no_gradients() -> None:
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.Dropout(0.5))
    inputs = torch.rand(2, 3, 8, 8)
    graph = exported(model, inputs, training=True)
    before = {name: tensor.clone() for name, tensor in graph.state_dict().items()}
    random = torch.random.get_rng_state()

    measured_costs(graph, Run(args=(inputs,), optimizer=torch.optim.Adam, repeats=1))

    assert all(torch.equal(before[name], tensor) for name, tensor in graph.state_dict().items())
    assert all(parameter.grad is None for parameter in graph.parameters())
    assert torch.equal(random, torch.random.get_rng_state())


def test_operators_in_place_are_measured_where_they_stand() -> None:
    costs = measured_costs(exported(InPlace(), torch.ones(4, 8)), Run(args=(torch.ones(4, 8),), repeats=1))

    assert len(costs.forward_seconds) == 4
    assert all(seconds > 0 for seconds in costs.forward_seconds.values())


def test_the_number_of_threads_is_that_of_before() -> None:
    before = torch.get_num_threads()

    measured_costs(exported(Tied(), WORDS), Run(args=(WORDS,), repeats=1, threads=before + 1))

    assert torch.get_num_threads() == before


def test_a_model_that_fails_here_is_told_so() -> None:
    with pytest.raises(ProgramFailed, match="the model failed when it was run to measure its operations: index out of"):
        measured_costs(exported(Tied(), WORDS), Run(args=(WORDS + 100,), repeats=1))


def test_a_program_costs_on_every_kind_of_device() -> None:
    program = Program(exported(Tied(), WORDS, training=True))
    kinds = Kinds(gpus=[find_gpu("H200")], model=shipped_model(), repeats=1)

    network = network_of(program, program, kinds, optimizer=torch.optim.SGD)

    assert all(operation.seconds.keys() == {"H200", "cpu"} for operation in network.operations)
    assert all(operation.seconds["cpu"] > 0 for operation in network.operations)
    assert network.is_training


def test_nothing_is_run_where_the_processor_is_described() -> None:
    program = Program(exported(Tied(), WORDS), arguments=(WORDS + 100,))  # which would fail

    network = network_of(program, program, Kinds(model=shipped_model(), processor=Processor()))

    assert sum(operation.seconds["cpu"] for operation in network.operations) > 0
