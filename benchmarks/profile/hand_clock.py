"""Runs a training program with CUDA events placed by hand around its forward, its backward pass, its optimizer and its step.

    python benchmarks/profile/hand_clock.py SOCKET PROGRAM [ARGUMENT ...]

After its first step the program obeys whoever listens on the socket: `{"steps": 20, "held": false}` lets it make so many
steps and is answered by their times; it ends when nobody listens any more. It knows nothing of `tonnage profile`, with which it is compared.

Steps that are *held* tell what the GPU needs when the host keeps no kernel waiting: before each span the stream is put to
sleep for as long as the host needs to launch the span, and the events lie behind the sleep. On a machine without a GPU the
host's clock takes the place of the events.
"""

import itertools
import json
import os
import runpy
import socket
import sys
import time
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook

# `between` is what lies behind backward and in front of the optimizer or of the next call, such as clipping.
PHASES = ("forward", "backward", "between", "optimizer")
CORES = 4


class Sleep:
    """Puts the stream to sleep for so many seconds."""

    def __init__(self) -> None:
        self._cycles_second: float | None = None

    def __call__(self, seconds: float) -> None:
        if self._cycles_second is None:
            self._cycles_second = self._calibrate()
        torch.cuda._sleep(int(seconds * self._cycles_second))

    def _calibrate(self) -> float:
        begin, end, cycles = mark(), mark(), 20_000_000
        for _ in range(2):  # the first time pays for loading the kernel
            begin.record()
            torch.cuda._sleep(cycles)
            end.record()
            end.synchronize()
        return cycles / between(begin, end)


class Spans:
    """Where the phases of one step begin and end, on the device and on the host."""

    def __init__(self) -> None:
        self.of: dict[str, list[tuple[Any, Any]]] = {phase: [] for phase in (*PHASES, "h2d")}
        self.host_seconds: list[float] = []  # of each span, in their order


class HandClock:
    def __init__(self, line: Any) -> None:
        self.line = line
        self.left = 1
        self.held = False
        self.sleep = Sleep()
        self.ends: list[Any] = []
        self.steps: list[Spans] = [Spans()]
        self.needed: list[float] = []  # seconds of the host for each span, as last seen
        self.open: tuple[str, Any, float] | None = None
        self.depth = 0
        self.counts: dict[int, int] = {}
        self.roots = Roots(self)

    def install(self) -> None:
        register_optimizer_step_pre_hook(lambda *_: self.begin_optimizer())
        register_optimizer_step_post_hook(lambda optimizer, *_: self.end_optimizer(optimizer))
        original = torch.autograd.backward

        def backward(*args: Any, **kwargs: Any) -> None:
            self.begin("backward")
            original(*args, **kwargs)
            self.begin("between")

        torch.autograd.backward = backward
        for name in ("to", "cuda"):
            self.watch_copies(name)

    def watch_copies(self, name: str) -> None:
        """Events around each tensor that goes to the GPU."""
        original = getattr(torch.Tensor, name)

        def moved(this: torch.Tensor, *args: Any, **kwargs: Any) -> torch.Tensor:
            if this.is_cuda or not torch.cuda.is_initialized():
                return original(this, *args, **kwargs)
            if self.held and self.open is None:
                self.sleep(0.002)  # the copy waits for nobody when its turn comes
            begin = mark()
            made = original(this, *args, **kwargs)
            if made.is_cuda:
                self.steps[-1].of["h2d"].append((begin, mark()))
            return made

        setattr(torch.Tensor, name, moved)

    def begin(self, phase: str) -> None:
        self.end()
        ordinal = len(self.steps[-1].host_seconds)
        if self.held and ordinal < len(self.needed) and torch.cuda.is_initialized():
            self.sleep(self.needed[ordinal] * 1.3 + 0.001)
        self.open = (phase, mark(), time.perf_counter())

    def end(self) -> None:
        if self.open is not None:
            phase, begin, began = self.open
            self.steps[-1].of[phase].append((begin, mark()))
            self.steps[-1].host_seconds.append(time.perf_counter() - began)
            self.open = None

    def begin_optimizer(self) -> None:
        self.depth += 1
        if self.depth == 1:
            self.begin("optimizer")

    def end_optimizer(self, optimizer: Any) -> None:
        self.depth -= 1
        if self.depth:
            return
        self.end()
        before = min(self.counts.values(), default=0)
        self.counts[id(optimizer)] = self.counts.get(id(optimizer), 0) + 1
        if len(self.counts) == 1 or min(self.counts.values()) > before:
            self.end_step()

    def end_step(self) -> None:
        self.ends.append(mark())
        if not self.held:
            self.needed = self.steps[-1].host_seconds
        self.steps.append(Spans())
        self.left -= 1
        if self.left <= 0:
            self.report()

    def report(self) -> None:
        """Answer, and wait for the next order."""
        self.roots.settle()
        if torch.cuda.is_initialized():
            torch.cuda.synchronize()
        rows = [
            {"step_seconds": between(a, b)}
            | {
                f"{phase}_seconds": sum(between(*span) for span in spans.of[phase])
                for phase, spans in itertools.product((*PHASES, "h2d"), [self.steps[n + 1]])
            }
            for n, (a, b) in enumerate(itertools.pairwise(self.ends))
        ]
        self.line.write(json.dumps(rows) + "\n")
        self.line.flush()
        asked = self.line.readline()
        if not asked:
            sys.stdout.flush()
            os._exit(0)
        order = json.loads(asked)
        self.left, self.held = order["steps"], order["held"]
        self.ends, self.steps = [mark()], [Spans(), Spans()]


def mark() -> Any:
    if not torch.cuda.is_initialized():
        return time.perf_counter()
    event = torch.cuda.Event(enable_timing=True)
    event.record()
    return event


def between(begin: Any, end: Any) -> float:
    return end - begin if isinstance(end, float) else begin.elapsed_time(end) / 1000


class Roots:
    """The modules that the loop itself calls: those that no other module calls in the first step. Forward begins with them."""

    def __init__(self, clock: HandClock) -> None:
        self._clock, self._depth = clock, 0
        self._found: dict[int, nn.Module] = {}
        self._hooks = [
            nn.modules.module.register_module_forward_pre_hook(self._enter),
            nn.modules.module.register_module_forward_hook(self._leave, always_call=True),
        ]

    def settle(self) -> None:
        """Hooks on every module would make each call slower."""
        while self._hooks:
            self._hooks.pop().remove()
        while self._found:
            root = self._found.popitem()[1]
            root.register_forward_pre_hook(self._begin)
            root.register_forward_hook(self._end_evaluation)

    def _enter(self, module: nn.Module, *_: Any) -> None:
        self._depth += 1
        if self._depth == 1:
            self._found[id(module)] = module
            self._begin()

    def _leave(self, *_: Any) -> None:
        self._depth -= 1

    def _begin(self, *_: Any) -> None:
        if self._clock.open is None or self._clock.open[0] == "between":
            self._clock.begin("forward")

    def _end_evaluation(self, *_: Any) -> None:
        """No backward follows a call without gradients: what comes next may be the wait for data."""
        if not torch.is_grad_enabled():
            self._clock.end()


def main() -> None:
    path, program, *arguments = sys.argv[1:]
    if hasattr(os, "sched_setaffinity"):
        # Both runs of a program on the same cores: they never work at the same time, and cores differ in speed.
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:CORES])
    connection = socket.socket(socket.AF_UNIX)
    connection.connect(path)
    clock = HandClock(connection.makefile("rw"))
    clock.install()
    sys.argv = [program, *arguments]
    sys.path.insert(0, str(Path(program).parent))
    runpy.run_path(program, run_name="__main__")


if __name__ == "__main__":
    main()
