"""Operators and their kernels: who launched what, and how it becomes rows."""

from dataclasses import dataclass

import pytest
import torch

from tonnage.benchmark.kernel_profile import MARK, read_events
from tonnage.benchmark.observe import Observation, Observer, observe, spread

CUDA, CPU = torch.autograd.DeviceType.CUDA, torch.autograd.DeviceType.CPU


@dataclass
class Event:
    """As kineto's events answer."""

    kind: object
    label: str
    start: int
    end: int = 0
    correlation: int = 0
    thread: int = 1

    def name(self) -> str:
        return self.label

    def device_type(self) -> object:
        return self.kind

    def start_ns(self) -> int:
        return self.start

    def duration_ns(self) -> int:
        return self.end - self.start

    def correlation_id(self) -> int:
        return self.correlation

    def start_thread_id(self) -> int:
        return self.thread


EVENTS = [
    Event(CPU, f"{MARK}0", 100, 200),
    Event(CPU, f"{MARK}1", 300, 400),
    Event(CPU, f"{MARK}2", 300, 400, thread=2),  # autograd's own thread
    Event(CPU, "cudaLaunchKernel", 150, correlation=1),
    Event(CPU, "cudaLaunchKernel", 350, correlation=2),
    Event(CPU, "cudaLaunchKernel", 360, correlation=3, thread=2),
    Event(CPU, "cudaMemcpyAsync", 370, correlation=4),
    Event(CPU, "cudaLaunchKernel", 250, correlation=5),  # between two calls
    Event(CUDA, f"{MARK}0", 900, 990),
    Event(CUDA, "gemm", 1000, 3000, correlation=1),
    Event(CUDA, "add", 3000, 3500, correlation=2),
    Event(CUDA, "multiply", 3500, 4000, correlation=3),
    Event(CUDA, "Memcpy HtoD", 4000, 9000, correlation=4),
    Event(CUDA, "lost", 9000, 9100, correlation=5),
    Event(CUDA, "stranger", 9100, 9200, correlation=99),
]


def test_a_kernel_belongs_to_the_call_that_launched_it() -> None:
    launches = read_events(EVENTS)
    names = {call: [kernel.name for kernel in kernels] for call, kernels in launches.by_call.items()}
    assert names == {0: ["gemm"], 1: ["add", "Memcpy HtoD"], 2: ["multiply"]}


def test_all_kernels_count_as_busy_time_but_copies_do_not() -> None:
    assert read_events(EVENTS).kernel_seconds == pytest.approx(3200e-9)


def test_kernels_of_one_name_in_one_call_are_one_row() -> None:
    observer = Observer("cpu")
    with observer:
        for _ in range(2):
            torch.add(torch.ones(4), 1)
    adds = [number for number, call in enumerate(observer.calls) if "add" in observer.operators[call.operator].name]
    events = [Event(CPU, f"{MARK}{number}", 100 * number, 100 * number + 99) for number in adds]
    for number in adds:
        for position, name in enumerate(["add", "reduce", "add"]):
            moment, key = 100 * number + position, 10 * number + position
            events += [Event(CPU, "cuLaunch", moment, correlation=key)]
            events += [Event(CUDA, name, 1000 * key, 1000 * key + 500, correlation=key)]
    rows = Observation(observer, read_events(events)).kernels()
    assert [(row.position, row.kernel, row.calls) for row in rows] == [(0, "add", 2), (1, "reduce", 2)]
    assert [row.seconds.mean for row in rows] == pytest.approx([1000e-9, 500e-9])


def test_on_a_cpu_the_operators_own_time_stands_for_its_kernel() -> None:
    seen = observe(lambda observer: torch.mm(torch.ones(8, 8), torch.ones(8, 8)), "cpu")
    (row,) = [row for row in seen.kernels() if row.operator.name == "aten::mm"]
    (host,) = [row for row in seen.hosts() if row.operator.name == "aten::mm"]
    assert (row.kernel, row.seconds) == ("aten::mm", host.seconds)
    assert row.operator.inputs[0] is not None
    assert row.operator.inputs[0].shape == (8, 8)


def test_an_empty_range_of_calls_has_no_rows() -> None:
    seen = observe(lambda observer: torch.ones(3) + 1, "cpu")
    assert seen.kernels(range(0)) == []
    assert len(seen.kernels()) == 2


def test_rates_that_change_from_step_to_step_make_no_new_operators() -> None:
    weight = torch.ones(4)
    seen = observe(lambda observer: [weight.add_(weight, alpha=rate) for rate in (0.1, 0.2, 0.3)], "cpu")
    assert [(row.operator.name, row.calls) for row in seen.kernels()] == [("aten::add_", 3)]


def test_a_spread_is_mean_and_deviation() -> None:
    assert (spread([1.0, 3.0]).mean, spread([1.0, 3.0]).deviation) == (2.0, pytest.approx(2**0.5))
    assert spread([4.0]).deviation == 0.0
