"""Memory of a Trace on a GPU: every request in order, replayed by the simulated caching allocator."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from tonnage.estimate import workspace
from tonnage.estimate.replay import EMPTY_CACHE, Replay, replay
from tonnage.hardware import Gpu
from tonnage.program.trace import Category, Event, Phase, Trace


@dataclass(frozen=True, eq=False)
class Requests:
    """All requests to the allocator in order: the Trace's own, and those of the libraries on one kind of GPU."""

    trace: Trace
    sizes: list[int]
    order: list[int]
    position_to_event: list[int]
    library_blocks: dict[int, str]  # block -> what it is: "cuBLAS", or the operator that needs a workspace

    def replay(self, capacity_bytes: int | None = None, curve: bool = False) -> Replay:
        return replay(
            self.sizes, self.order, capacity_bytes, settings=self.trace.origin.allocator_settings, curve=curve
        )

    @cached_property
    def without_limit(self) -> Replay:
        return self.replay(curve=True)

    def alive_at(self, position: int) -> list[int]:
        """Blocks in use after the request at `position`."""
        alive: set[int] = set()
        for item in self.order[: position + 1]:
            if item == EMPTY_CACHE:
                continue
            if item >= 0:
                alive.add(item)
            else:
                alive.discard(~item)
        return sorted(alive)

    def category(self, block: int) -> Category:
        if block in self.library_blocks:
            return Category.WORKSPACE
        return Category(int(self.trace.block_category[block]))

    def categories_at(self, position: int) -> dict[str, int]:
        totals = dict.fromkeys((c.label for c in Category), 0)
        for block in self.alive_at(position):
            totals[self.category(block).label] += _rounded(self.sizes[block])
        return totals


def _rounded(size: int) -> int:
    return -(-size // 512) * 512


def collect_requests(trace: Trace, gpu: Gpu) -> Requests:
    """The order of requests on this GPU: around each call its workspaces, before the first product cuBLAS's own."""
    sizes: list[int] = trace.block_bytes.tolist()
    order: list[int] = []
    events: list[int] = []
    libraries: dict[int, str] = {}
    temporaries = [workspace.temporaries(operator, gpu, trace.origin) for operator in trace.operators]
    kept = [_kept(operator, gpu) for operator in trace.operators]
    seen: set[tuple[bool, str]] = set()
    operators, phases = trace.call_operator.tolist(), trace.call_phase.tolist()
    kinds, subjects = trace.event_kind.tolist(), trace.event_subject.tolist()

    def take(size: int, name: str) -> int:
        block = len(sizes)
        sizes.append(size)
        libraries[block] = name
        order.append(block)
        return block

    for number, (kind, subject) in enumerate(zip(kinds, subjects, strict=True)):
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
                    take(size, name)
            blocks = [take(size, trace.operators[operator].name) for size in temporaries[operator]]
            order.extend(~block for block in blocks)
        elif kind == Event.EMPTY_CACHE:
            order.append(EMPTY_CACHE)
        events.extend([number] * (len(order) - len(events)))
    return Requests(trace, sizes, order, events, libraries)


def _kept(operator: workspace.Operator, gpu: Gpu) -> Sequence[tuple[str, int]]:
    """Workspaces that stay for the rest of the run once an operator has needed them."""
    if operator.name not in workspace.MATRIX_PRODUCTS:
        return ()
    kept = [("cuBLAS", workspace.cublas_workspace_bytes(gpu))]
    if workspace.uses_cublas_lt(operator):
        kept.append(("cuBLASLt", workspace.CUBLAS_LT_WORKSPACE_BYTES))
    return kept


def context_bytes(trace: Trace, gpu: Gpu) -> int:
    """Memory outside the allocator: the CUDA context, torch's own, and what the libraries load."""
    names = np.array([operator.name for operator in trace.operators], dtype=object)
    called: npt.NDArray[np.object_] = names[trace.call_operator] if len(names) else names
    products = np.isin(called, list(workspace.MATRIX_PRODUCTS))
    threads = {bool(p) for p in (trace.call_phase[products] == Phase.BACKWARD)}
    total = gpu.context_bytes + TORCH_BYTES + CUBLAS_HANDLE_BYTES * len(threads)
    if bool(np.isin(called, list(workspace.CUDNN)).any()):
        total += CUDNN_BYTES
    return total


# Measured on an H200 (benchmarks/accuracy, 2026-11-15): device minus reserved memory at the end of a run is 621 MiB when
# neither library is used, 66 MiB more for each thread with a cuBLAS handle, 16 MiB more once cuDNN has run.
TORCH_BYTES = 94 << 20
CUBLAS_HANDLE_BYTES = 65 << 20
CUDNN_BYTES = 17 << 20
