"""The public verbs behind CLI, notebook and service."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from tonnage.benchmark.time_models import current_model
from tonnage.errors import CaptureError, UsageError
from tonnage.estimate.batches import BatchSearch
from tonnage.estimate.estimate import Report
from tonnage.estimate.estimator import estimate_trace
from tonnage.hardware import Gpu, all_gpus, find_gpu
from tonnage.program.capture import MOST_BATCH, CaptureOptions, capture
from tonnage.program.interpolate import Family
from tonnage.program.program import Program, parse_program
from tonnage.program.trace import Trace
from tonnage.program.trace_file import write_trace

Progress = Callable[[str], None]


def estimate(
    program: str | Path | Trace,
    *,
    arguments: Sequence[str] = (),
    gpus: Sequence[str | Gpu] = (),
    steps: int = 3,
    batches: Sequence[int] = (),
    find_max_batch: bool = False,
    batch_option: str = "",
    sizes: Mapping[str, int] | None = None,
    epoch_steps: int = 0,
    save_trace: str | Path | None = None,
    timeout_seconds: float = 900.0,
    progress: Progress = lambda text: None,
) -> Report:
    """What a program needs on each GPU (all of the catalogue by default).

    `program` is what you would type after `tonnage estimate`: a script, `module:function`, an ONNX file or a trace.
    `epoch_steps` is the number of steps in an epoch, where the program's own data loader does not say it.
    With `batches` the report's `sweep` holds one report for each; with `find_max_batch` each estimate has `max_batch`.
    """
    chosen = [gpu if isinstance(gpu, Gpu) else find_gpu(gpu) for gpu in gpus] or list(all_gpus())
    for batch in batches:
        if not 1 <= batch <= MOST_BATCH:
            raise UsageError(f"a batch of {batch} is impossible", f"choose one from 1 to {MOST_BATCH:,}")
    options = CaptureOptions(
        steps=steps + 1, batch_option=batch_option, sizes=sizes, timeout_seconds=timeout_seconds,
        gpu=chosen[0].name if len(chosen) == 1 else "H200",
    )  # fmt: skip
    if isinstance(program, Trace):
        if batches or find_max_batch:
            raise UsageError("a trace has one batch size; name the program itself to try others")
        return estimate_trace(program, chosen, time_model=current_model(), epoch_steps=epoch_steps)
    parsed = parse_program(str(program), tuple(arguments))
    if parsed.kind == "onnx" and batches:
        options = replace(options, batch=batches[0])  # an ONNX file may leave its batch open
    progress("following the program on a virtual GPU")
    trace = capture(parsed, options)
    if save_trace is not None:
        write_trace(trace, save_trace)
    progress("replaying its step on each GPU")
    model = current_model()
    report = estimate_trace(trace, chosen, time_model=model, epoch_steps=epoch_steps)
    if not batches and not find_max_batch:
        return report
    trace_at = _at_any_batch(parsed, trace, options, progress)
    if batches:
        progress("replaying other batches")
        at_batches = (estimate_trace(trace_at(b), chosen, curve=False, time_model=model) for b in batches)
        report = replace(report, sweep=tuple(at_batches))
    return _with_max_batch(report, trace_at, chosen, progress) if find_max_batch else report


def _with_max_batch(report: Report, trace_at: Callable[[int], Trace], gpus: list[Gpu], progress: Progress) -> Report:
    search = BatchSearch(trace_at)
    estimates = []
    for done, (estimate, gpu) in enumerate(zip(report.estimates, gpus, strict=True)):
        progress(f"largest batch: {done} of {len(gpus)} GPUs")
        estimates.append(replace(estimate, max_batch=search.largest(gpu)))
    return replace(report, estimates=tuple(estimates))


def _at_any_batch(
    program: Program, trace: Trace, options: CaptureOptions, progress: Progress
) -> Callable[[int], Trace]:
    """The Trace at any batch: by interpolation where two captures and a third that checks them allow it."""
    base = trace.origin.batch
    if program.kind == "trace":
        raise UsageError("a trace has one batch size", "name the program itself to try others")
    if base is None:
        raise UsageError(
            f"where {program.target} keeps its batch size was not found",
            "name its option or constant with --batch-arg NAME",
        )

    def captured(batch: int) -> Trace:
        progress(f"following the program at a batch of {batch}")
        again = capture(program, replace(options, batch=batch))
        if again.origin.batch != batch:
            raise CaptureError(f"the batch size of {program.target} could not be changed to {batch}")
        return again

    for other, third in ((2 * base, 3 * base), (max(base // 2, 1), base + max(base // 2, 1))):
        family = Family.span(trace, captured(other)) if other != base else None
        if family is not None and family.agrees_with(captured(third)):
            return family.at
    return captured  # the program does something else at other batches: each is captured by itself
