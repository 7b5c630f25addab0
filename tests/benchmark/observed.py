"""Measurements of small networks that obey a known law, made without a GPU, and a database of them."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import numpy as np

from tonnage.benchmark.observed_steps import OBSERVED_STEPS, observed_step
from tonnage.benchmark.workloads import make_point
from tonnage.estimate.host_time import HostModel
from tonnage.estimate.step_time import StepTime, time_step
from tonnage.estimate.time_model import TimeModel
from tonnage.hardware import find_gpu
from tonnage.program.trace import Operator, TensorSpec
from tonnage.store.database import open_database
from tonnage.store.rows import Environment, HostRow, KernelRow, Measurement, Spread

H200 = find_gpu("H200")
ENVIRONMENT = Environment(device="cuda", gpu="H200")
NOTHING = Spread(0.0, 0.0)
TRUTH = TimeModel(host=HostModel(forward_call=12e-6, backward_call=9e-6, optimizer_call=7e-6, entered=15e-6))


def matrix(rows: int, columns: int) -> TensorSpec:
    return TensorSpec((rows, columns), "float32")


def product(rows: int, depth: int, columns: int) -> Operator:
    return Operator("aten::mm", (matrix(rows, depth), matrix(depth, columns)), (matrix(rows, columns),))


def pointwise(name: str, rows: int, columns: int) -> Operator:
    return Operator(name, (matrix(rows, columns),), (matrix(rows, columns),))


def host_row(operator: Operator, phase: str, calls: int, seconds: float = 5e-6) -> HostRow:
    return HostRow(operator=operator, phase=phase, calls=calls * OBSERVED_STEPS, seconds=Spread(seconds, 0.0))


def host_rows(batch: int, width: int, depth: int) -> list[HostRow]:
    """What a perceptron does in a step."""
    return [
        host_row(Operator("aten::_to_copy", (matrix(batch, width),), (matrix(batch, width),)), "copy", 1),
        host_row(product(batch, width, width), "forward", depth),
        host_row(pointwise("aten::relu", batch, width), "forward", depth),
        host_row(Operator("tonnage::view", (), ()), "forward", depth),
        host_row(Operator("tonnage::module", (), ()), "forward", 2 * depth),
        host_row(product(batch, width, width), "backward", 2 * depth),
        host_row(pointwise("aten::threshold_backward", batch, width), "backward", depth),
        host_row(pointwise("aten::add_", width, width), "optimizer", depth),
    ]


def measured(number: int, generator: np.random.Generator) -> tuple[Measurement, list[KernelRow], list[HostRow]]:
    """A perceptron as TRUTH times it, with a little noise."""
    batch, width, depth = (int(2 ** generator.uniform(*between)) for between in ((4, 12), (5, 12), (1, 4)))
    point = make_point("mlp", {"batch": batch, "width": width, "depth": depth, "inputs": width, "classes": 10 + number})
    hosts = host_rows(batch, width, depth)
    bare = Measurement(
        key=point.key, campaign="test", family="mlp", structure=point.structure, batch=batch, input_shape=(width,),
        settings={"optimizer": point.optimizer}, measured_at=datetime(2026, 1, 1, tzinfo=UTC),
        allocated_bytes=8 * batch * width * depth,
    )  # fmt: skip
    step = observed_step(bare, hosts)
    times = time_step(step, H200, TRUTH)
    seconds = dict(zip(step.operators, step.by_operator(TRUTH.kernels.seconds(step.works, H200)), strict=True))
    kernels = [
        KernelRow(
            operator=row.operator, phase=row.phase, position=0, kernel="kernel", calls=row.calls,
            seconds=Spread(float(seconds[row.operator]) * float(generator.normal(1, 0.02)), 0.0),
        )
        for row in hosts
        if row.operator in seconds
    ]  # fmt: skip
    return with_times(bare, times), kernels, hosts


def with_times(measurement: Measurement, times: StepTime) -> Measurement:
    return replace(
        measurement,
        step_seconds=Spread(times.step_seconds, 0.0), forward_seconds=Spread(times.forward_seconds, 0.0),
        backward_seconds=Spread(times.backward_seconds, 0.0), optimizer_seconds=Spread(times.optimizer_seconds, 0.0),
        host_seconds=Spread(times.host_seconds, 0.0), energy_joules_step=times.energy_joules,
        power_watts=times.power_watts,
    )  # fmt: skip


def all_measured(count: int) -> Iterator[tuple[Measurement, list[KernelRow], list[HostRow]]]:
    generator = np.random.default_rng(7)
    return (measured(number, generator) for number in range(count))


def make_database(
    path: Path, count: int, environment: Environment = ENVIRONMENT, families: Sequence[str] = ("mlp",)
) -> Path:
    """Measurements belong to the families in turn."""
    with open_database(path) as database:
        for number, (measurement, kernels, hosts) in enumerate(all_measured(count)):
            family = families[number % len(families)]
            database.add(environment, replace(measurement, family=family), kernels, hosts)
    return path
