"""Which kernels each operator launches, how long they run, and what launching costs the host.

Operators are seen below autograd, by the same dispatch as on the virtual GPU, and described in the same words; each is
marked as a range in the profile, and a kernel belongs to the operator in whose range the host launched it.
"""

from __future__ import annotations

import statistics
import time
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, NamedTuple

import torch
from torch.profiler import ProfilerActivity, profile
from torch.utils._python_dispatch import TorchDispatchMode

from tonnage.program.trace import Operator
from tonnage.program.virtual_gpu.arguments import tensors_in
from tonnage.program.virtual_gpu.describe import call_key, describe_call
from tonnage.store.rows import HostRow, KernelRow, Spread

_MARK = "tonnage#"
PREPARING = "prepare"


class _Call(NamedTuple):
    operator: int
    phase: str
    host_seconds: float


class _Kernel(NamedTuple):
    name: str
    seconds: float
    start_ns: int


class Observer(TorchDispatchMode):
    """Describes every operator that runs on `device_type` and marks it in the profile."""

    def __init__(self, device_type: str) -> None:
        super().__init__()
        self.device_type = device_type
        self.phase = "forward"
        self.operators: list[Operator] = []
        self.calls: list[_Call] = []
        self._known: dict[tuple[Any, ...], int] = {}
        self._indices: dict[tuple[Any, ...], int] = {}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if getattr(func, "is_view", False):
            return func(*args, **kwargs)
        mark = torch.autograd.profiler.record_function(f"{_MARK}{len(self.calls)}")
        with mark:
            started = time.perf_counter()
            result = func(*args, **kwargs)
            seconds = time.perf_counter() - started
        inputs, outputs = list(tensors_in(args, kwargs)), list(tensors_in((result,), {}))
        self.calls.append(_Call(self._describe(func, args, kwargs, inputs, outputs), self._phase(), seconds))
        return result

    def _phase(self) -> str:
        # The engine sets the id of the graph it is running, also in its device threads.
        return "backward" if torch._C._current_graph_task_id() != -1 else self.phase

    def _describe(self, func: Any, args: Any, kwargs: Any, inputs: Any, outputs: Any) -> int:
        if not any(tensor.device.type == self.device_type for tensor in (*inputs, *outputs)):
            return -1
        key = call_key(func, args, kwargs, inputs, outputs)
        index = self._known.get(key)
        if index is None:
            names = [argument.name for argument in func._schema.arguments]
            operator = _without_rates(describe_call(func._schema.name, names, args, kwargs, outputs))
            index = self._known[key] = self._indices.setdefault(_identity(operator), len(self.operators))
            if index == len(self.operators):
                self.operators.append(operator)
        return index


# Other floating-point arguments (learning rates, bias corrections) change from step to step and cost nothing.
_TELLING_FLOATS = {"p", "dropout_p"}


def _without_rates(operator: Operator) -> Operator:
    kept = {k: v for k, v in operator.attributes.items() if not _is_rate(v) or k in _TELLING_FLOATS}
    return replace(operator, attributes=kept)


def _is_rate(value: Any) -> bool:
    return isinstance(value, float) or (isinstance(value, tuple) and any(isinstance(v, float) for v in value))


def _identity(operator: Operator) -> tuple[Any, ...]:
    return operator.name, operator.inputs, operator.outputs, tuple(sorted(operator.attributes.items(), key=str))


class Observation:
    """What was seen: one entry per call of an operator, with the kernels it launched."""

    def __init__(self, observer: Observer, launched: dict[int, list[_Kernel]]) -> None:
        self._observer = observer
        self._launched = launched

    def kernels(self, calls: range | None = None) -> list[KernelRow]:
        """One row per operator, phase and kernel; means over all calls with the same sequence of kernels."""
        groups: dict[tuple[int, str, tuple[str, ...]], list[list[float]]] = {}
        for number, call in self._among(calls):
            launched = sorted(self._launched.get(number, ()), key=lambda kernel: kernel.start_ns)
            if launched:
                names = tuple(kernel.name for kernel in launched)
                groups.setdefault((call.operator, call.phase, names), []).append([k.seconds for k in launched])
        return [row for key, runs in groups.items() for row in self._rows(key, runs)]

    def _rows(self, key: tuple[int, str, tuple[str, ...]], runs: list[list[float]]) -> Iterator[KernelRow]:
        operator, phase, names = key
        for position, name in enumerate(names):
            yield KernelRow(
                operator=self._observer.operators[operator],
                phase=phase,
                position=position,
                kernel=name,
                calls=len(runs),
                seconds=spread([run[position] for run in runs]),
            )

    def _among(self, calls: range | None) -> Iterator[tuple[int, _Call]]:
        """The calls, without those that only prepare others."""
        for number in calls or range(len(self._observer.calls)):
            call = self._observer.calls[number]
            if call.phase != PREPARING and call.operator >= 0:
                yield number, call

    def hosts(self, calls: range | None = None) -> list[HostRow]:
        groups: dict[tuple[int, str], list[float]] = {}
        for _, call in self._among(calls):
            groups.setdefault((call.operator, call.phase), []).append(call.host_seconds)
        return [
            HostRow(operator=self._observer.operators[o], phase=phase, calls=len(runs), seconds=spread(runs))
            for (o, phase), runs in groups.items()
        ]


def spread(values: Sequence[float]) -> Spread:
    return Spread(statistics.fmean(values), statistics.stdev(values) if len(values) > 1 else 0.0)


def observe(run: Callable[[Observer], None], device_type: str) -> Observation:
    """Run something under the profiler. On a CPU an operator's own time stands for its kernel."""
    observer = Observer(device_type)
    if device_type == "cpu":
        with observer:
            run(observer)
        launched = {
            number: [_Kernel(observer.operators[call.operator].name, call.host_seconds, 0)]
            for number, call in enumerate(observer.calls)
            if call.operator >= 0
        }
        return Observation(observer, launched)
    with _profiled() as profiler, observer:
        run(observer)
        torch.cuda.synchronize()
    return Observation(observer, _launched(profiler.profiler.kineto_results.events()))


@contextmanager
def _profiled() -> Iterator[Any]:
    with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA], acc_events=True) as profiler:
        yield profiler


def _launched(events: Iterable[Any]) -> dict[int, list[_Kernel]]:
    """Kernels and copies by the number of the call in whose range they were launched."""
    ranges: dict[int, list[tuple[int, int, int]]] = {}
    launches: dict[int, tuple[int, int]] = {}
    kernels: list[tuple[int, _Kernel]] = []
    cuda = torch.autograd.DeviceType.CUDA
    for event in events:
        name = event.name()
        if event.device_type() == cuda:
            if not name.startswith(_MARK):  # ranges are also shown on the device's own line
                kernel = _Kernel(name, event.duration_ns() * 1e-9, event.start_ns())
                kernels.append((event.correlation_id(), kernel))
        elif name.startswith(_MARK):
            start = event.start_ns()
            end = start + event.duration_ns()
            ranges.setdefault(event.start_thread_id(), []).append((start, end, int(name[len(_MARK) :])))
        elif name.startswith(("cuda", "cu")):
            launches[event.correlation_id()] = (event.start_thread_id(), event.start_ns())
    ordered = {thread: sorted(marks) for thread, marks in ranges.items()}
    found: dict[int, list[_Kernel]] = {}
    for correlation, kernel in kernels:
        call = _enclosing(ordered, launches.get(correlation))
        if call is not None:
            found.setdefault(call, []).append(kernel)
    return found


def _enclosing(ranges: dict[int, list[tuple[int, int, int]]], launch: tuple[int, int] | None) -> int | None:
    if launch is None:
        return None
    thread, moment = launch
    marks = ranges.get(thread) or [mark for other in ranges.values() for mark in other]
    position = bisect_right(marks, (moment, 1 << 63, 0)) - 1
    if position < 0:
        return None
    _, end, number = marks[position]
    return number if moment <= end else None
