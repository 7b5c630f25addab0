"""Builds traces as Kineto writes them, for GPUs that are not there. Moments and durations are in microseconds."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

HOST, ENGINE, STREAM = 100, 101, 7
ORIGIN = 5e9  # as in real traces, moments are large


class KinetoTrace:
    """Add what happened; `write` makes the file."""

    def __init__(self) -> None:
        self.events: list[dict[str, Any]] = [{"ph": "M", "name": "process_name", "pid": 1, "args": {"name": "python"}}]
        self._correlation = 0
        self._arrow = 0

    def span(self, category: str, name: str, start: float, duration: float, thread: int = HOST, **args: Any) -> None:
        self.events.append(
            {"ph": "X", "cat": category, "name": name, "pid": 1, "tid": thread, "ts": ORIGIN + start, "dur": duration,
             "args": args}
        )  # fmt: skip

    def mark(self, name: str, start: float, duration: float) -> None:
        self.span("user_annotation", name, start, duration)

    def operator(self, name: str, start: float, duration: float, thread: int = HOST) -> None:
        self.span("cpu_op", name, start, duration, thread)

    def backward(self, name: str, start: float, duration: float) -> None:
        """As the autograd engine does it: a frame of its own around the operator."""
        self.operator(f"autograd::engine::evaluate_function: {name}", start, duration, ENGINE)
        self.operator(name, start + 1, duration - 2, ENGINE)

    def arrow(self, forward_at: float, backward_at: float) -> None:
        self._arrow += 1
        for phase, thread, at in (("s", HOST, forward_at), ("f", ENGINE, backward_at)):
            self.events.append(
                {
                    "ph": phase,
                    "id": self._arrow,
                    "pid": 1,
                    "tid": thread,
                    "ts": ORIGIN + at,
                    "cat": "fwdbwd",
                    "name": "fwdbwd",
                }
            )

    def launch(
        self, name: str, launched: float, start: float, duration: float, thread: int = HOST, **args: Any
    ) -> None:
        """A call of the driver, and what it makes the device do later."""
        self._correlation += 1
        kind = "gpu_memcpy" if name.startswith("Memcpy") else "kernel"
        call = "cudaMemcpyAsync" if kind == "gpu_memcpy" else "cudaLaunchKernel"
        self.span("cuda_runtime", call, launched, 1, thread, correlation=self._correlation)
        self.span(kind, name, start, duration, STREAM, correlation=self._correlation, device=0, stream=STREAM, **args)

    def write(self, path: Path) -> Path:
        text = json.dumps({"schemaVersion": 1, "deviceProperties": [], "traceEvents": self.events}, indent=1)
        path.write_bytes(gzip.compress(text.encode()) if path.suffix == ".gz" else text.encode())
        return path


def training_step(trace: KinetoTrace, number: int) -> None:
    """A step of 1000 us: copy 50, forward 300, backward 400, optimizer 100, a result back 10; the device waits otherwise.

    Of the wait, 80 us are for the data loader.
    """
    at = number * 1000.0
    trace.mark(f"ProfilerStep#{number}", at, 1000)
    trace.mark("enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__", at, 80)
    trace.launch("Memcpy HtoD (Pinned -> Device)", at + 85, at + 100, 50, bytes=1_000_000)
    trace.mark("nn.Module: Net", at + 150, 100)
    trace.mark("nn.Module: Net.body", at + 155, 60)
    trace.operator("aten::addmm", at + 160, 20)
    trace.launch("gemm", at + 165, at + 170, 300)
    trace.backward("AddmmBackward0", at + 280, 40)
    trace.arrow(at + 160, at + 281)
    trace.launch("gemm_backward", at + 290, at + 480, 400, ENGINE)
    trace.mark("Optimizer.step#SGD.step", at + 330, 50)
    trace.operator("aten::_foreach_add_", at + 335, 30)
    trace.launch("foreach", at + 340, at + 880, 100)
    trace.operator("aten::item", at + 400, 595)
    trace.launch("Memcpy DtoH (Device -> Pageable)", at + 405, at + 985, 10, bytes=4)


def training_trace(steps: int = 3) -> KinetoTrace:
    trace = KinetoTrace()
    for number in range(steps):
        training_step(trace, number)
    return trace
