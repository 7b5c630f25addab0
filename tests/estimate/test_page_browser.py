"""The HTML report in a real browser: it answers pointer and keys, asks nothing of the network and reports no error."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from page_reports import HOSTILE_REPORT, REPORTS, make_timed_report

from browsing import needs_browser, shown
from tonnage.estimate.estimate import Report
from tonnage.estimate.page import render_page

pytestmark = needs_browser


@contextmanager
def opened(browser: Any, report: Report, folder: Path, **options: Any) -> Iterator[Any]:
    with shown(browser, render_page(report), folder / "report.html", **options) as page:
        yield page


@pytest.mark.parametrize("name", REPORTS)
def test_every_report_opens_without_complaint_and_without_the_network(browser: Any, name: str, tmp_path: Path) -> None:
    with opened(browser, REPORTS[name], tmp_path) as page:
        assert page.title() == f"{page.inner_text('h1')}: what it needs on GPUs" or "\ufffd" in page.title()


@pytest.mark.parametrize("width", [360, 800, 1300])
def test_nothing_is_wider_than_the_window(browser: Any, tmp_path: Path, width: int) -> None:
    with opened(browser, REPORTS["timed sweep"], tmp_path) as page:
        page.set_viewport_size({"width": width, "height": 800})
        assert page.evaluate("document.documentElement.scrollWidth") <= width


def test_a_call_under_the_pointer_is_told(browser: Any, tmp_path: Path) -> None:
    with opened(browser, make_timed_report(), tmp_path) as page:
        page.locator(".track").nth(1).hover(position={"x": 5, "y": 10})
        text = page.inner_text("#call")
        assert text.startswith("mm in model.blocks.")
        assert "forward: runs at" in text


def test_calls_are_reached_with_the_keyboard(browser: Any, tmp_path: Path) -> None:
    with opened(browser, make_timed_report(), tmp_path) as page:
        page.locator(".track").nth(1).focus()
        page.keyboard.press("End")
        assert "copy: runs at 39.9 ms for" in page.inner_text("#call")
        page.keyboard.press("ArrowLeft")
        assert "runs at 39.8 ms" in page.inner_text("#call")


def test_a_time_line_zooms_by_button_phase_drag_and_key(browser: Any, tmp_path: Path) -> None:
    with opened(browser, make_timed_report(), tmp_path) as page:
        timeline, track = page.locator(".timeline"), page.locator(".track").nth(1)
        assert timeline.get_attribute("data-shown") == "0.0000 1.0000"
        page.click("[data-zoom='0.5']")
        assert timeline.get_attribute("data-shown") == "0.2500 0.7500"
        page.click("[data-phase=backward]")
        begin, end = map(float, timeline.get_attribute("data-shown").split())
        assert begin == pytest.approx(0.22, abs=0.01)
        assert end == pytest.approx(0.448, abs=0.01)
        page.click("[data-zoom=all]")
        box = track.bounding_box()
        page.mouse.move(box["x"] + box["width"] / 4, box["y"] + 10)
        page.mouse.down()
        page.mouse.move(box["x"] + box["width"] / 2, box["y"] + 10)
        page.mouse.up()
        assert timeline.get_attribute("data-shown") == "0.2500 0.5000"
        track.focus()
        page.keyboard.press("0")
        assert timeline.get_attribute("data-shown") == "0.0000 1.0000"


def test_a_box_of_the_flame_graph_is_zoomed_to_and_left_again(browser: Any, tmp_path: Path) -> None:
    with opened(browser, make_timed_report(), tmp_path) as page:
        whole = page.locator(".flame").bounding_box()["width"]
        box = page.locator(".flame li", has=page.locator(":scope > span", has_text="3")).last
        box.locator("> span").click()
        assert page.inner_text("#flame-path").split("\n")[-1] == "3"
        assert box.bounding_box()["width"] == pytest.approx(whole, rel=0.01)
        assert "blocks › 3: 3 ms, 7.5 % of the GPU's time" in page.inner_text("#box")
        page.click("#flame-path button >> nth=0")
        assert box.bounding_box()["width"] == pytest.approx(0.075 * whole, rel=0.05)


def test_the_flame_graph_is_walked_with_the_keyboard(browser: Any, tmp_path: Path) -> None:
    with opened(browser, make_timed_report(), tmp_path) as page:
        page.locator(".flame > li").focus()
        for key in ("ArrowDown", "ArrowRight", "Enter"):
            page.keyboard.press(key)
        assert "the optimizer" in page.inner_text("#flame-path")
        page.keyboard.press("Escape")
        assert page.inner_text("#flame-path") == "step"


def test_the_flame_graph_shows_one_phase_alone(browser: Any, tmp_path: Path) -> None:
    with opened(browser, make_timed_report(), tmp_path) as page:
        page.locator(".flame-tools label", has_text="backward").click()
        assert page.locator(".flame li", has_text="attention").last.is_hidden()
        assert "step: 20 ms" in page.inner_text("#box")


def test_a_search_tells_the_share_of_what_it_finds(browser: Any, tmp_path: Path) -> None:
    with opened(browser, make_timed_report(), tmp_path) as page:
        page.fill("#find", "mlp")
        assert page.inner_text("#found") == "10 found, 20 ms, 50.0 % of the step"
        page.fill("#find", "m")  # boxes in boxes that are found count once
        assert page.inner_text("#found").endswith("40 ms, 100.0 % of the step")


def test_folded_stacks_can_be_saved(browser: Any, tmp_path: Path) -> None:
    with opened(browser, make_timed_report(), tmp_path) as page:
        with page.expect_download() as download:
            page.click("#folded")
        lines = Path(download.value.path()).read_text().splitlines()
        assert download.value.suggested_filename == "step.folded"
        assert lines[0] == "step;blocks;0;attention;mm 1000000"
        assert sum(int(line.rsplit(" ", 1)[1]) for line in lines) == 40_000_000


def test_gpus_are_compared_by_the_quantity_that_is_chosen(browser: Any, tmp_path: Path) -> None:
    with opened(browser, REPORTS["timed sweep"], tmp_path) as page:
        page.select_option("#quantity", "energy")
        assert page.locator(".compared:visible h3").all_inner_texts() == ["Energy of a step"]
        page.select_option("#quantity", "samples")
        page.select_option("#of-gpu", label="GPU 40")
        assert page.locator(".speeds .chosen").count() == 1
        assert page.inner_text("#gpu-chosen") == "GPU 40"


def test_columns_are_switched_and_times_are_sorted(browser: Any, tmp_path: Path) -> None:
    with opened(browser, make_timed_report(), tmp_path) as page:
        page.locator(".all-gpus .switch label", has_text="Time").click()
        assert page.locator(".gpus td.usable:visible").count() == 0
        page.click(".gpus th.step button")
        assert page.locator(".gpus tbody th").first.inner_text() == "GPU 65"
        page.locator(".all-gpus .switch label", has_text="Memory").click()
        assert page.locator(".gpus td.step:visible").count() == 0
        page.fill("#filter", "too small")
        assert page.inner_text("#shown") == "5 of 66 shown"


def test_the_page_says_everything_without_a_script(browser: Any, tmp_path: Path) -> None:
    with opened(browser, make_timed_report(), tmp_path, java_script_enabled=False) as page:
        assert page.locator(".track path").count() > 0
        assert page.locator(".compared:visible").count() == 6
        page.locator(".all-gpus .switch label", has_text="Memory").click()
        assert page.locator(".gpus td.step:visible").count() == 0


def test_hostile_names_run_nothing(browser: Any, tmp_path: Path) -> None:
    with opened(browser, HOSTILE_REPORT, tmp_path) as page:
        page.locator(".track").nth(1).hover()
        page.locator(".flame span").nth(2).click()
        assert "<script>" in page.inner_text("#call") + page.inner_text("#flame-path")
