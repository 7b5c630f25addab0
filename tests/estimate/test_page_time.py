"""Times in the HTML report: summary, table of GPUs, time-line, flame graph and comparison."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from page_reports import (
    REPORTS,
    Checker,
    make_estimate,
    make_report,
    make_time,
    make_timed_report,
    make_view,
)

from tonnage.estimate.estimate import Interval
from tonnage.estimate.page import render_fragment, render_page
from tonnage.estimate.page_scale import marks, place, scale_of
from tonnage.estimate.page_text import duration_range, epoch_cost, thousand_steps_cost
from tonnage.units import GIB, format_joules, format_seconds, format_usd


def shown(name: str) -> str:
    return Checker(render_page(REPORTS[name])).text


def test_the_summary_names_the_shortest_step_and_the_cheapest_gpu() -> None:
    text = shown("timed")
    assert "A step is shortest on GPU 65: 35 ms (28 to 43.8 ms)." in text
    assert "Where a price is known, the cheapest is GPU 63: $0.13 for an epoch." in text


def test_the_summary_of_one_gpu_says_what_its_step_waits_for() -> None:
    assert "A step takes 45 ms (36 to 56.2 ms); the GPU waits for the host." in shown("timed, one GPU")


def test_facts_hold_power_energy_epoch_cost_and_basis() -> None:
    text = shown("timed, one GPU")
    assert "time of a step 45 ms 36 to 56.2 ms specification" in text
    assert "power 300 W 13.5 J a step" in text
    assert "bound by host GPU busy for 40 %" in text
    assert "cost $0.16 an epoch $2.50 an hour" in text


def test_the_parts_of_a_step_are_told_with_their_shares() -> None:
    text = shown("timed, one GPU")
    assert "forward 13.5 ms 30 %" in text
    assert "backward 24.8 ms 55 %" in text
    assert "copies 2.25 ms 5 %" in text


def test_a_report_without_times_has_nothing_about_time() -> None:
    text = shown("training")
    for words in ("Time-line", "GPU time by module", "GPUs compared", "bound by", "Overview", "two time-lines"):
        assert words not in text


def test_the_table_has_times_for_each_gpu() -> None:
    text = shown("timed")
    assert "step low to high power energy/step epoch cost/epoch cost/1,000 steps bound by basis of time" in text
    assert "35 ms 28 to 43.8 ms 300 W 10.5 J 3 min" in text


def test_columns_of_epoch_and_cost_appear_only_where_they_are_known() -> None:
    text = shown("timed, without a price")
    assert "energy/step bound by" in text
    assert "cost/" not in text


def test_a_gpu_without_a_time_is_sorted_last() -> None:
    page = render_page(REPORTS["timed, some not"])
    assert 'data-sort="1e+300">–</td>' in page


def test_several_gpus_are_counted_in_their_name() -> None:
    text = shown("several GPUs")
    assert "4 × H200" in text
    assert "Fits on all 3 configurations." in text
    assert "network 10 ms" in text


def test_the_longest_calls_are_in_a_table() -> None:
    text = shown("timed")
    assert "The 20 calls that take longest, as a table" in text
    assert "mm model.blocks.0.attention forward" in text


def test_a_time_line_says_how_busy_host_and_gpu_are() -> None:
    assert "45 ms for 400 calls. The GPU works for 89 % of it, the host needs 30 ms" in shown("timed")


def test_the_flame_graph_holds_every_box_once() -> None:
    page = render_page(make_timed_report())
    assert page.count('role="treeitem"') == 1 + 1 + 10 * 5 + 2
    assert "blocks.3.mlp" in Checker(page).text


def test_calls_stand_in_the_page_for_the_script() -> None:
    page = Checker(render_page(make_timed_report(curve=None)))
    (data,) = [json.loads(text) for kind, text in page.scripts if kind == "application/json"]
    assert data["step"] == 45_000_000
    assert [len(lane) for lane in data["lanes"]] == [400, 400]
    assert data["names"][data["lanes"][1][0][3]] == "mm"


def test_gpus_are_compared_by_time_energy_and_cost_where_known() -> None:
    text = shown("timed")
    for title in ("Time of a step", "Time of an epoch", "Energy of a step", "Cost of an epoch", "Cost of 1,000 steps"):
        assert title in text
    assert "Cost of" not in shown("timed, without a price")


def test_energy_of_a_sample_is_left_out_where_steps_have_several_batches() -> None:
    assert "Energy of a sample" in shown("timed")
    assert "Energy of a sample" not in shown("several GPUs")


def test_the_best_twenty_are_shown_first() -> None:
    page = render_page(make_timed_report())
    first, rest = page.split('data-quantity="step"')[1].split("<details>")[:2]
    assert first.count("<li>") == 20
    assert first.index("GPU 65") < first.index("GPU 64")
    assert "41 more GPUs" in rest


def test_gpus_that_do_not_fit_are_compared_only_if_none_does() -> None:
    small, large = make_estimate("small", GIB, time=make_time()), make_estimate("large", time=make_time())
    compared = render_page(make_timed_report(estimates=(small, large, replace(large, gpu="other"))))
    assert "<b>large</b>" in compared
    assert "<b>small</b>" not in compared
    assert "It fits on none of them" in shown("timed, none fits")


def test_speed_over_batch_sizes_is_drawn_for_each_gpu() -> None:
    page = render_page(REPORTS["timed sweep"])
    assert "Samples a second over batch size" in page
    assert page.count("<g data-gpu=") == 61  # those that fit
    assert "A line ends where" in page
    assert "shortest step" in Checker(page).text


def test_a_sweep_of_memory_alone_has_no_chart_of_speed() -> None:
    assert "Samples a second" not in render_page(make_report(sweep=(make_report(batch=128),)))


def test_a_fragment_shows_the_step_in_little_room() -> None:
    text = Checker(render_fragment(REPORTS["timed, one GPU"])).text
    assert "A step on GPU 24: 45 ms, 300 W, 13.5 J; the GPU waits for the host specification forward 13.5 ms" in text
    assert "Time-line" not in text


def test_a_page_of_many_calls_stays_small() -> None:
    assert len(render_page(make_timed_report(step=make_view(750)))) < 600_000


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.0, "0 us"), (0.000_999_9, "1000 us"), (0.0123, "12.3 ms"), (0.9999, "1000 ms"), (7500.0, "2 h 05 min")],
)
def test_durations_never_use_powers_of_ten(seconds: float, text: str) -> None:
    assert format_seconds(seconds) == text


def test_energy_and_money_are_written_as_people_read_them() -> None:
    assert [format_joules(joules) for joules in (9.624, 1234.0, 2.5e6)] == ["9.62 J", "1.23 kJ", "2.5 MJ"]
    assert [format_usd(usd) for usd in (0, 0.0213, 12.5, 1250)] == ["$0.00", "$0.0213", "$12.50", "$1,250"]


def test_a_range_names_its_unit_once() -> None:
    assert duration_range(Interval(0.03, 0.0212, 0.0334)) == "21.2 to 33.4 ms"
    assert duration_range(Interval(0.9, 0.5, 1.5)) == "500 ms to 1.5 s"
    assert duration_range(Interval(9000, 7500, 11000)) == "2 h 05 min to 3 h 03 min"


def test_cost_is_price_times_time() -> None:
    time = make_time(0.036, epoch_seconds=Interval(3600, 1800, 7200))
    assert epoch_cost(time) == Interval(2.5, 1.25, 5.0)
    assert thousand_steps_cost(time) == Interval(pytest.approx(0.025), pytest.approx(0.02), pytest.approx(0.03125))
    assert epoch_cost(replace(time, cost_usd_hour=None)) is None


def test_places_on_a_scale_grow_with_the_logarithm() -> None:
    scale = scale_of([Interval(1, 1.1, 10), Interval(10, 1.1, 1000 / 1.1)])
    assert [round(place(value, scale)) for value in (1, 10, 100, 1000)] == [0, 33, 67, 100]
    assert place(0, scale) == 0
    assert marks((0.5, 20)) == [1, 3, 10]
    assert scale_of([Interval(0, 0, 0)])[0] < scale_of([])[1]
