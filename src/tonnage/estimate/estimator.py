"""Trace and GPUs in, Report out. Everything here is pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise, repeat

import numpy as np

from tonnage.estimate import intervals, workspace
from tonnage.estimate.estimate import Estimate, MemoryCurve, OutOfMemoryMoment, PeakTensor, Report, TimeEstimate
from tonnage.estimate.memory import Requests, Skeleton, loaded_bytes
from tonnage.estimate.parallel import ParallelOptions
from tonnage.estimate.replay import Replay
from tonnage.estimate.several import SeveralGpus
from tonnage.estimate.step import last_step, steady_steps
from tonnage.estimate.step_time import StepTimer, time_step
from tonnage.estimate.step_view import StepView, view_step
from tonnage.estimate.time_estimate import estimate_times
from tonnage.estimate.time_model import TimeModel
from tonnage.hardware import Gpu
from tonnage.program.trace import D2H, H2D, Category, Event, Operator, Phase, Trace

MOST_TENSORS = 30
MOST_POINTS = 600
# GPUs on which the workspaces and the context were measured, not derived.
CALIBRATED = {"H200"}


class Estimator:
    """Evaluates one Trace; what GPUs of one architecture share is computed once."""

    def __init__(self, trace: Trace, time_model: TimeModel | None = None, epoch_steps: int = 0) -> None:
        self.trace = trace
        self.time_model = time_model
        self.epoch_steps = epoch_steps or trace.origin.epoch_steps
        self._timer = None if time_model is None else StepTimer(steady_steps(trace), time_model)
        self._skeleton = Skeleton(trace)
        self._requests: dict[str, Requests] = {}
        self._tensors: dict[str, tuple[PeakTensor, ...]] = {}
        self._doubts: dict[str, int] = {}
        self._loaded_bytes = loaded_bytes(trace)
        self._copies = trace.bytes_per_step(H2D), trace.bytes_per_step(D2H)

    def requests(self, gpu: Gpu) -> Requests:
        key = workspace.family(gpu)
        if key not in self._requests:
            self._requests[key] = self._skeleton.requests(workspace.typical(gpu))
        return self._requests[key]

    def estimate(self, gpu: Gpu) -> Estimate:
        return next(self.estimates([gpu]))

    def estimates(self, gpus: Sequence[Gpu]) -> Iterator[Estimate]:
        """One for each GPU."""
        for gpu, time in zip(gpus, self._times(gpus), strict=True):
            yield self._estimate(gpu, time)

    def _estimate(self, gpu: Gpu, time: TimeEstimate | None) -> Estimate:
        requests = self.requests(gpu)
        context = gpu.context_bytes + self._loaded_bytes
        result = self._replay(requests, gpu.usable_bytes - context)
        widen = 1.0 if gpu.name in CALIBRATED else 2.0
        doubt = self._doubt(gpu)
        fits = result.out_of_memory_at is None
        # What would be needed is known even where it does not fit.
        needed = result if fits else requests.without_limit
        return Estimate(
            gpu=gpu.name,
            fits=fits,
            basis="calibrated" if gpu.name in CALIBRATED else "specification",
            peak_allocated_bytes=intervals.allocated(needed.peak_allocated_bytes, doubt, widen),
            peak_reserved_bytes=intervals.reserved(needed.peak_reserved_bytes, doubt, widen),
            device_bytes=intervals.device(needed.peak_reserved_bytes + context, doubt, widen),
            usable_bytes=gpu.usable_bytes,
            categories=self._categories(requests, needed, context),
            largest=self._largest(workspace.family(gpu), requests, needed),
            storage_bytes=self.trace.origin.storage_bytes,
            h2d_bytes_step=self._copies[0],
            d2h_bytes_step=self._copies[1],
            coverage=intervals.COVERAGE,
            out_of_memory=None if fits else _moment(requests, result),
            time=time,
        )

    def several(self, gpus: Sequence[Gpu], counts: Sequence[int], options: ParallelOptions) -> Iterator[Estimate]:
        """For each GPU, one estimate for each number of them; every one has the batch that a single one has."""
        shared = SeveralGpus(self.trace, self.time_model or TimeModel(), options)
        for gpu, single in zip(gpus, self.estimates(gpus), strict=True):
            for count in counts:
                memory = self.requests(gpu).bytes_by_category if count > 1 else np.zeros((0, 0), np.int64)
                yield single if count == 1 else shared.estimate(single, gpu, count, memory)

    def _times(self, gpus: Sequence[Gpu]) -> Iterator[TimeEstimate | None]:
        if self._timer is None:
            return repeat(None, len(gpus))
        return estimate_times(self._timer, gpus, epoch_steps=self.epoch_steps)

    def step_view(self, gpu: Gpu) -> StepView | None:
        """The step on one GPU, to look at."""
        if self.time_model is None:
            return None
        step = last_step(self.trace)
        return view_step(step, time_step(step, gpu, self.time_model), self.trace.modules, gpu.name)

    def _doubt(self, gpu: Gpu) -> int:
        key = workspace.family(gpu)
        if key not in self._doubts:
            self._doubts[key] = _doubtful_bytes(self.requests(gpu))
        return self._doubts[key]

    def fits(self, gpu: Gpu) -> bool:
        requests = self.requests(gpu)
        capacity = gpu.usable_bytes - gpu.context_bytes - self._loaded_bytes
        return self._replay(requests, capacity).out_of_memory_at is None

    def _replay(self, requests: Requests, capacity_bytes: int) -> Replay:
        free = requests.without_limit
        return free if free.peak_reserved_bytes <= capacity_bytes else requests.replay(max(capacity_bytes, 0))

    def _categories(self, requests: Requests, replay: Replay, context: int) -> dict[str, int]:
        at = replay.peak_allocated_at
        row = requests.bytes_by_category[at] if at >= 0 else np.zeros(len(Category), dtype=np.int64)
        return {category.label: int(row[category]) for category in Category} | {Category.CONTEXT.label: context}

    def _largest(self, key: str, requests: Requests, replay: Replay) -> tuple[PeakTensor, ...]:
        if key not in self._tensors:
            alive = requests.alive_at(replay.peak_allocated_at)[:MOST_TENSORS]
            self._tensors[key] = tuple(_describe(requests, block) for block in alive)
        return self._tensors[key]

    def curve(self, gpu: Gpu) -> MemoryCurve | None:
        """Memory over the run on one GPU, thinned out to a few hundred points that keep every local peak."""
        requests = self.requests(gpu)
        table, peak = requests.bytes_by_category, requests.without_limit.peak_allocated_at
        if peak < 0:
            return None
        points = _thin_out(table.sum(axis=1), peak)
        events = np.array(requests.events)[points]
        calls = np.searchsorted(np.flatnonzero(self.trace.event_kind == Event.CALL), events)
        known = self.trace.call_phase if len(self.trace.call_phase) else np.array([Phase.SETUP])
        phases = known[np.minimum(calls, len(known) - 1)]
        ends = np.flatnonzero(self.trace.event_kind == Event.STEP)
        return MemoryCurve(
            gpu=gpu.name,
            categories={c.label: tuple(table[points, c].tolist()) for c in Category if table[:, c].any()},
            phases=tuple(Phase(int(p)).name.lower() for p in phases),
            step_ends=tuple(np.minimum(np.searchsorted(events, ends), len(points) - 1).tolist()),
            peak=int(np.searchsorted(points, peak)),
        )


def estimate_trace(
    trace: Trace,
    gpus: Sequence[Gpu],
    *,
    curve: bool = True,
    time_model: TimeModel | None = None,
    epoch_steps: int = 0,
    counts: Sequence[int] = (1,),
    parallel: ParallelOptions | None = None,
) -> Report:
    """The report on a program for some GPUs; without a time model it is about memory alone. `curve` is whether
    it holds what charts need: memory over time and the time-line of a step, for one of the GPUs."""
    estimator = Estimator(trace, time_model, epoch_steps)
    shown = _most_telling(gpus) if curve and gpus else None
    origin = trace.origin
    return Report(
        program=origin.program,
        mode=origin.mode,
        steps_traced=origin.steps,
        batch=origin.batch,
        parameter_count=origin.parameter_count,
        epoch_steps=estimator.epoch_steps,
        estimates=tuple(estimator.several(gpus, counts, parallel or ParallelOptions())),
        curve=estimator.curve(shown) if shown else None,
        step=estimator.step_view(shown) if shown else None,
        warnings=origin.warnings,
        details={"torch_version": origin.torch_version, "kind": origin.kind},
    )


def _most_telling(gpus: Sequence[Gpu]) -> Gpu:
    return next((gpu for gpu in gpus if gpu.name in CALIBRATED), gpus[0])


def _doubtful_bytes(requests: Requests) -> int:
    """The largest workspace that cuDNN takes: its size is cuDNN's choice, which is only modelled."""
    modelled = (*workspace.CONVOLUTIONS, "aten::_cudnn_rnn", "aten::_cudnn_rnn_backward")
    operators = zip(requests.trace.operators, requests.temporaries, strict=True)
    return max((sum(sizes) for operator, sizes in operators if operator.name in modelled), default=0)


def _describe(requests: Requests, block: int) -> PeakTensor:
    trace, call = requests.trace, requests.call_of(block)
    operator = trace.operators[trace.call_operator[call]] if call < len(trace.call_operator) else Operator("", (), ())
    own = block < len(trace.block_bytes)
    size = requests.sizes[block]
    spec = next((s for s in (*operator.outputs, *operator.inputs) if s is not None and s.nbytes == size), None)
    module = trace.block_module[block] if own else trace.call_module[call]
    return PeakTensor(
        bytes=size,
        category=Category(int(requests.category[block])).label,
        module=trace.modules[module],
        operator=operator.name,
        shape=spec.shape if own and spec else (),
        dtype=spec.dtype if own and spec else "",
    )


def _moment(requests: Requests, replay: Replay) -> OutOfMemoryMoment:
    trace, position = requests.trace, replay.out_of_memory_at or 0
    event = requests.events[position]
    call = min(requests.call_of(max(requests.order[position], 0)), len(trace.call_operator) - 1)
    is_known = call >= 0  # a trace may have no calls at all
    return OutOfMemoryMoment(
        step=int(np.count_nonzero(trace.event_kind[:event] == Event.STEP)) + 1,
        phase=Phase(int(trace.call_phase[call]) if is_known else Phase.SETUP).name.lower(),
        operator=trace.operators[trace.call_operator[call]].name if is_known else "",
        module=trace.modules[trace.call_module[call]] if is_known else "",
        requested_bytes=replay.out_of_memory_request_bytes or 0,
        allocated_bytes=replay.allocated_bytes,
        reserved_bytes=replay.reserved_bytes,
    )


def _thin_out(
    total: np.ndarray[tuple[int], np.dtype[np.int64]], peak: int
) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """Of each stretch of requests, the one with the most memory in use."""
    count = len(total)
    if count <= MOST_POINTS:
        return np.arange(count)
    edges = np.linspace(0, count, MOST_POINTS // 2 + 1).astype(int)
    stretches = [(low, high) for low, high in pairwise(edges.tolist()) if high > low]
    highest = [low + int(np.argmax(total[low:high])) for low, high in stretches]
    lowest = [low + int(np.argmin(total[low:high])) for low, high in stretches]
    return np.unique(np.array([*highest, *lowest, peak]))
