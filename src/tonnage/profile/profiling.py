"""The whole of a profile: start the program, see its window, let it go or stop it, and say what was seen."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path

from tonnage.errors import UsageError
from tonnage.hardware.probe import Nvml
from tonnage.profile import python_stacks
from tonnage.profile.build import report_of_run
from tonnage.profile.interrupts import INTERRUPTED, interrupts_go_to
from tonnage.profile.job import Job, Say, WindowOptions
from tonnage.profile.outputs import copy_trace
from tonnage.profile.report import PYTHON_STACKS, ProfileReport, Stack
from tonnage.program.program import Program


@dataclass(frozen=True, slots=True, kw_only=True)
class ProfileOptions:
    """How to profile. `python_stacks` asks for stacks of Python, by py-spy, in place of those of modules."""

    window: WindowOptions = field(default_factory=WindowOptions)
    keep_running: bool = False
    timeout_seconds: float = 900.0
    python_stacks: bool = False
    trace: Path | None = None  # keep the profiler's own file here


def profile_program(
    program: Program, options: ProfileOptions, say: Say = lambda text: None, nvml: Nvml | None = None
) -> ProfileReport:
    """Raises `ProgramFailed` with the program's exit code, or `CaptureError` if the window was not reached."""
    with Job(program, options.window, keep_running=options.keep_running, hold=options.python_stacks, nvml=nvml) as job:
        job.wait_for_window(options.timeout_seconds, say)
        with interrupts_go_to(job.signal) if options.keep_running else nullcontext() as interrupts:
            report = _report(job, options, say)
            code = job.wait()
    if not options.keep_running:
        return report
    return replace(report, exit_code=INTERRUPTED if interrupts else code)


def _report(job: Job, options: ProfileOptions, say: Say) -> ProfileReport:
    stacks, note = _python_stacks(job, say) if options.python_stacks else ((), "")
    if options.python_stacks and not options.keep_running:
        job.let_go()
    say("reading the profile")
    report = report_of_run(job.program, job.window, job.samples)
    if options.trace is not None:
        note = " ".join(filter(None, (note, _keep_trace(job.window.trace, options.trace))))
    if options.keep_running:
        say("the window is seen; the program runs on")
    if stacks:
        report = replace(report, stacks=tuple(stacks), stacks_are=PYTHON_STACKS)
    return replace(report, notes=(*report.notes, *([note] if note else [])))


def _keep_trace(source: Path, target: Path) -> str:
    """The reason why it could not be kept: what was seen is worth more than the file."""
    try:
        copy_trace(source, target)
    except UsageError as error:
        return error.message
    return ""


def _python_stacks(job: Job, say: Say) -> tuple[Sequence[Stack], str]:
    """Stacks, or the reason why there are none."""
    say("looking at Python's stacks")
    return python_stacks.sample(job.pid, job.folder / "stacks.txt")
