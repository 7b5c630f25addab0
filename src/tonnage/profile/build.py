"""From what was seen of a run, or stands in a trace, to a ProfileReport."""

from __future__ import annotations

import os
import platform
import sys
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean, pstdev

from tonnage import __version__
from tonnage.hardware.catalogue import match_gpu
from tonnage.hardware.cpu import cpu_model
from tonnage.profile.channel import Message
from tonnage.profile.combine import mean_parts
from tonnage.profile.hints import hint_for
from tonnage.profile.indicators import Indicators
from tonnage.profile.job import Window
from tonnage.profile.report import DEVICE_STACKS, HOST_STACKS, ClockedStep, ProfileReport, TracedStep
from tonnage.profile.sampler import Samples
from tonnage.profile.trace_analysis import TraceAnalysis, analyse
from tonnage.program.digest import program_digest
from tonnage.program.program import Program
from tonnage.store.rows import Environment
from tonnage.units import format_seconds

_UNSTEADY = 0.3  # of the mean


def report_of_run(program: Program, window: Window, samples: Samples) -> ProfileReport:
    """Of a window of steps that was seen in a running program."""
    analysis, facts = analyse(window.trace, most=window.facts["steps"]), window.facts
    indicators = _indicators(
        program.name, program_digest(program), analysis, window.clocked, gpu=_gpu_name(facts),
        **_resources(window, samples),
    )  # fmt: skip
    notes = [] if facts["modules_named"] else ["the program is compiled: times are not told apart by module"]
    notes += _unsteady(window.clocked)
    if facts["steps"] < facts["wanted"]:
        notes.append(f"the program ended after {facts['steps']} of {facts['wanted']} steps under the profiler")
    return _report(
        indicators,
        analysis,
        window.clocked,
        machine=_machine(facts, samples),
        memory=_memory(facts, samples),
        notes=notes,
    )


def report_of_trace(path: Path) -> ProfileReport:
    """Of a trace that some profiler has written."""
    analysis = analyse(path)
    indicators = _indicators(str(path), "", analysis, ())
    notes = []
    if analysis.count == 1:
        notes.append("no steps were found in the trace: everything in it counts as one")
    elif not analysis.are_marked:
        notes.append("steps are not marked in the trace: each step of an optimizer, or call of a module, counts as one")
    notes.append("a profiler slows the host down: steps and idle time of a trace are longer than without it")
    return _report(
        indicators,
        analysis,
        (),
        machine=Environment(device=indicators.device, gpu="", tonnage=__version__),
        memory={},
        notes=notes,
    )


def _report(
    indicators: Indicators, analysis: TraceAnalysis, clocked: Sequence[ClockedStep], *, machine: Environment,
    memory: dict[str, int], notes: list[str],
) -> ProfileReport:  # fmt: skip
    return ProfileReport(
        indicators=indicators,
        traced=analysis.steps,
        clocked=tuple(clocked),
        operators=analysis.tables.operators,
        modules=analysis.tables.modules,
        stacks=analysis.tables.stacks,
        stacks_are=DEVICE_STACKS if analysis.on_gpu else HOST_STACKS,
        machine=machine,
        memory=memory,
        hint=hint_for(indicators),
        notes=tuple(notes),
    )


def _indicators(
    name: str, digest: str, analysis: TraceAnalysis, clocked: Sequence[ClockedStep], *, gpu: str = "",
    **resources: float | None,
) -> Indicators:  # fmt: skip
    steps = analysis.steps
    parts = mean_parts(steps, clocked, on_gpu=analysis.on_gpu)
    h2d, d2h = _mean(steps, "h2d_bytes"), _mean(steps, "d2h_bytes")
    return Indicators(
        program=name,
        program_digest=digest,
        basis="measured",
        device="cuda" if analysis.on_gpu else "cpu",
        gpu=gpu if analysis.on_gpu else "",
        gpu_count=max(analysis.gpu_count, 1) if analysis.on_gpu else 0,
        steps=len(clocked) or len(steps),
        h2d_bytes=round(h2d),
        d2h_bytes=round(d2h),
        h2d_busy_seconds=_mean(steps, "h2d_busy_seconds"),
        d2h_busy_seconds=_mean(steps, "d2h_busy_seconds"),
        forward_span_seconds=_span(clocked, "forward"),
        backward_span_seconds=_span(clocked, "backward"),
        optimizer_span_seconds=_span(clocked, "optimizer"),
        pinned_share=_mean(steps, "pinned_bytes") / (h2d + d2h) if h2d + d2h else 0.0,
        gpu_utilisation=parts.busy_seconds / parts.step_seconds if analysis.on_gpu else None,
        **{field: getattr(parts, field) for field in parts.__dataclass_fields__},
        **resources,  # type: ignore[arg-type]  # each is of its field's type
    )


def _unsteady(clocked: Sequence[ClockedStep]) -> list[str]:
    seconds = [row.step_seconds for row in clocked]
    if len(seconds) < 2 or pstdev(seconds) <= _UNSTEADY * fmean(seconds):
        return []
    low, high = format_seconds(min(seconds)), format_seconds(max(seconds))
    return [f"steps differ: {low} to {high}; look at more of them with --steps, on a machine that does nothing else"]


def _span(clocked: Sequence[ClockedStep], phase: str) -> float | None:
    return fmean(getattr(row, f"{phase}_span_seconds") for row in clocked) if clocked else None


def _mean(steps: Sequence[TracedStep], name: str) -> float:
    return float(sum(getattr(step, name) for step in steps)) / len(steps)


def _resources(window: Window, samples: Samples) -> dict[str, float | None]:
    facts, usage = window.facts, window.usage
    cores = usage["cpu_seconds"] / usage["wall_seconds"] if usage.get("wall_seconds") else None
    uuid = facts.get("gpu_uuid", "")
    return {
        "peak_host_bytes": max(samples.peak_host_bytes, facts["peak_rss_bytes"]),
        "peak_gpu_bytes": max(samples.gpu_bytes(uuid) or 0, facts["reserved_bytes"]) if uuid else None,
        "cpu_cores_used": cores,
        "cpu_utilisation": min(cores / facts["cores"], 1.0) if cores is not None and facts["cores"] else None,
        "loader_workers": facts["loader_workers"],
        "power_watts": samples.watts(uuid, window.began, window.ended),
    }


def _gpu_name(facts: Message) -> str:
    name = str(facts.get("gpu_name", ""))
    try:
        known = match_gpu(name, facts.get("gpu_memory_bytes", 0)) if name else None
    except (
        ModuleNotFoundError
    ):  # a machine with torch may lack what reads the catalogue; the driver's name is true as well
        return name
    return known.name if known else name


def _memory(facts: Message, samples: Samples) -> dict[str, int]:
    sizes = {"host_peak_bytes": max(samples.peak_host_bytes, facts["peak_rss_bytes"])}
    if "gpu_uuid" in facts:
        sizes |= {
            "gpu_allocated_peak_bytes": facts["allocated_bytes"], "gpu_reserved_peak_bytes": facts["reserved_bytes"],
            "gpu_device_peak_bytes": samples.gpu_bytes(facts["gpu_uuid"]) or 0,
        }  # fmt: skip
    return sizes


def _machine(facts: Message, samples: Samples) -> Environment:
    return Environment(
        device="cuda" if "gpu_uuid" in facts else "cpu",
        gpu=_gpu_name(facts),
        gpu_memory_bytes=facts.get("gpu_memory_bytes"),
        driver=samples.driver,
        cuda=str(facts.get("cuda_version", "")),
        torch=str(facts["torch_version"]),
        python=".".join(map(str, sys.version_info[:3])),
        platform=f"{platform.system()} {platform.machine()}",
        cpu=cpu_model(),
        cpu_cores=os.cpu_count(),
        tonnage=__version__,
    )
