"""The network of a user's program with its costs: exported, followed on the virtual GPU, measured on this machine."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING, Any, Protocol

from tonnage.estimate.graph_costs import Processor, gpu_costs, processor_costs
from tonnage.estimate.time_model import TimeModel
from tonnage.hardware import Gpu
from tonnage.split.network import Network

if TYPE_CHECKING:
    from torch.fx import GraphModule

    from tonnage.program.virtual_gpu.graph_training import Optimizer

CPU = "cpu"


class ExportedGraph(Protocol):
    """An exported program with one example of its inputs."""

    @property
    def name(self) -> str: ...
    @property
    def module(self) -> GraphModule: ...
    @property
    def arguments(self) -> tuple[Any, ...]: ...
    @property
    def keywords(self) -> Mapping[str, Any]: ...


class Aliases(Protocol):
    """What is changed in place: operations that stay together for it, the last that writes to each value, and buffers."""

    @property
    def together(self) -> Sequence[frozenset[str]]: ...
    @property
    def final(self) -> Mapping[str, str]: ...
    @property
    def written_weights(self) -> frozenset[str]: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Kinds:
    """The kinds of devices that a network may run on, and how its seconds there are found. On `cpu` they are measured,
    unless a processor is described: then nothing is run."""

    gpus: Sequence[Gpu] = ()
    model: TimeModel
    on_cpu: bool = True
    processor: Processor | None = None
    threads: int | None = None
    repeats: int = 7
    clock: Callable[[], float] = time.perf_counter  # or time.thread_time, where others use the machine as well
    typical: Callable[[Sequence[float]], float] = median  # of the runs; or min, likewise


def network_of(graph: ExportedGraph, aliases: Aliases, kinds: Kinds, *, optimizer: Optimizer | None = None) -> Network:
    """The network of a graph; of its training if there is an optimizer."""
    from tonnage.benchmark.graph_seconds import Run, measured_costs
    from tonnage.program.virtual_gpu.graph_run import run_graph
    from tonnage.split.sources.graph import network_from_graph

    run = run_graph(graph.module, name=graph.name, optimizer=optimizer)
    costs = gpu_costs(run.trace, kinds.gpus, kinds.model)
    if kinds.on_cpu and kinds.processor is not None:
        costs[CPU] = processor_costs(run.trace, kinds.processor)
    elif kinds.on_cpu:
        how = Run(
            args=graph.arguments,
            kwargs=graph.keywords,
            optimizer=optimizer,
            repeats=kinds.repeats,
            threads=kinds.threads,
            clock=kinds.clock,
            typical=kinds.typical,
        )
        costs[CPU] = measured_costs(graph.module, how)
    return network_from_graph(
        graph.module, costs, name=graph.name, run=run, together=aliases.together, final=aliases.final,
        written_weights=aliases.written_weights,
    )  # fmt: skip
