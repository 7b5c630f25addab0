"""Memory of a Trace on a GPU: every request in order, replayed by the simulated caching allocator."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from tonnage.estimate import workspace
from tonnage.estimate.convolution import Trial, convolution_trial
from tonnage.estimate.replay import EMPTY_CACHE, Replay, replay
from tonnage.hardware import Gpu
from tonnage.program.trace import Category, Event, Operator, Phase, Trace
from tonnage.units import MIB

Ints = npt.NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Requests:
    """All requests to the allocator in order: the Trace's own, and those of the libraries on one kind of GPU.

    `order` holds a block's number when it is allocated and its complement when it is freed; `events` the event of the
    Trace behind each entry. Blocks beyond the Trace's own belong to libraries; `library_calls` says to which call.
    """

    trace: Trace
    sizes: list[int]
    order: list[int]
    events: list[int]
    library_calls: list[int]

    def replay(self, capacity_bytes: int | None = None) -> Replay:
        return replay(self.sizes, self.order, capacity_bytes, settings=self.trace.origin.allocator_settings)

    @cached_property
    def without_limit(self) -> Replay:
        return self.replay()

    @cached_property
    def category(self) -> npt.NDArray[np.int8]:
        libraries = np.full(len(self.library_calls), Category.WORKSPACE, dtype=np.int8)
        return np.concatenate((self.trace.block_category, libraries))

    @cached_property
    def bytes_by_category(self) -> Ints:
        """Bytes in use after each request, one column per category."""
        order = np.array(self.order, dtype=np.int64)
        order[order == EMPTY_CACHE] = 0
        block = np.where(order >= 0, order, ~order)
        rounded = (np.array(self.sizes, dtype=np.int64) + 511) // 512 * 512
        change = np.where(order >= 0, rounded[block], -rounded[block])
        change[np.array(self.order) == EMPTY_CACHE] = 0
        table = np.zeros((len(order), len(Category)), dtype=np.int64)
        table[np.arange(len(order)), self.category[block]] = change
        return np.cumsum(table, axis=0)

    def alive_at(self, position: int) -> list[int]:
        """Blocks in use after the request at `position`, largest first."""
        alive: set[int] = set()
        for item in self.order[: position + 1]:
            if item < 0:
                alive.discard(~item)
            elif item != EMPTY_CACHE:
                alive.add(item)
        return sorted(alive, key=lambda block: (-self.sizes[block], block))

    def call_of(self, block: int) -> int:
        """The operator call that a block belongs to."""
        own = len(self.trace.block_bytes)
        return int(self.trace.block_call[block]) if block < own else self.library_calls[block - own]


def collect_requests(trace: Trace, gpu: Gpu) -> Requests:
    """The order of requests on this GPU: around each call its workspaces, before the first product cuBLAS's own."""
    sizes: list[int] = trace.block_bytes.tolist()
    order: list[int] = []
    events: list[int] = []
    library_calls: list[int] = []
    temporaries = [workspace.temporaries(operator, gpu, trace.origin) for operator in trace.operators]
    kept = [_kept(operator, gpu) for operator in trace.operators]
    trials = [_trial(operator, gpu, trace) for operator in trace.operators]
    seen: set[tuple[bool, str]] = set()
    tried: set[tuple[bool, Hashable]] = set()
    operators, phases = trace.call_operator.tolist(), trace.call_phase.tolist()

    def take(size: int, call: int) -> int:
        block = len(sizes)
        sizes.append(size)
        library_calls.append(call)
        order.append(block)
        return block

    for number, (kind, subject) in enumerate(zip(trace.event_kind.tolist(), trace.event_subject.tolist(), strict=True)):
        if kind == Event.ALLOCATE:
            order.append(subject)
        elif kind == Event.FREE:
            order.append(~subject)
        elif kind == Event.CALL:
            operator = operators[subject]
            for name, size in kept[operator]:
                # Autograd works in a thread of its own, which has its own cuBLAS handle.
                key = (phases[subject] == Phase.BACKWARD, name)
                if key not in seen:
                    seen.add(key)
                    take(size, subject)
            trial = trials[operator]
            if trial is not None and (phases[subject] == Phase.BACKWARD, trial.key) not in tried:
                tried.add((phases[subject] == Phase.BACKWARD, trial.key))
                order.extend((~take(max(trial.nbytes, 512), subject), EMPTY_CACHE))
            if temporaries[operator]:
                blocks = [take(size, subject) for size in temporaries[operator]]
                order.extend([~block for block in blocks])
        elif kind == Event.EMPTY_CACHE:
            order.append(EMPTY_CACHE)
        if len(order) > len(events):
            events.extend([number] * (len(order) - len(events)))
    return Requests(trace, sizes, order, events, library_calls)


def _trial(operator: Operator, gpu: Gpu, trace: Trace) -> Trial | None:
    """With `cudnn.benchmark` the first call of each shape tries all algorithms, after which torch empties its cache."""
    if not trace.origin.cudnn_benchmark or operator.name not in workspace.CONVOLUTIONS:
        return None
    return convolution_trial(operator, gpu, allow_tf32=trace.origin.cudnn_allow_tf32)


def _kept(operator: Operator, gpu: Gpu) -> Sequence[tuple[str, int]]:
    """Workspaces that stay for the rest of the run once an operator has needed them."""
    if operator.name not in workspace.MATRIX_PRODUCTS:
        return ()
    kept = [("cuBLAS", workspace.cublas_workspace_bytes(gpu))]
    if workspace.uses_cublas_lt(operator):
        kept.append(("cuBLASLt", workspace.CUBLAS_LT_WORKSPACE_BYTES))
    return kept


# Measured on an H200 (benchmarks/accuracy/results, 2026-11-15): device minus reserved memory at the end of a run is
# 621 MiB when neither library is used, 65 MiB more for each thread with a cuBLAS handle, 17 MiB more once cuDNN has run.
TORCH_BYTES = 94 * MIB
CUBLAS_HANDLE_BYTES = 65 * MIB
CUDNN_BYTES = 17 * MIB


def context_bytes(trace: Trace, gpu: Gpu) -> int:
    """Memory outside the allocator: the CUDA context, torch's own, and what the libraries load."""
    names: npt.NDArray[Any] = np.array([operator.name for operator in trace.operators], dtype=object)
    products = np.flatnonzero(np.isin(names, list(workspace.MATRIX_PRODUCTS)))
    multiplies = np.isin(trace.call_operator, products)
    threads = len(np.unique(trace.call_phase[multiplies] == Phase.BACKWARD))
    uses_cudnn = bool(np.isin(names, list(workspace.CUDNN)).any())
    return gpu.context_bytes + TORCH_BYTES + CUBLAS_HANDLE_BYTES * threads + CUDNN_BYTES * uses_cudnn
