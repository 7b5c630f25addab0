"""The HTML report: it is whole, safe and offline, and says everything without a script."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from html.parser import HTMLParser
from itertools import pairwise
from typing import Any

import pytest

from tonnage import __version__
from tonnage.estimate.estimate import Estimate, Interval, MemoryCurve, OutOfMemoryMoment, PeakTensor, Report
from tonnage.estimate.page import render_fragment, render_page
from tonnage.estimate.page_charts import squarify
from tonnage.units import GIB, MIB, format_bytes

HOSTILE = "</script><script>alert('x')</script><!-- \" ' & ]]> \x00 \ud800 \u202e é 模型 🚢"
VOID = {"meta", "input", "br", "hr", "img", "link", "path", "wbr"}


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


def make_report(**changes: Any) -> Report:
    sizes = [2 + n * 0.75 for n in range(40)] + [32.0 + 6 * n for n in range(26)]
    estimates = tuple(make_estimate(f"GPU {n:02}", int(size * GIB)) for n, size in enumerate(sizes))
    report = Report(
        program="train.py --batch-size 64", mode="training", steps_traced=3, batch=64, parameter_count=25_557_032,
        estimates=estimates, curve=make_curve(gpu="GPU 30"), warnings=("The third step was cut short.",),
        details={"torch_version": "2.11.0", "seed": 3},
    )  # fmt: skip
    return replace(report, **changes)


HOSTILE_REPORT = make_report(
    program=HOSTILE,
    mode=HOSTILE,
    warnings=(HOSTILE,),
    details={HOSTILE: HOSTILE, "nested": {"a": [HOSTILE]}},
    estimates=(
        make_estimate(HOSTILE, basis=HOSTILE, largest=make_tensors(3, HOSTILE), categories={HOSTILE: GIB}),
        make_estimate("small", GIB, out_of_memory=make_moment(module=HOSTILE, phase=HOSTILE, operator=HOSTILE)),
    ),
    curve=MemoryCurve(gpu=HOSTILE, categories={HOSTILE: (GIB, 2 * GIB)}, phases=(HOSTILE,), step_ends=(0,), peak=1),
)
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


@pytest.fixture(params=REPORTS.values(), ids=list(REPORTS))
def report(request: pytest.FixtureRequest) -> Report:
    chosen: Report = request.param
    return chosen


@pytest.fixture(params=[render_page, render_fragment])
def rendered(request: pytest.FixtureRequest, report: Report) -> str:
    text: str = request.param(report)
    return text


def test_tags_balance_and_identifiers_are_unique(rendered: str) -> None:
    page = Checker(rendered)
    assert len(page.ids) == len(set(page.ids))


def test_nothing_is_loaded_from_anywhere(rendered: str) -> None:
    page = Checker(rendered)
    assert all(target.startswith("#") for target in page.loads)
    assert not re.search(r"https?://|url\(|@import|src=", rendered)


def test_it_is_small_and_can_be_written_as_utf8(rendered: str) -> None:
    assert len(rendered.encode("utf-8")) < 1_000_000


def test_only_our_own_script_runs(report: Report) -> None:
    page = Checker(render_page(report))
    running = [text for kind, text in page.scripts if kind == "javascript"]
    assert len(running) == 1
    assert running[0].startswith("// Sorting")
    assert page.handlers == []


def test_a_fragment_runs_nothing_and_has_no_identifiers(report: Report) -> None:
    fragment = render_fragment(report)
    page = Checker(fragment)
    assert page.scripts == []
    assert page.ids == []
    assert "<html" not in fragment
    assert "<body" not in fragment


def test_texts_of_the_user_are_shown_as_written() -> None:
    shown = Checker(render_page(HOSTILE_REPORT)).text
    assert shown.count("</script><script>alert('x')</script><!-- \" ' & ]]> \ufffd \ufffd \ufffd é 模型 🚢") >= 8


def test_embedded_data_survives_hostile_names() -> None:
    page = Checker(render_page(HOSTILE_REPORT))
    (data,) = [json.loads(text) for kind, text in page.scripts if kind == "application/json"]
    assert data["totals"] == [GIB, 2 * GIB]
    assert "</script>" in data["places"][0]


def test_every_gpu_is_listed_with_its_need(report: Report) -> None:
    shown = Checker(render_page(replace(report, program="program"))).text
    for estimate in report.estimates:
        assert estimate.gpu == HOSTILE or estimate.gpu in shown
        assert format_bytes(estimate.device_bytes.value) in shown


def test_a_fragment_lists_the_gpus_nearest_the_limit() -> None:
    shown = Checker(render_fragment(make_report())).text
    names = [name for name in (f"GPU {n:02}" for n in range(66)) if name in shown.split("GPU usable needs")[1]]
    assert 1 < len(names) <= 12
    assert "GPU 05" in names  # 5.75 GiB, the smallest that fits
    assert "GPU 04" in names  # 5 GiB, the largest that does not
    assert "54 more are not shown" in shown


@pytest.mark.parametrize(
    ("name", "summary"),
    [
        ("training", "Fits on 61 of 66 GPUs. The smallest is GPU 05: training needs 5.41 GiB of its 5.75 GiB"),
        ("one GPU", "Fits on GPU 24: training needs 5.41 GiB of its 24.0 GiB of usable memory."),
        ("one GPU, too small", "Does not fit on GPU 24. It has 2.00 GiB of usable memory; training needs 5.41 GiB."),
        (
            "none fits",
            "Fits on none of 5 GPUs. The largest, GPU 4, has 4.00 GiB of usable memory; training needs 5.41 GiB.",
        ),
        ("no GPU", "No GPU was asked for."),
    ],
)
def test_the_summary_says_where_it_fits(name: str, summary: str) -> None:
    assert summary in Checker(render_page(REPORTS[name])).text
    assert summary in Checker(render_fragment(REPORTS[name])).text


def test_the_moment_of_failure_is_told_in_words() -> None:
    shown = Checker(render_page(REPORTS["one GPU, too small"])).text
    assert "Too small step 1, forward, layer4.2.conv2, asked for 98.0 MiB" in shown


def test_a_gpu_that_only_the_upper_bound_exceeds_says_so() -> None:
    close = make_estimate(usable=int(5.5 * GIB), out_of_memory=None)
    assert "Too small 74.0 MiB over at the upper bound" in Checker(render_page(make_report(estimates=(close,)))).text


def test_warnings_details_and_version_are_shown() -> None:
    shown = Checker(render_page(make_report())).text
    assert "The third step was cut short." in shown
    assert "torch version 2.11.0" in shown
    assert f"Made by tonnage {__version__}" in shown


def test_all_tensors_of_the_peak_are_in_a_table() -> None:
    shown = Checker(render_page(make_report())).text
    assert all(tensor.module in shown for tensor in make_tensors())
    assert "64 × 256 × 56 × 56" in shown
    assert "everything else in activations" in shown


def test_other_batch_sizes_are_answered_where_they_were_asked_for() -> None:
    swept = make_report(sweep=(make_report(batch=128, estimates=(make_estimate("GPU 24", need=30 * GIB),)),))
    assert "128 Does not fit on GPU 24. It has 24.0 GiB" in Checker(render_page(swept)).text


def test_the_column_of_batches_appears_only_with_batches() -> None:
    assert "max. batch" not in Checker(render_page(make_report())).text
    with_batch = make_report(estimates=(make_estimate(max_batch=1234), make_estimate("other")))
    assert "max. batch" in Checker(render_page(with_batch)).text
    assert "1,234" in Checker(render_page(with_batch)).text


def test_styles_of_a_fragment_stay_in_it() -> None:
    style = render_fragment(make_report()).split("<style>")[1].split("</style>")[0]
    depth, selectors = 0, [""]
    for character in re.sub(r"/\*.*?\*/", "", style, flags=re.S):
        depth += (character == "{") - (character == "}")
        if depth == 0:
            selectors = [*selectors, ""] if character == "}" else [*selectors[:-1], selectors[-1] + character]
    assert all(".tonnage.tonnage" in part for rule in selectors if rule.strip() for part in rule.split(","))


def test_a_treemap_fills_its_box_in_proportion() -> None:
    sizes = [50.0, 20, 10, 10, 5, 3, 1, 1]
    boxes = squarify(sizes, (0, 0, 200, 100))
    assert [box[2] * box[3] for box in boxes] == pytest.approx([200 * size for size in sizes])
    assert all(box[0] + box[2] <= 200.001 and box[1] + box[3] <= 100.001 for box in boxes)
    assert all(before[2] * before[3] >= after[2] * after[3] * 0.999 for before, after in pairwise(boxes))
    assert squarify([], (0, 0, 1, 1)) == []
