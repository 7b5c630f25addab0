"""Which operators run, which kernels each of them launches, how long those take, and what launching costs the host.

Operators are seen below autograd, by the same dispatch as on the virtual GPU, and described in the same words; each is
marked as a range in the profile, and a kernel belongs to the operator in whose range the host launched it.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import torch
from torch.nn.modules.module import register_module_forward_pre_hook
from torch.utils._python_dispatch import TorchDispatchMode

from tonnage.benchmark.kernel_profile import MARK, Kernel, Launches, profiled
from tonnage.program.trace import Operator
from tonnage.program.virtual_gpu.arguments import tensors_in
from tonnage.program.virtual_gpu.describe import call_key, describe_call
from tonnage.store.rows import HostRow, KernelRow, Spread

# What costs the host something and launches nothing: looking at a tensor, calling a module.
VIEW = Operator("tonnage::view", (), ())
MODULE = Operator("tonnage::module", (), ())
PREPARING = "prepare"  # the phase of calls that only set the stage for others
# Other floating-point arguments (learning rates, bias corrections) change from step to step and cost nothing.
_TELLING_FLOATS = {"p", "dropout_p"}


class _Call(NamedTuple):
    operator: int  # -1 if nothing of it is on the device
    phase: str
    host_seconds: float


class Observer(TorchDispatchMode):  # type: ignore[no-untyped-call]  # torch's own
    """Describes every operator that runs on `device_type` and marks it in the profile."""

    def __init__(self, device_type: str) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.device_type = device_type
        self.phase = "forward"
        self.operators: list[Operator] = []
        self.calls: list[_Call] = []
        self._known: dict[tuple[Any, ...], int] = {}
        self._indices: dict[tuple[Any, ...], int] = {}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if getattr(func, "is_view", False):
            return self._view(func, args, kwargs)
        with torch.autograd.profiler.record_function(f"{MARK}{len(self.calls)}"):
            started = time.perf_counter()
            result = func(*args, **kwargs)
            seconds = time.perf_counter() - started
        self.calls.append(_Call(self._describe(func, args, kwargs, result), self._phase(), seconds))
        return result

    def _view(self, func: Any, args: Any, kwargs: Any) -> Any:
        started = time.perf_counter()
        result = func(*args, **kwargs)
        if any(tensor.device.type == self.device_type for tensor in tensors_in(args, kwargs)):
            self.calls.append(_Call(self._index(VIEW), self._phase(), time.perf_counter() - started))
        return result

    def enter_module(self, *_: object) -> None:
        """A hook: a module is called."""
        self.calls.append(_Call(self._index(MODULE), self._phase(), 0.0))

    def _phase(self) -> str:
        # The engine sets the id of the graph it is running, also in its device threads.
        return "backward" if torch._C._current_graph_task_id() != -1 else self.phase

    def _describe(self, func: Any, args: Any, kwargs: Any, result: Any) -> int:
        inputs, outputs = list(tensors_in(args, kwargs)), list(tensors_in((result,), {}))
        if not any(tensor.device.type == self.device_type for tensor in (*inputs, *outputs)):
            return -1
        key = call_key(func, args, kwargs, inputs, outputs)
        if key not in self._known:
            names = [argument.name for argument in func._schema.arguments]
            operator = _without_rates(describe_call(func._schema.name, names, args, kwargs, outputs))
            self._known[key] = self._index(operator)
        return self._known[key]

    def _index(self, operator: Operator) -> int:
        attributes = tuple(sorted(operator.attributes.items(), key=str))
        identity = operator.name, operator.inputs, operator.outputs, attributes
        index = self._indices.setdefault(identity, len(self.operators))
        if index == len(self.operators):
            self.operators.append(operator)
        return index


def _without_rates(operator: Operator) -> Operator:
    kept = {k: v for k, v in operator.attributes.items() if not _is_rate(v) or k in _TELLING_FLOATS}
    return replace(operator, attributes=kept)


def _is_rate(value: Any) -> bool:
    return isinstance(value, float) or (isinstance(value, tuple) and any(isinstance(v, float) for v in value))


class Observation:
    """What was seen: one entry per call of an operator, with the kernels it launched."""

    def __init__(self, observer: Observer, launches: Launches) -> None:
        self._observer = observer
        self._launches = launches

    @property
    def kernel_seconds(self) -> float:
        """All kernels together, without copies between host and device."""
        return self._launches.kernel_seconds

    def kernels(self, calls: range | None = None) -> list[KernelRow]:
        """One row per operator, phase and different kernel; means over all calls with the same kernels."""
        groups: dict[tuple[int, str, tuple[str, ...]], list[tuple[float, ...]]] = {}
        for number, call in self._among(calls):
            seconds = _seconds_by_name(self._launches.by_call.get(number, ()))
            if seconds:
                groups.setdefault((call.operator, call.phase, tuple(seconds)), []).append(tuple(seconds.values()))
        return [row for key, runs in groups.items() for row in self._rows(*key, runs)]

    def _rows(
        self, operator: int, phase: str, names: tuple[str, ...], runs: list[tuple[float, ...]]
    ) -> Iterator[KernelRow]:
        for position, name in enumerate(names):
            yield KernelRow(
                operator=self._observer.operators[operator],
                phase=phase,
                position=position,
                kernel=name,
                calls=len(runs),
                seconds=spread([run[position] for run in runs]),
            )

    def hosts(self, calls: range | None = None) -> list[HostRow]:
        """One row per operator and phase."""
        groups: dict[tuple[int, str], list[float]] = {}
        for _, call in self._among(calls):
            groups.setdefault((call.operator, call.phase), []).append(call.host_seconds)
        return [
            HostRow(operator=self._observer.operators[o], phase=phase, calls=len(runs), seconds=spread(runs))
            for (o, phase), runs in groups.items()
        ]

    def _among(self, calls: range | None) -> Iterator[tuple[int, _Call]]:
        """The calls, without those that only prepare others."""
        for number in range(len(self._observer.calls)) if calls is None else calls:
            call = self._observer.calls[number]
            if call.phase != PREPARING and call.operator >= 0:
                yield number, call


def _seconds_by_name(kernels: Sequence[Kernel]) -> dict[str, float]:
    """In the order of their first launch. An operator on lists launches one kernel again and again: that is one row."""
    seconds: dict[str, float] = {}
    for kernel in sorted(kernels, key=lambda kernel: kernel.start_ns):
        seconds[kernel.name] = seconds.get(kernel.name, 0.0) + kernel.seconds
    return seconds


def spread(values: Sequence[float]) -> Spread:
    """Mean and standard deviation; a single value deviates by 0."""
    return Spread(statistics.fmean(values), statistics.stdev(values) if len(values) > 1 else 0.0)


def observe_host(run: Callable[[Observer], None], device_type: str) -> list[HostRow]:
    """Run something without the profiler, which makes every launch slower: what it costs the host alone."""
    observer = Observer(device_type)
    hook = register_module_forward_pre_hook(observer.enter_module)
    try:
        with observer:
            run(observer)
    finally:
        hook.remove()
    return Observation(observer, Launches({}, 0.0)).hosts()


def observe(run: Callable[[Observer], None], device_type: str) -> Observation:
    """Run something under the profiler. On a CPU an operator's own time stands for its kernel."""
    observer = Observer(device_type)
    if device_type != "cpu":
        with profiled() as profile, observer:
            run(observer)
            torch.cuda.synchronize()
        return Observation(observer, profile.launches())
    with observer:
        run(observer)
    own_times = {
        number: [Kernel(observer.operators[call.operator].name, call.host_seconds, 0)]
        for number, call in enumerate(observer.calls)
        if call.operator >= 0 and observer.operators[call.operator] != VIEW
    }
    return Observation(observer, Launches(own_times, sum(call.host_seconds for call in observer.calls)))
