"""The page of distributions in a real browser: it answers pointer and keys, asks nothing of the network, has no errors."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from split_pages import HOSTILE, chain, make_fabric, whole_page

from browsing import needs_browser, shown
from tonnage.split.cluster_problem import Training
from tonnage.split.pool import Pool, make_pool

pytestmark = needs_browser


@pytest.fixture(scope="module")
def pool() -> Pool:
    return make_pool(chain(12), make_fabric(3))


@contextmanager
def opened(browser: Any, pool: Pool, folder: Path) -> Iterator[Any]:
    with shown(browser, whole_page(pool), folder / "split.html") as page:
        yield page


def test_names_full_of_markup_do_nothing_but_show(browser: Any, tmp_path: Path) -> None:
    hostile = make_pool(chain(4, names=[HOSTILE] * 4), make_fabric(2, [HOSTILE, f"{HOSTILE} too"]))
    with opened(browser, hostile, tmp_path) as page:
        assert "<img src=x" in page.inner_text("#device-table")


@pytest.mark.parametrize("width", [360, 700, 1400])
def test_nothing_is_wider_than_the_window(browser: Any, pool: Pool, tmp_path: Path, width: int) -> None:
    with opened(browser, pool, tmp_path) as page:
        page.set_viewport_size({"width": width, "height": 800})
        assert page.evaluate("document.documentElement.scrollWidth") <= width


def test_a_click_on_a_point_shows_its_distribution_in_all_parts(browser: Any, pool: Pool, tmp_path: Path) -> None:
    with opened(browser, pool, tmp_path) as page:
        assert page.inner_text("#metrics").startswith("3 devices · a sample every 40 ms")
        page.click(".point[aria-label*='period 120 ms']")
        assert page.inner_text("#metrics").startswith("1 device · a sample every 120 ms")
        assert page.locator("#device-table tbody tr").count() == 1
        assert page.locator("#cuts path").count() == 0
        assert page.locator("#boxes > g.d0").count() == 12
        assert page.locator("#time-line .slot").count() == page.locator("#time-line .d0.slot").count() > 0


def test_the_front_is_walked_with_the_keyboard(browser: Any, pool: Pool, tmp_path: Path) -> None:
    with opened(browser, pool, tmp_path) as page:
        page.focus(".point[aria-checked=true]")
        page.keyboard.press("ArrowRight")
        assert page.inner_text("#metrics").startswith("2 devices")
        assert page.get_attribute(":focus", "aria-checked") == "true"


def test_boxes_have_the_colour_and_the_number_of_their_device_and_cuts_their_bytes(
    browser: Any, pool: Pool, tmp_path: Path
) -> None:
    with opened(browser, pool, tmp_path) as page:
        numbers = page.locator("#boxes > g > .number").all_text_contents()
        assert numbers == [each for each in numbers[::4] for _ in range(4)]
        assert sorted(set(numbers)) == ["1", "2", "3"]
        assert page.locator("#cuts path").count() == 2
        assert "1 tensor, 977 KiB, from" in page.text_content("#cuts path title")
        assert page.locator("#cut-labels text").all_text_contents() == ["977 KiB", "977 KiB"]


def test_a_box_is_read_under_the_pointer_and_with_the_keys(browser: Any, pool: Pool, tmp_path: Path) -> None:
    with opened(browser, pool, tmp_path) as page:
        page.hover("[data-box='3']")
        assert page.inner_text("#box").startswith("op3 (linear): on ")
        page.focus("[data-box='0']")
        page.keyboard.press("ArrowRight")
        assert page.inner_text("#box").startswith("op1 (linear): on ")


def test_tables_are_sorted_by_a_click_on_a_head(browser: Any, pool: Pool, tmp_path: Path) -> None:
    with opened(browser, pool, tmp_path) as page:
        page.click("#cut-count")
        page.click("#cut-table th:first-child button")
        page.click("#cut-table th:first-child button")
        assert page.locator("#cut-table tbody code").all_text_contents() == ["op7", "op3"]


def test_the_graph_is_zoomed_and_seen_as_a_whole_again(browser: Any, pool: Pool, tmp_path: Path) -> None:
    with opened(browser, pool, tmp_path) as page:
        before = page.locator(".graph").bounding_box()["width"]
        page.click("[data-zoom='1.4']")
        assert page.locator(".graph").bounding_box()["width"] == pytest.approx(1.4 * before, rel=0.01)
        page.click("[data-zoom=all]")
        assert page.locator(".graph").bounding_box()["width"] <= page.evaluate(
            "document.querySelector('.canvas').clientWidth"
        )


def test_the_slowest_device_is_marked_and_a_bar_tells_what_it_is(browser: Any, tmp_path: Path) -> None:
    trained = make_pool(chain(6, is_training=True), make_fabric(2), training=Training(micro_batches=3))
    with opened(browser, trained, tmp_path) as page:
        assert page.locator("#time-line .marked").count() == 1
        assert page.locator("#time-line .slot.back").count() == 6
        page.focus("#time-line svg")
        page.keyboard.press("ArrowRight")
        assert "computes micro-batch 1, forward: from the beginning for 30 ms" in page.inner_text("#bar")
