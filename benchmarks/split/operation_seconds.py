"""Do the operations of a network add up? `python operation_seconds.py [--training] [MODEL ...]`

On a GPU their seconds stand beside the estimate of the program that was exported; on this machine, with one thread and by
its processor time, beside runs of the exported graph and of the model. A graph may do more than the model: transformers,
for one, makes masks explicit when it is exported, and attention then takes slower ways. And it may do less: no modules are
entered.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import torch
from models import MODELS

from tonnage.api import estimate
from tonnage.benchmark.graph_seconds import Run, measured_costs
from tonnage.benchmark.time_models import current_model
from tonnage.estimate.graph_costs import Costs, gpu_costs
from tonnage.hardware import find_gpu
from tonnage.program.virtual_gpu.graph_run import run_graph
from tonnage.program.virtual_gpu.graph_training import loss_of

GPU = "H200"
_REPEATS = 5
_PROGRAM = """
import sys
sys.path.insert(0, {folder!r})
from models import MODELS

def build():
    model, inputs = MODELS[{name!r}]()
    return model.train({training}), inputs
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("models", nargs="*", default=list(MODELS))
    parser.add_argument("--training", action="store_true")
    options = parser.parse_args()
    torch.set_num_threads(1)
    print(f"                        |      {GPU}, ms       |        CPU, ms")
    print("model        operations |    parts     model  |     parts     graph     model")
    for name in options.models:
        print(_row(name, options.training), flush=True)


def _graph(model: torch.nn.Module, inputs: dict[str, Any], training: bool) -> Any:
    with warnings.catch_warnings(), torch.set_grad_enabled(training):
        warnings.simplefilter("ignore")
        return torch.export.export(model, (), inputs).module(check_guards=False)


def _row(name: str, training: bool) -> str:
    model, inputs = MODELS[name]()
    graph = _graph(model.train(training), inputs, training)
    optimizer = torch.optim.AdamW if training else None
    on_gpu = gpu_costs(run_graph(graph, optimizer=optimizer).trace, [find_gpu(GPU)], current_model())[GPU]
    run = Run(kwargs=inputs, optimizer=optimizer, repeats=_REPEATS, clock=time.thread_time)
    seconds = [
        _total(on_gpu),
        _estimated(name, training),
        _total(measured_costs(graph, run)),
        *_measured([lambda: _step(graph, inputs, training), lambda: _step(model, inputs, training)]),
    ]
    columns = [f"{value * 1e3:9.3f}" if place < 2 else f"{value * 1e3:9.1f}" for place, value in enumerate(seconds)]
    operations = sum(node.op == "call_function" for node in graph.graph.nodes)
    return f"{name:12} {operations:10} | {' '.join(columns[:2])}  | {' '.join(columns[2:])}"


def _total(costs: Costs) -> float:
    """Forward and backward."""
    return sum(costs.forward_seconds.values()) + sum(costs.backward_seconds.values())


def _estimated(name: str, training: bool) -> float:
    with tempfile.TemporaryDirectory() as folder:
        program = Path(folder, "program.py")
        program.write_text(_PROGRAM.format(folder=str(Path(__file__).parent), name=name, training=training))
        found = estimate(f"{program}:build", gpus=[GPU]).estimates[0].time
    assert found is not None
    return found.forward_seconds.value + found.backward_seconds.value


def _measured(steps: list[Callable[[], None]]) -> list[float]:
    """Medians of runs that take turns."""
    spans: list[list[float]] = [[] for _ in steps]
    for _ in range(_REPEATS + 1):
        for step, taken in zip(steps, spans, strict=True):
            start = time.thread_time()
            step()
            taken.append(time.thread_time() - start)
    return [median(taken[1:]) for taken in spans]


def _step(model: torch.nn.Module, inputs: dict[str, Any], training: bool) -> None:
    with torch.set_grad_enabled(training):
        output = model(**inputs)
        if training:
            loss_of(output).backward()


if __name__ == "__main__":
    sys.exit(main())
