"""Reports made by hand, ordinary and odd ones, and a reader of pages that is stricter than a browser."""

from __future__ import annotations

from dataclasses import replace
from html.parser import HTMLParser
from typing import Any

from tonnage.estimate.estimate import (
    Estimate,
    Interval,
    MemoryCurve,
    OutOfMemoryMoment,
    PeakTensor,
    Report,
    TimeEstimate,
)
from tonnage.estimate.step_tree import PHASES, Box
from tonnage.estimate.step_view import LongCall, StepView, Stretch
from tonnage.units import GIB, MIB

HOSTILE = "</script><script>alert('x')</script><!-- \" ' & ]]> \x00 \ud800 \u202e é 模型 🚢"
VOID = {"meta", "input", "br", "hr", "img", "link", "path", "wbr", "circle"}


def make_moment(**changes: Any) -> OutOfMemoryMoment:
    moment = OutOfMemoryMoment(
        step=1, phase="forward", operator="aten::convolution", module="layer4.2.conv2", requested_bytes=98 * MIB,
        allocated_bytes=3 * GIB, reserved_bytes=3 * GIB + 200 * MIB,
    )  # fmt: skip
    return replace(moment, **changes)


def make_tensors(count: int = 30, module: str = "") -> tuple[PeakTensor, ...]:
    kinds = ("activations", "activations", "gradients", "parameters", "optimizer_state", "workspace")
    return tuple(
        PeakTensor(
            bytes=(200 - 5 * number) * MIB, category=kinds[number % 6],
            module=module or f"layer{number % 4}.{number}.conv", operator="aten::convolution",
            shape=(64, 256, 56, 56)[: number % 5], dtype="float32",
        )
        for number in range(count)
    )  # fmt: skip


CATEGORIES = {
    "parameters": 700 * MIB, "gradients": 700 * MIB, "optimizer_state": 1400 * MIB, "activations": 1600 * MIB,
    "inputs": 40 * MIB, "temporaries": 0, "workspace": 200 * MIB, "context": 0,
}  # fmt: skip


def make_estimate(gpu: str = "GPU 24", usable: int = 24 * GIB, need: int = int(5.41 * GIB), **changes: Any) -> Estimate:
    fits = need * 1.03 <= usable
    estimate = Estimate(
        gpu=gpu, fits=fits, basis="specification", peak_allocated_bytes=Interval(need - GIB, need - GIB, need - GIB),
        peak_reserved_bytes=Interval(need - 700 * MIB, need - 710 * MIB, need - 640 * MIB),
        device_bytes=Interval(need, int(need * 0.98), int(need * 1.03)), usable_bytes=usable, categories=CATEGORIES,
        largest=make_tensors(), storage_bytes=98 * MIB, h2d_bytes_step=37 * MIB, d2h_bytes_step=4,
        out_of_memory=None if fits else make_moment(),
    )  # fmt: skip
    return replace(estimate, **changes)


def make_curve(points: int = 600, steps: int = 3, gpu: str = "GPU 24") -> MemoryCurve:
    """Activations rise in the first half of each step and fall in the second; gradients the other way round."""
    span = max(points // max(steps, 1), 1)
    wave = [min(i % span, span - i % span) for i in range(points)]
    phases = [
        "forward" if i % span < span / 2 else "backward" if i % span < span * 0.9 else "optimizer"
        for i in range(points)
    ]
    categories = {
        "parameters": (700 * MIB,) * points,
        "optimizer_state": tuple(1400 * MIB if i >= span else 0 for i in range(points)),
        "gradients": tuple(700 * MIB * (i % span) // span for i in range(points)),
        "activations": tuple(3000 * MIB * w // span for w in wave),
        "workspace": tuple((i * 37 % 5) * 20 * MIB for i in range(points)),
        "temporaries": (0,) * points,
    }
    totals = [sum(values) for values in zip(*categories.values(), strict=True)]
    ends = tuple(span * (step + 1) - 1 for step in range(steps))
    peak = totals.index(max(totals)) if totals else 0
    return MemoryCurve(gpu=gpu, categories=categories, phases=tuple(phases), step_ends=ends, peak=peak)


def around(value: float) -> Interval:
    return Interval(value, value * 0.8, value * 1.25)


def make_time(step: float = 0.045, **changes: Any) -> TimeEstimate:
    time = TimeEstimate(
        basis="specification", bound_by="GPU", step_seconds=around(step), forward_seconds=around(0.3 * step),
        backward_seconds=around(0.55 * step), optimizer_seconds=around(0.1 * step), h2d_seconds=around(0.05 * step),
        d2h_seconds=around(0.0), power_watts=around(300.0), energy_joules_step=around(300 * step), utilisation=0.95,
        epoch_seconds=around(5000 * step), cost_usd_hour=Interval(2.5, 2.5, 2.5),
    )  # fmt: skip
    return replace(time, **changes)


def make_view(calls: int = 400, name: str = "", gpu: str = "GPU 30") -> StepView:
    """A network of ten blocks, each with two layers, forward and then backward."""
    each = 0.04 / max(calls, 1)
    phases = [PHASES[min(4 * i // max(calls, 1), 3)] for i in range(calls)]
    modules = [name or f"model.blocks.{i % 10}.{('attention', 'mlp')[i % 2]}" for i in range(calls)]
    operator = name or "aten::mm"
    device = tuple(
        Stretch(i * each, (i + 0.8) * each, phase, operator, module)
        for i, (phase, module) in enumerate(zip(phases, modules, strict=True))
    )
    blocks = tuple(
        Box(name or str(i), "module", (1e-3, 2e-3, 0, 0), (
            Box(name or "attention", "module", (1e-3, 0, 0, 0), (Box(name or "mm", "product", (1e-3, 0, 0, 0)),)),
            Box("mlp", "module", (0, 2e-3, 0, 0), (Box("addmm", "product", (0, 2e-3, 0, 0)),)),
        ))
        for i in range(10)
    )  # fmt: skip
    tree = Box("step", "module", (0.01, 0.02, 0.01, 0), (
        Box("blocks", "module", (0.01, 0.02, 0, 0), blocks),
        Box("the optimizer", "module", (0, 0, 0.01, 0), (Box("_fused_adamw_", "pointwise", (0, 0, 0.01, 0)),)),
    ))  # fmt: skip
    longest = tuple(
        LongCall(operator=call.operator, module=call.module, phase=call.phase, start_seconds=call.start_seconds,
                 seconds=each)
        for call in device[:20]
    )  # fmt: skip
    return StepView(
        gpu=gpu, step_seconds=0.045, busy_seconds=0.04, host_seconds=0.03, calls=calls, host=device, device=device,
        longest=longest, tree=tree,
    )  # fmt: skip


def make_report(**changes: Any) -> Report:
    sizes = [2 + n * 0.75 for n in range(40)] + [32.0 + 6 * n for n in range(26)]
    estimates = tuple(make_estimate(f"GPU {n:02}", int(size * GIB)) for n, size in enumerate(sizes))
    report = Report(
        program="train.py --batch-size 64", mode="training", steps_traced=3, batch=64, parameter_count=25_557_032,
        estimates=estimates, curve=make_curve(gpu="GPU 30"), warnings=("The third step was cut short.",),
        details={"torch_version": "2.11.0", "seed": 3},
    )  # fmt: skip
    return replace(report, **changes)


def make_timed_report(**changes: Any) -> Report:
    """Like `make_report`, with times: the more memory, the faster."""
    report = make_report()
    timed = (
        replace(estimate, time=make_time(0.001 * (100 - place), cost_usd_hour=None if place % 3 else around(2.5)))
        for place, estimate in enumerate(report.estimates)
    )
    return replace(report, **{"estimates": tuple(timed), "step": make_view(), **changes})


HOSTILE_REPORT = make_report(
    program=HOSTILE,
    mode=HOSTILE,
    warnings=(HOSTILE,),
    details={HOSTILE: HOSTILE, "nested": {"a": [HOSTILE]}},
    estimates=(
        make_estimate(
            HOSTILE, basis=HOSTILE, largest=make_tensors(3, HOSTILE), categories={HOSTILE: GIB},
            time=make_time(basis=HOSTILE, bound_by=HOSTILE),
        ),
        make_estimate("small", GIB, out_of_memory=make_moment(module=HOSTILE, phase=HOSTILE, operator=HOSTILE)),
    ),
    curve=MemoryCurve(gpu=HOSTILE, categories={HOSTILE: (GIB, 2 * GIB)}, phases=(HOSTILE,), step_ends=(0,), peak=1),
    step=make_view(30, HOSTILE, HOSTILE),
)  # fmt: skip
EMPTY_CURVE = MemoryCurve(gpu="x", categories={}, phases=(), step_ends=(), peak=0)
REPORTS = {
    "training": make_report(),
    "hostile": HOSTILE_REPORT,
    "no curve": make_report(curve=None),
    "empty curve": make_report(curve=EMPTY_CURVE),
    "one point": make_report(curve=make_curve(points=1, steps=0)),
    "all zero": make_report(curve=replace(EMPTY_CURVE, categories={"inputs": (0, 0)}, phases=("", ""))),
    "ragged curve": make_report(curve=replace(make_curve(), phases=("forward",), step_ends=(9, 999), peak=10_000)),
    "no steps": make_report(steps_traced=0, batch=None, curve=make_curve(steps=0)),
    "inference": make_report(
        mode="inference", curve=MemoryCurve(gpu="x", categories={"parameters": (5, 5), "activations": (1, 9)},
        phases=("forward", "forward"), step_ends=(1,), peak=1),
    ),
    "many steps": make_report(curve=make_curve(steps=150)),
    "one GPU": make_report(estimates=(make_estimate(),)),
    "one GPU, too small": make_report(estimates=(make_estimate(usable=2 * GIB),)),
    "none fits": make_report(estimates=tuple(make_estimate(f"GPU {n}", n * GIB) for n in range(5))),
    "no GPU": make_report(estimates=(), curve=None, warnings=(), details={}),
    "nothing at the peak": make_report(estimates=(make_estimate(categories={}, largest=()),)),
    "timed": make_timed_report(),
    "timed, without a price": make_timed_report(
        estimates=tuple(
            make_estimate(f"GPU {n}", time=make_time(cost_usd_hour=None, epoch_seconds=None)) for n in range(5)
        ),
    ),
    "timed, some not": make_timed_report(estimates=(make_estimate("GPU 1", time=make_time()), make_estimate("GPU 2"))),
    "timed, none fits": make_timed_report(
        estimates=tuple(make_estimate(f"GPU {n}", n * GIB, time=make_time()) for n in range(1, 4)),
    ),
    "timed, one GPU": make_timed_report(estimates=(make_estimate(time=make_time(bound_by="host", utilisation=0.4)),)),
    "all times zero": make_timed_report(
        estimates=tuple(
            make_estimate(f"GPU {n}", time=make_time(0.0, power_watts=around(0.0), utilisation=0.0)) for n in range(3)
        ),
        step=replace(make_view(0), tree=Box("step", "module", (0.0, 0.0, 0.0, 0.0))),
    ),
    "one call": make_timed_report(step=make_view(1)),
    "several GPUs": make_timed_report(
        estimates=tuple(
            make_estimate("H200", 140 * GIB, gpu_count=count, time=make_time(network_seconds=0.01, bound_by="network"))
            for count in (1, 4, 8)
        ),
    ),
    "timed sweep": make_timed_report(
        sweep=tuple(make_timed_report(batch=batch, step=None, curve=None) for batch in (16, 32, 128)),
    ),
    "long paths": make_report(program="a" * 300, estimates=(make_estimate(largest=make_tensors(5, "encoder." * 38)),)),
}  # fmt: skip


class Checker(HTMLParser):
    """Fails on tags that do not balance and collects what a reader sees, what runs and what would be loaded."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.texts: list[str] = []
        self.scripts: list[tuple[str, str]] = []
        self.loads: list[str] = []
        self.ids: list[str] = []
        self.handlers: list[str] = []
        self._kind = ""
        self.feed(text)
        self.close()
        assert not self.open, self.open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = dict(attrs)
        self.loads += [value or "" for name, value in attrs if name in ("src", "href", "action", "srcset", "data")]
        self.handlers += [name for name, _ in attrs if name.startswith("on")]
        self.ids += [values["id"] or ""] if "id" in values else []
        self._kind = values.get("type") or "javascript"
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:  # noqa: ARG002 (as it is called)
        assert tag in VOID, tag

    def handle_endtag(self, tag: str) -> None:
        assert self.open, f"</{tag}> closes nothing"
        assert self.open.pop() == tag
        self.texts += [" "] if tag in ("td", "th", "dt", "dd", "p", "li") else []

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] == "script":
            self.scripts.append((self._kind, data))
        elif not self.open or self.open[-1] != "style":
            self.texts.append(data)

    @property
    def text(self) -> str:
        return " ".join("".join(self.texts).split())
