"""Runs a training program with CUDA events placed by hand around its backward pass, its optimizer and its step.

    python benchmarks/profile/hand_clock.py OUT SECONDS PROGRAM [ARGUMENT ...]

Writes the times of every step to OUT after so many seconds and ends the program. On a machine without a GPU the host's clock
takes the place of the events. It knows nothing of `tonnage profile`, with which it is compared.
"""

import itertools
import json
import os
import runpy
import sys
import time
from pathlib import Path
from typing import Any

import torch
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook


class HandClock:
    def __init__(self, out: Path, seconds: float) -> None:
        self.out, self.seconds = out, seconds
        self.ends: list[Any] = []
        self.spans: list[dict[str, list[tuple[Any, Any]]]] = [{"backward": [], "optimizer": []}]
        self.open: dict[str, Any] = {}
        self.depth = 0
        self.counts: dict[int, int] = {}
        self.deadline = float("inf")

    def install(self) -> None:
        register_optimizer_step_pre_hook(lambda *_: self.begin_optimizer())
        register_optimizer_step_post_hook(lambda optimizer, *_: self.end_optimizer(optimizer))
        original = torch.autograd.backward

        def backward(*args: Any, **kwargs: Any) -> None:
            begin = self.mark()
            original(*args, **kwargs)
            self.spans[-1]["backward"].append((begin, self.mark()))

        torch.autograd.backward = backward

    def mark(self) -> Any:
        if not torch.cuda.is_initialized():
            return time.perf_counter()
        event = torch.cuda.Event(enable_timing=True)
        event.record()
        return event

    def begin_optimizer(self) -> None:
        self.depth += 1
        if self.depth == 1:
            self.open["optimizer"] = self.mark()

    def end_optimizer(self, optimizer: Any) -> None:
        self.depth -= 1
        if self.depth:
            return
        self.spans[-1]["optimizer"].append((self.open["optimizer"], self.mark()))
        before = min(self.counts.values(), default=0)
        self.counts[id(optimizer)] = self.counts.get(id(optimizer), 0) + 1
        if len(self.counts) == 1 or min(self.counts.values()) > before:
            self.end_step()

    def end_step(self) -> None:
        self.ends.append(self.mark())
        self.spans.append({"backward": [], "optimizer": []})
        if len(self.ends) == 1:
            self.deadline = time.perf_counter() + self.seconds
        if time.perf_counter() > self.deadline:
            self.write()
            sys.stdout.flush()
            os._exit(0)

    def write(self) -> None:
        if torch.cuda.is_initialized():
            torch.cuda.synchronize()
        rows = [
            {
                "step_seconds": between(a, b),
                **{
                    f"{name}_seconds": sum(between(*span) for span in spans)
                    for name, spans in self.spans[n + 1].items()
                },
            }
            for n, (a, b) in enumerate(itertools.pairwise(self.ends))
        ]
        self.out.write_text(json.dumps(rows))


def between(begin: Any, end: Any) -> float:
    return end - begin if isinstance(end, float) else begin.elapsed_time(end) / 1000


def main() -> None:
    out, seconds, program, *arguments = sys.argv[1:]
    HandClock(Path(out), float(seconds)).install()
    sys.argv = [program, *arguments]
    sys.path.insert(0, str(Path(program).parent))
    runpy.run_path(program, run_name="__main__")


if __name__ == "__main__":
    main()
