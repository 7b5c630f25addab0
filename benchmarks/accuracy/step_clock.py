"""Times the steps of an unmodified program on a GPU: forward, backward, optimizer, energy, then kernels and copies.

A step is what the virtual GPU counts: a turn of the training loop ends when the last of its optimizers has stepped, a turn
of inference is one call of the module that is called most often from outside. Batches of data loaders come from memory after the first few: how fast
a program reads its files is not what is measured here.
"""

import itertools
import sys
import time
from collections import Counter
from typing import Any

import torch
from torch import nn
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook

WARM_STEPS = 4
TIMED_STEPS = 20
WARM_INFERENCE_SECONDS = 4.0
PROFILED_STEPS = 3
CACHED_BATCHES = 4


class Done(SystemExit):
    """Ends the program once everything has been measured."""


class StepClock:
    """Notes moments on the device's time-line; nothing waits until the timed steps are over."""

    def __init__(self, energy: Any, power_seconds: float, most_seconds: float) -> None:
        self.energy, self.power_seconds, self.most_seconds = energy, power_seconds, most_seconds
        self.steps = 0
        self.training = False
        self._began = 0.0
        self._counts: dict[int, int] = {}
        self._optimizers: set[int] = set()
        self._depth = 0
        self._nested = 0
        self._called: Counter[nn.Module] = Counter()  # from outside, while warming up
        self._hooks: list[Any] = []
        self._ends: list[Any] = []
        self._host_ends: list[float] = []
        self._spans: dict[str, list[tuple[int, Any, Any]]] = {"backward": [], "optimizer": []}
        self._open: dict[str, Any] = {}
        self._profile: Any = None
        self._power: list[tuple[float, int, int]] = []
        self._clocks: list[int] = []
        self._power_started = 0.0
        self._last_energy = 0
        self._polled = 0.0
        self.result: dict[str, Any] = {}

    # -- hooks --------------------------------------------------------------------------------------------------------

    def install(self) -> None:
        register_optimizer_step_pre_hook(self._before_optimizer)
        register_optimizer_step_post_hook(self._after_optimizer)
        # Hooks make every module call slower, so they stay only until it is known what the program does.
        self._hooks = [
            nn.modules.module.register_module_forward_pre_hook(self._enter),
            nn.modules.module.register_module_forward_hook(self._leave),
        ]
        original, init = torch.autograd.backward, torch.optim.Optimizer.__init__

        def backward(*args: Any, **kwargs: Any) -> Any:
            self.training = True
            self._begin("backward")
            try:
                return original(*args, **kwargs)
            finally:
                self._end("backward")

        def made(this: Any, *args: Any, **kwargs: Any) -> None:
            init(this, *args, **kwargs)
            self.training = True
            self._remove_hooks()

        torch.autograd.backward = backward
        torch.optim.Optimizer.__init__ = made  # type: ignore[method-assign]
        _feed_from_memory()

    def _before_optimizer(self, *_: Any) -> None:
        self._depth += 1
        if self._depth == 1:
            self._begin("optimizer")

    def _after_optimizer(self, optimizer: Any, *_: Any) -> None:
        self._depth -= 1
        if self._depth:
            return
        self._end("optimizer")
        before = min(self._counts.values(), default=0)
        self._counts[id(optimizer)] = self._counts.get(id(optimizer), 0) + 1
        if len(self._counts) == 1 or min(self._counts.values()) > before:
            self._end_step()

    def _enter(self, *_: Any) -> None:
        self._nested += 1

    def _leave(self, module: nn.Module, *_: Any) -> None:
        self._nested -= 1
        if self._nested or torch.is_grad_enabled():
            return
        self._called[module] += 1
        if not self._is_warming():
            self._remove_hooks()
            leader, _ = self._called.most_common(1)[0]
            leader.register_forward_hook(self._after_inference)

    def _after_inference(self, *_: Any) -> None:
        if not self.training:
            self._end_step()

    def _remove_hooks(self) -> None:
        while self._hooks:
            self._hooks.pop().remove()

    # -- time ---------------------------------------------------------------------------------------------------------

    def _mark(self) -> Any:
        event = torch.cuda.Event(enable_timing=True)
        event.record()
        return event

    def _begin(self, name: str) -> None:
        if name not in self._open:
            self._open[name] = self._mark()

    def _end(self, name: str) -> None:
        self._spans[name].append((self.steps, self._open.pop(name), self._mark()))

    def _is_warming(self) -> bool:
        """Libraries plan anew for every shape, and in generation the first text has all the shapes of later ones."""
        now = time.perf_counter()
        self._began = self._began or now
        return not self.training and now - self._began < WARM_INFERENCE_SECONDS

    def _end_step(self) -> None:
        self.steps += 1
        timed = WARM_STEPS + TIMED_STEPS
        if self.steps <= timed:
            self._ends.append(self._mark())
            self._host_ends.append(time.perf_counter())
            if self.steps == 1:
                self._first = time.perf_counter()
            if self.steps < timed and time.perf_counter() - self._first < self.most_seconds:
                return
            self._summarise()
            self.steps = timed
            self._power_started = time.perf_counter()
            self._last_energy = self.energy() if self.energy else 0
            return
        if self._profile is None:
            if self.energy and not self._poll():
                return
            self._finish_power()
            self._start_profile()
            return
        self._profiled += 1
        if self._profiled >= PROFILED_STEPS:
            torch.cuda.synchronize()
            self._finish_profile()
            raise Done

    def _summarise(self) -> None:
        torch.cuda.synchronize()
        ends, first = self._ends, min(WARM_STEPS, len(self._ends) - 2)
        steps = [a.elapsed_time(b) / 1000 for a, b in itertools.pairwise(ends[first - 1 if first else 0 :])]
        host = [b - a for a, b in itertools.pairwise(self._host_ends[first - 1 if first else 0 :])]
        count = len(steps)
        self.result = {
            "training": self.training,
            "step_seconds": steps,
            "host_step_seconds": host,
            "optimizers": len(self._counts),
            **{
                f"{name}_seconds": sum(a.elapsed_time(b) for n, a, b in spans if len(ends) - count <= n < len(ends))
                / 1000
                / count
                for name, spans in self._spans.items()
            },
        }

    # -- energy -------------------------------------------------------------------------------------------------------

    def _poll(self) -> bool:
        now = time.perf_counter()
        if now - self._polled < 0.01:
            return False
        torch.cuda.synchronize()
        self._polled = now = time.perf_counter()
        energy = self.energy()
        if energy != self._last_energy:
            self._last_energy = energy
            self._power.append((now, self.steps, energy))
            self._clocks.append(self.energy.clock())
        waited = now - self._power_started
        return waited > self.power_seconds and (len(self._power) > 2 or waited > 3 * self.power_seconds)

    def _finish_power(self) -> None:
        if len(self._power) < 2:
            return
        first, last = self._power[len(self._power) // 4], self._power[-1]
        steps = last[1] - first[1]
        self.result |= {
            "power_watts": (last[2] - first[2]) / 1000 / (last[0] - first[0]),
            "energy_joules_step": (last[2] - first[2]) / 1000 / max(steps, 1),
            "power_seconds": last[0] - first[0],
            "power_step_seconds": (last[0] - first[0]) / max(steps, 1),
            "sm_clock_mhz": sum(self._clocks) / len(self._clocks),
        }

    # -- kernels ------------------------------------------------------------------------------------------------------

    def _start_profile(self) -> None:
        torch.cuda.synchronize()
        self._profiled = 0
        self._profile = torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA], acc_events=True)
        self._profile.__enter__()

    def _finish_profile(self) -> None:
        self._profile.__exit__(None, None, None)
        totals = {"kernel": 0.0, "h2d": 0.0, "d2h": 0.0, "d2d": 0.0, "memset": 0.0}
        counts = dict.fromkeys(totals, 0)
        by_name: dict[str, list[float]] = {}
        for event in self._profile.profiler.kineto_results.events():
            if event.device_type() != torch.autograd.DeviceType.CUDA:
                continue
            name, seconds = event.name(), event.duration_ns() * 1e-9
            kind = _kind(name)
            totals[kind] += seconds / PROFILED_STEPS
            counts[kind] += 1
            entry = by_name.setdefault(name[:160], [0, 0.0])
            entry[0] += 1
            entry[1] += seconds
        self.result |= {
            "busy_seconds": totals,
            "launches": {kind: count / PROFILED_STEPS for kind, count in counts.items()},
            "kernels": sorted(
                ([n, c / PROFILED_STEPS, s / PROFILED_STEPS] for n, (c, s) in by_name.items()), key=lambda r: -r[2]
            )[:60],
        }


def _kind(name: str) -> str:
    if name.startswith("Memcpy"):
        return {"HtoD": "h2d", "DtoH": "d2h"}.get(name.split()[1], "d2d")
    return "memset" if name.startswith("Memset") else "kernel"


def _feed_from_memory() -> None:
    from torch.utils.data import DataLoader

    original = DataLoader.__iter__
    kept: dict[int, list[Any]] = {}

    def iterate(self: Any) -> Any:
        if id(self) not in kept:
            batches = original(self)
            kept[id(self)] = list(itertools.islice(batches, CACHED_BATCHES))
            del batches
        cached = kept[id(self)]
        try:
            length = len(self)
        except TypeError:
            length = sys.maxsize
        return iter(itertools.islice(itertools.cycle(cached), length)) if cached else iter(())

    DataLoader.__iter__ = iterate  # type: ignore[method-assign]
