"""The public verbs behind CLI, notebook and service."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from math import inf
from pathlib import Path

from tonnage.benchmark.time_models import current_model
from tonnage.errors import CaptureError, UsageError
from tonnage.estimate.batches import BatchSearch
from tonnage.estimate.estimate import Report
from tonnage.estimate.estimator import estimate_trace
from tonnage.estimate.parallel import ParallelOptions, Sharding
from tonnage.estimate.recommend import Limits, Recommendation
from tonnage.estimate.recommend import recommend as choose
from tonnage.hardware import Gpu, all_gpus, find_gpu
from tonnage.profile.verb import profile
from tonnage.program.capture import MOST_BATCH, CaptureOptions, capture
from tonnage.program.interpolate import Family
from tonnage.program.program import Program, parse_program
from tonnage.program.trace import Trace
from tonnage.program.trace_file import write_trace

__all__ = ["estimate", "profile", "recommend"]

Progress = Callable[[str], None]
MOST_GPUS = 4096


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
    counts: Sequence[int] = (1,),
    shard: str = "ddp",
    samples: int = 0,
    epoch_steps: int = 0,
    save_trace: str | Path | None = None,
    timeout_seconds: float = 900.0,
    progress: Progress = lambda text: None,
) -> Report:
    """What a program needs on each GPU (all of the catalogue by default).

    `program` is what you would type after `tonnage estimate`: a script, `module:function`, an ONNX file or a trace.
    `counts` are numbers of GPUs of a kind, `shard` is how they share the work: ddp, zero1, zero2 or zero3. An epoch has
    `samples` or `epoch_steps`, else what the program's own data loader says.
    With `batches` the report's `sweep` holds one report for each; with `find_max_batch` each estimate has `max_batch`.
    """
    chosen = [gpu if isinstance(gpu, Gpu) else find_gpu(gpu) for gpu in gpus] or list(all_gpus())
    counts = tuple(dict.fromkeys(counts))
    for count in counts:
        if not 1 <= count <= MOST_GPUS:
            raise UsageError(f"{count} GPUs are impossible", f"choose a number from 1 to {MOST_GPUS:,}")
    parallel = ParallelOptions(sharding=_sharding(shard))
    for batch in batches:
        if not 1 <= batch <= MOST_BATCH:
            raise UsageError(f"a batch of {batch} is impossible", f"choose one from 1 to {MOST_BATCH:,}")
    options = CaptureOptions(
        steps=steps + 1, batch_option=batch_option, sizes=sizes, timeout_seconds=timeout_seconds,
        gpu=chosen[0].name if len(chosen) == 1 else "H200",
    )  # fmt: skip
    model = current_model()

    def evaluate(trace: Trace, curve: bool = True) -> Report:
        steps = epoch_steps or _steps_of(samples, trace)
        return estimate_trace(
            trace, chosen, curve=curve, time_model=model, epoch_steps=steps, counts=counts, parallel=parallel
        )

    if isinstance(program, Trace):
        if batches or find_max_batch:
            raise UsageError("a trace has one batch size; name the program itself to try others")
        return evaluate(program)
    parsed = parse_program(str(program), tuple(arguments))
    if parsed.kind in ("onnx", "caffe") and batches:
        options = replace(options, batch=batches[0])  # a file may leave its batch open
    progress("following the program on a virtual GPU")
    trace = capture(parsed, options)
    if save_trace is not None:
        write_trace(trace, save_trace)
    progress("replaying its step on each GPU")
    report = evaluate(trace)
    if not batches and not find_max_batch:
        return report
    trace_at = _at_any_batch(parsed, trace, options, progress)
    if batches:
        progress("replaying other batches")
        report = replace(report, sweep=tuple(evaluate(trace_at(b), curve=False) for b in batches))
    return _with_max_batch(report, trace_at, chosen, progress) if find_max_batch else report


def _steps_of(samples: int, trace: Trace) -> int:
    """Steps in which so many samples pass; 0 if nobody asks."""
    if samples and not trace.origin.batch:
        raise UsageError(
            f"how many steps {samples:,} samples take is not known: the batch size of {trace.origin.program} was not found",
            "name its option or constant with --batch-arg NAME",
        )
    return -(-samples // trace.origin.batch) if samples and trace.origin.batch else 0


def _sharding(name: str) -> Sharding:
    try:
        return Sharding(name)
    except ValueError:
        raise UsageError(f"no way to share the work is called {name}", f"choose one of {', '.join(Sharding)}") from None


def _with_max_batch(report: Report, trace_at: Callable[[int], Trace], gpus: list[Gpu], progress: Progress) -> Report:
    search = BatchSearch(trace_at)
    estimates = []
    by_name = {gpu.name: gpu for gpu in gpus}
    for done, estimate in enumerate(report.estimates):
        progress(f"largest batch: {done} of {len(report.estimates)} GPUs")
        largest = search.largest(by_name[estimate.gpu]) if estimate.gpu_count == 1 else None
        estimates.append(replace(estimate, max_batch=largest))
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


def recommend(
    program: str | Path | Trace,
    *,
    deadline_seconds: float | None = None,
    most_gpus: int = 1,
    most_usd: float | None = None,
    most_kilowatt_hours: float | None = None,
    total_steps: int = 0,
    epochs: float = 1.0,
    samples: int = 0,
    arguments: Sequence[str] = (),
    gpus: Sequence[str | Gpu] = (),
    shard: str = "ddp",
    progress: Progress = lambda text: None,
) -> Recommendation:
    """The smallest configuration whose bounds keep the promise. Raises `DoesNotFit` if none does.

    The run is `total_steps` steps of one GPU, or `epochs` epochs, whose length is known from the program's data loader or
    from `samples`.
    """
    for words, limit in (
        ("a deadline of {:g} seconds", deadline_seconds), ("a budget of {:g} US dollars", most_usd),
        ("a limit of {:g} kilowatt-hours", most_kilowatt_hours), ("a run of {:g} epochs", epochs),
    ):  # fmt: skip
        if limit is not None and not 0 < limit < inf:
            raise UsageError(f"{words.format(limit)} is impossible", "give a number greater than 0")
    if not 1 <= most_gpus <= MOST_GPUS:
        raise UsageError(f"{most_gpus} GPUs are impossible", f"choose a number from 1 to {MOST_GPUS:,}")
    counts = [count for count in (*(2**power for power in range(13)), most_gpus) if count <= most_gpus]
    report = estimate(
        program,
        arguments=arguments,
        gpus=gpus,
        counts=sorted(set(counts)),
        shard=shard,
        samples=samples,
        progress=progress,
    )
    steps = total_steps or epochs * (report.epoch_steps or 0)
    if not steps:
        raise UsageError(
            f"how many steps {report.program} takes is not known",
            "give --steps N, or --samples N (of an epoch) with --epochs E",
        )
    limits = Limits(
        steps=steps,
        deadline_seconds=deadline_seconds,
        most_gpus=most_gpus,
        most_usd=most_usd,
        most_joules=None if most_kilowatt_hours is None else most_kilowatt_hours * 3.6e6,
    )
    return replace(choose(report.estimates, limits), program=report.program, warnings=report.warnings)
