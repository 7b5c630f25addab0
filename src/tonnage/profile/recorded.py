"""What a recorder has written into a program's output, read back on the machine that deployed it."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from tonnage.errors import InvalidFile, TonnageError
from tonnage.hardware.catalogue import match_gpu
from tonnage.profile.indicators import Indicators
from tonnage.profile.recorder import PREFIX
from tonnage.store.rows import Environment


@dataclass(frozen=True, slots=True, kw_only=True)
class Recorded:
    """Indicators of a window of steps, and the run as a whole: its first step is left out of both numbers."""

    indicators: Indicators
    machine: Environment
    run_steps: int
    run_seconds: float


def without_records(lines: Iterable[str]) -> Iterator[str]:
    """What the program itself has printed. A record stands on a line of its own, behind one that is empty."""
    empty = False
    for line in lines:
        if _record(line) is not None:
            empty = False
            continue
        if empty:
            yield ""
        empty = line == ""
        if not empty:
            yield line
    if empty:
        yield ""


def find_record(lines: Iterable[str], program: str, program_digest: str) -> Recorded | None:
    """The last one; None where the program made no steps. Raises `InvalidFile`: a program may print anything."""
    record = None
    for line in lines:
        record = _record(line) or record
    if record is None or record["window"] is None:
        return None
    try:
        window, whole = record["window"], record["whole"]
        if "error" in window:
            raise InvalidFile(f"the steps of {program} could not be timed: {str(window['error'])[:200]!r}")
        return Recorded(
            indicators=Indicators.from_dict(_indicators(window, program, program_digest)),
            machine=_machine(window),
            run_steps=int(whole["steps"]),
            run_seconds=float(whole["seconds"]),
        )
    except (ValueError, KeyError, TypeError, AttributeError, ArithmeticError, RecursionError) as error:
        raise InvalidFile(f"the output of {program} holds a record that makes no sense: {error!r:.200}") from None


def _record(line: str) -> dict[str, Any] | None:
    """None for everything that no recorder has written."""
    if not line.startswith(PREFIX):
        return None
    try:
        record = json.loads(line.removeprefix(PREFIX), parse_constant=_refuse)
    except (ValueError, RecursionError):
        return None
    return record if isinstance(record, dict) and record.keys() == {"window", "whole"} else None


def _refuse(constant: str) -> float:
    raise ValueError(f"{constant} is no number")


def _indicators(window: Mapping[str, Any], program: str, program_digest: str) -> dict[str, Any]:
    """By the clock alone: phases are spans, and copies are not told apart from what is idle."""
    means, on_gpu = window["means"], window["device"] == "cuda"
    spans = {phase: means[f"{phase}_span_seconds"] for phase in ("forward", "backward", "optimizer")}
    wait = min(means["loader_seconds"], max(means["step_seconds"] - sum(spans.values()), 0.0))
    return {
        "program": program,
        "program_digest": program_digest,
        "basis": "measured",
        "device": window["device"],
        "gpu": _gpu_name(window) if on_gpu else "",
        "gpu_count": window["gpu_count"] if on_gpu else 0,
        "steps": window["steps"],
        "step_seconds": means["step_seconds"],
        **{f"{phase}_seconds": seconds for phase, seconds in spans.items()},
        **{f"{phase}_span_seconds": seconds for phase, seconds in spans.items()},
        "data_wait_seconds": wait,
        "idle_seconds": max(means["step_seconds"] - sum(spans.values()) - wait, 0.0),
        "peak_host_bytes": window["peak_host_bytes"],
        "peak_gpu_bytes": window["reserved_bytes"] if on_gpu else None,
        "cpu_cores_used": window["cpu_cores_used"],
        "cpu_utilisation": min(window["cpu_cores_used"] / window["cores"], 1.0) if window["cores"] else None,
        "loader_workers": window["loader_workers"],
    }


def _gpu_name(window: Mapping[str, Any]) -> str:
    try:
        known = match_gpu(window["gpu"], window["gpu_memory_bytes"])
    except TonnageError:
        known = None
    return known.name if known else str(window["gpu"])


def _machine(window: Mapping[str, Any]) -> Environment:
    return Environment(
        device=str(window["device"]),
        gpu=_gpu_name(window) if window["device"] == "cuda" else "",
        cuda=str(window.get("cuda", "")),
        torch=str(window["torch"]),
        python=str(window["python"]),
        cpu_cores=window["cores"],
    )
