"""The HTML report: it is whole, safe and offline, and says everything without a script."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from itertools import pairwise

import pytest
from page_reports import HOSTILE, HOSTILE_REPORT, REPORTS, Checker, make_estimate, make_report, make_tensors

from tonnage import __version__
from tonnage.estimate.estimate import Report
from tonnage.estimate.page import render_fragment, render_page
from tonnage.estimate.page_charts import squarify
from tonnage.units import GIB, format_bytes


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
    curve, step = [json.loads(text) for kind, text in page.scripts if kind == "application/json"]
    assert curve["totals"] == [GIB, 2 * GIB]
    assert "</script>" in curve["places"][0]
    assert any("</script>" in name for name in step["names"])


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
