"""Where a request for a configuration has the indicators of a program from: a run, a file, or the Estimate."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from tonnage.configure.work import Known
from tonnage.errors import InvalidFile, NotFound, TonnageError, UsageError
from tonnage.profile.indicators import Indicators
from tonnage.profile.job import WindowOptions
from tonnage.program.digest import program_digest
from tonnage.program.program import Program

_MOST_BYTES = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """Indicators, and what an estimate adds to them."""

    indicators: Indicators
    known: dict[str, Known] = field(default_factory=dict)
    gradient_bytes: int | None = None


def indicators_of(program: Program, window: WindowOptions, say: Callable[[str], None]) -> Found:
    """Of a run of the program under the profiler, for about a minute."""
    from tonnage.profile.profiling import ProfileOptions, profile_program

    say("profiling the program")
    report = profile_program(program, ProfileOptions(window=window), say)
    return Found(indicators=replace(report.indicators, program_digest=program_digest(program)))


def indicators_from_file(path: Path, program: Program) -> Found:
    """As `tonnage profile --json` writes them; raises `InvalidFile`, and `UsageError` for those of another program."""
    indicators = Indicators.from_dict(_read(path))
    digest = program_digest(program)
    if indicators.program_digest not in ("", digest):
        raise UsageError(
            f"the indicators in {path} are of another program than {program.name}, or of an earlier version of it",
            "profile it again",
        )
    return Found(indicators=replace(indicators, program_digest=digest))


def _read(path: Path) -> dict[str, object]:
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        raise NotFound(f"there is no file {path}") from None
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}") from None
    try:
        plain = json.loads(content) if len(content) <= _MOST_BYTES else None
    except (ValueError, RecursionError):
        plain = None
    if isinstance(plain, dict) and isinstance(plain.get("indicators"), dict):
        plain = plain["indicators"]
    if not isinstance(plain, dict):
        raise InvalidFile(f"{path} holds no indicators", "tonnage profile --json writes them")
    return plain


def with_estimates(
    found: Found, program: Program, gpus: Sequence[str], say: Callable[[str], None]
) -> tuple[Found, str]:
    """What the program would take on the server's GPUs, beside what it took here; or why that cannot be told.

    Indicators say nothing about another GPU. A program that does nothing on a GPU has nothing to send.
    """
    names = _in_catalogue(gpus)
    if not names:
        return found, ""
    say("estimating it on the server's GPUs")
    try:
        estimated = predicted(program, names[0], names, say)
    except TonnageError as error:
        if found.indicators.device == "cpu":
            return found, ""  # it may have nothing to do with GPUs
        return found, f"no estimates were sent, so other GPUs go by their rates alone: {error.message}"
    return replace(found, known=estimated.known, gradient_bytes=estimated.gradient_bytes), ""


def predicted(program: Program, gpu: str, others: Sequence[str], say: Callable[[str], None]) -> Found:
    """From the Estimate: the program runs on the virtual GPU only."""
    from tonnage.api import estimate
    from tonnage.configure.predicted import gradient_bytes_of, indicators_of_report, known_of
    from tonnage.hardware import find_gpu

    chosen = find_gpu(gpu).name
    target = f"{program.target}:{program.function}" if program.function else program.target
    gpus = list(dict.fromkeys((chosen, *_in_catalogue(others))))
    report = estimate(target, arguments=program.arguments, gpus=gpus, progress=say)
    return Found(
        indicators=indicators_of_report(report, chosen, program_digest(program)),
        known=known_of(report),
        gradient_bytes=gradient_bytes_of(report),
    )


def _in_catalogue(names: Sequence[str]) -> list[str]:
    """A server may know GPUs that this catalogue does not."""
    from tonnage.hardware import all_gpus

    known = {gpu.name for gpu in all_gpus()}
    return [name for name in names if name in known]
