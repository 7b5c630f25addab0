"""`tonnage.profile`: of a program that runs here, of a trace that exists, or predicted where no run is possible."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from tonnage import __version__
from tonnage.errors import DoesNotFit, UsageError
from tonnage.profile.hints import hint_for
from tonnage.profile.job import WindowOptions
from tonnage.profile.report import ProfileReport
from tonnage.program.program import Program, parse_program
from tonnage.store.rows import Environment

_TRACES = (".json", ".json.gz")


def profile(
    program: str | Path,
    *,
    arguments: Sequence[str] = (),
    warmup: int = 3,
    steps: int = 5,
    keep_running: bool = False,
    python_stacks: bool = False,
    trace: str | Path | None = None,
    predict_on: str = "",
    timeout_seconds: float = 900.0,
    progress: Callable[[str], None] = lambda text: None,
) -> ProfileReport:
    """Where the time of a program's steps goes.

    `program` is a script, `module:function` or a trace of Kineto or Chrome (.json, .json.gz). The program really runs,
    here, and is stopped once the window is seen, unless `keep_running`. With `predict_on`, the name of a GPU, nothing
    runs: the indicators are those of an estimate. `trace` keeps the profiler's own file.
    """
    if is_trace(str(program)):
        from tonnage.profile.build import report_of_trace

        if arguments or predict_on or keep_running:
            raise UsageError(f"{program} is a trace: it takes no arguments and runs nowhere")
        progress("reading the trace")
        return report_of_trace(Path(program))
    parsed = parse_program(str(program), tuple(arguments))
    if predict_on:
        return _predict(parsed, predict_on, steps, timeout_seconds, progress)
    from tonnage.profile.profiling import ProfileOptions, profile_program

    options = ProfileOptions(
        window=WindowOptions(warmup=warmup, steps=steps), keep_running=keep_running, python_stacks=python_stacks,
        timeout_seconds=timeout_seconds, trace=None if trace is None else Path(trace),
    )  # fmt: skip
    return profile_program(parsed, options, progress)


def is_trace(program: str) -> bool:
    return program.lower().endswith(_TRACES)


def _predict(
    program: Program, gpu_name: str, steps: int, timeout_seconds: float, progress: Callable[[str], None]
) -> ProfileReport:
    from tonnage.benchmark.time_models import current_model
    from tonnage.estimate.estimator import estimate_trace
    from tonnage.hardware import find_gpu
    from tonnage.profile.predict import pinned_share_of, predicted_indicators
    from tonnage.program.capture import CaptureOptions, capture
    from tonnage.program.digest import program_digest

    gpu = find_gpu(gpu_name)
    progress("following the program on a virtual GPU")
    trace = capture(program, CaptureOptions(steps=steps + 1, gpu=gpu.name, timeout_seconds=timeout_seconds))
    estimate = estimate_trace(trace, [gpu], curve=False, time_model=current_model()).estimates[0]
    if not estimate.fits:
        raise DoesNotFit(f"{program.target} does not fit on {gpu.name}", f"see tonnage estimate {program.target}")
    digest = program_digest(program) if program.kind in ("script", "function") else ""
    indicators = predicted_indicators(
        estimate, program=trace.origin.program, program_digest=digest, steps=trace.origin.steps,
        pinned_share=pinned_share_of(trace),
    )  # fmt: skip
    return ProfileReport(
        indicators=indicators,
        machine=Environment(device="cuda", gpu=gpu.name, torch=trace.origin.torch_version, tonnage=__version__),
        hint=hint_for(indicators),
        notes=("predicted, not measured: nothing ran, and what waits for data is not known", *trace.origin.warnings),
    )
