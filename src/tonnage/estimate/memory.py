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
    Trace behind each entry. Blocks beyond the Trace's own belong to libraries; `library_calls` says to which call, and
    `temporaries` which of them each operator of the Trace frees before it returns, by size.
    """

    trace: Trace
    sizes: list[int]
    order: list[int]
    events: list[int]
    library_calls: list[int]
    temporaries: list[tuple[int, ...]]

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


class Skeleton:
    """What all GPUs share of a Trace's requests: the allocator's own order, and where in it each call happens."""

    def __init__(self, trace: Trace) -> None:
        self.trace = trace
        kinds, subjects = trace.event_kind, trace.event_subject
        asks = (kinds == Event.ALLOCATE) | (kinds == Event.FREE) | (kinds == Event.EMPTY_CACHE)
        order = np.where(kinds == Event.FREE, ~subjects.astype(np.int64), subjects)
        order[kinds == Event.EMPTY_CACHE] = EMPTY_CACHE
        self.order: list[int] = order[asks].tolist()
        self.events: list[int] = np.flatnonzero(asks).tolist()
        calls = np.flatnonzero(kinds == Event.CALL)
        self.call_events: list[int] = calls.tolist()
        self.call_places: list[int] = np.cumsum(asks)[calls].tolist()  # entries of `order` before the call
        self.call_operators: list[int] = trace.call_operator[subjects[calls]].tolist()
        self.call_backward: list[bool] = (trace.call_phase[subjects[calls]] == Phase.BACKWARD).tolist()
        self.sizes: list[int] = trace.block_bytes.tolist()

    def _returned(self, call: int) -> int:
        """How many blocks the call returns: those allocated for it right before it."""
        place = first = self.call_places[call]
        owner = self.trace.event_subject[self.call_events[call]]
        while first and 0 <= (block := self.order[first - 1]) != EMPTY_CACHE and self.trace.block_call[block] == owner:
            first -= 1
        return place - first

    def requests(self, gpu: Gpu) -> Requests:
        """The order of requests on this GPU: around each call its workspaces, before the first product cuBLAS's own."""
        trace = self.trace
        temporaries = [workspace.temporaries(operator, gpu, trace.origin) for operator in trace.operators]
        kept = [_kept(operator, gpu) for operator in trace.operators]
        trials = [_trial(operator, gpu, trace) for operator in trace.operators]
        busy = [bool(t or k or r) for t, k, r in zip(temporaries, kept, trials, strict=True)]
        sizes = list(self.sizes)
        order: list[int] = []
        events: list[int] = []
        library_calls: list[int] = []
        seen: set[tuple[bool, Hashable]] = set()
        done = 0
        for call, operator in enumerate(self.call_operators):
            if not busy[operator]:
                continue
            blocks = [(size, True) for size in temporaries[operator]]
            backward, trial = self.call_backward[call], trials[operator]
            if trial is not None and (backward, trial.key) not in seen:
                seen.add((backward, trial.key))
                blocks.insert(0, (-max(trial.nbytes, 512), True))
            for name, size in reversed(kept[operator]):
                # Autograd works in a thread of its own, which has its own cuBLAS handle.
                if (backward, name) not in seen:
                    seen.add((backward, name))
                    blocks.insert(0, (size, False))
            if not blocks:
                continue
            end = self.call_places[call]
            place = end
            if late := workspace.returned_late(trace.operators[operator]):
                place = max(end - min(late, self._returned(call)), done)
            order += self.order[done:place]
            events += self.events[done:place]
            done = end
            _take(blocks, call, sizes, order, library_calls, self.order[place:end])
            events += [self.call_events[call]] * (len(order) - len(events))
        order += self.order[done:]
        events += self.events[done:]
        return Requests(trace, sizes, order, events, library_calls, temporaries)


def _take(
    blocks: list[tuple[int, bool]],
    call: int,
    sizes: list[int],
    order: list[int],
    library_calls: list[int],
    meanwhile: list[int],
) -> None:
    """Allocate a library's blocks in order, then what the call returns `meanwhile`; free the temporary ones at the end.

    A negative size is a trial, after which torch empties its cache.
    """
    temporary = []
    for size, is_temporary in blocks:
        block = len(sizes)
        sizes.append(abs(size))
        library_calls.append(call)
        order.append(block)
        if size < 0:
            order += (~block, EMPTY_CACHE)
        elif is_temporary:
            temporary.append(~block)
    order += meanwhile
    order += temporary


def collect_requests(trace: Trace, gpu: Gpu) -> Requests:
    """All requests of one Trace on one GPU."""
    return Skeleton(trace).requests(gpu)


def _trial(operator: Operator, gpu: Gpu, trace: Trace) -> Trial | None:
    """With `cudnn.benchmark` the first call of each shape tries all algorithms, after which torch empties its cache."""
    if not trace.origin.cudnn_benchmark or operator.name not in workspace.CONVOLUTIONS:
        return None
    return convolution_trial(operator, gpu, allow_tf32=trace.origin.cudnn_allow_tf32)


def _kept(operator: Operator, gpu: Gpu) -> Sequence[tuple[str, int]]:
    """Workspaces that stay for the rest of the run once an operator has needed them, in the order they are made."""
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
    return gpu.context_bytes + loaded_bytes(trace)


def loaded_bytes(trace: Trace) -> int:
    """What torch and the libraries load on any GPU."""
    names: npt.NDArray[Any] = np.array([operator.name for operator in trace.operators], dtype=object)
    products = np.flatnonzero(np.isin(names, list(workspace.MATRIX_PRODUCTS)))
    multiplies = np.isin(trace.call_operator, products)
    threads = len(np.unique(trace.call_phase[multiplies] == Phase.BACKWARD))
    uses_cudnn = bool(np.isin(names, list(workspace.CUDNN)).any())
    return TORCH_BYTES + CUBLAS_HANDLE_BYTES * threads + CUDNN_BYTES * uses_cudnn
