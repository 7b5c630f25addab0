"""The page of distributions: every number of it stands in the file, names cannot break it, and pictures say the truth."""

from __future__ import annotations

import json
import re
from base64 import b64encode
from collections.abc import Sequence
from dataclasses import replace
from hashlib import sha256
from html.parser import HTMLParser
from itertools import combinations, pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from split_pages import AXES, HOSTILE, chain, make_fabric, make_network, whole_page

from tonnage.split.cluster_problem import Training
from tonnage.split.distributing import best_for, front
from tonnage.split.distribution import Distribution
from tonnage.split.layout import Layout
from tonnage.split.metrics import Evaluation
from tonnage.split.network import Network
from tonnage.split.page import render_page
from tonnage.split.page_boxes import boxes_of
from tonnage.split.page_front import axis_of
from tonnage.split.page_layout import BOX_HEIGHT, BOX_WIDTH, lay_out
from tonnage.split.page_stream import stream_of
from tonnage.split.page_words import sentence, value_words
from tonnage.split.pipeline import training_step
from tonnage.split.pool import Pool, make_pool
from tonnage.split.targets import Target


@pytest.fixture(scope="module")
def pool() -> Pool:
    return make_pool(chain(12), make_fabric(3))


def data_of(page: str) -> dict[str, Any]:
    found = re.search(r'<script type="application/json" id="data">(.*?)</script>', page, re.DOTALL)
    assert found is not None
    return json.loads(found[1])  # type: ignore[no-any-return]


def placed(pool: Pool, places: Sequence[int]) -> Distribution:
    """A distribution that nobody solved for."""
    metrics = pool.add(Layout(tuple(places)))
    devices, operations = pool.fabric.devices, pool.network.operations
    assignment = {each.id: devices[place].name for each, place in zip(operations, places, strict=True)}
    return Distribution(
        network="net", target="throughput", value=metrics.period_seconds, bound=0.0, proven_optimal=False,
        assignment=assignment, metrics=metrics,
    )  # fmt: skip


class Tags(HTMLParser):
    """Names and attributes of the elements that a browser would see."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))


# -- the document ---------------------------------------------------------------------------------------------------------


def test_the_page_asks_for_nothing_and_runs_its_own_script_alone(pool: Pool) -> None:
    page = whole_page(pool)
    script = page[page.rindex("<script>") + len("<script>") : page.rindex("</script>")]
    digest = b64encode(sha256(script.encode()).digest()).decode()

    assert f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{digest}'" in page
    assert not [tag for tag, attributes in Tags(page).found if {"src", "href"} & attributes.keys()]


def test_each_distribution_is_in_the_page_once_with_the_device_of_every_operation(pool: Pool) -> None:
    best, choices = best_for(pool, Target.THROUGHPUT), front(pool, AXES)
    data = data_of(render_page(pool, [best], front=choices, axes=AXES))

    names = [device["name"] for device in data["devices"]]
    shown = [[names[device] for device in view["places"]] for view in data["views"]]
    wanted = [list(each.assignment.values()) for each in [best, *choices]]
    assert shown == list(map(list, dict.fromkeys(map(tuple, wanted))))


def test_each_point_of_the_front_leads_to_its_own_distribution(pool: Pool) -> None:
    choices = front(pool, AXES)
    page = whole_page(pool)
    views = data_of(page)["views"]

    points = [attributes for _, attributes in Tags(page).found if attributes.get("class") == "point"]
    periods = [views[int(point["data-view"] or 0)]["metrics"]["period"] for point in points]
    assert len(points) == len(choices) > 1
    assert sorted(periods) == sorted(each.metrics.period_seconds for each in choices if each.metrics)


def test_a_third_target_is_the_size_of_points(pool: Pool) -> None:
    axes = (*AXES, Target.NODES)
    page = render_page(pool, [], front=front(pool, axes), axes=axes)

    points = [attributes for _, attributes in Tags(page).found if attributes.get("class") == "point"]
    sizes = {point["aria-label"]: float(point["r"] or 0) for point in points}
    assert max(sizes, key=lambda words: sizes[words]).endswith("devices 3")
    assert min(sizes, key=lambda words: sizes[words]).endswith("devices 1")


def test_cut_tensors_are_those_that_the_checker_counts(pool: Pool) -> None:
    places = [0] * 4 + [1] * 4 + [2] * 4
    data = data_of(render_page(pool, [placed(pool, places)]))

    transfers = Evaluation(pool.network, pool.fabric, places).transfers
    assert [(cut[0], cut[1]) for cut in data["views"][0]["cuts"]] == [
        (each.producer, each.target) for each in transfers
    ]
    assert data["views"][0]["cuts"][0][2] == pytest.approx(1e-4 + 1e-3)


def test_names_of_operations_and_devices_cannot_break_the_page() -> None:
    network = chain(4, names=[HOSTILE] * 4)
    pool = make_pool(network, make_fabric(2, [HOSTILE, f"{HOSTILE} too"]))
    measured = {"beside": [{"what": HOSTILE, "predicted": 1.0, "measured": 2.0}]}
    page = whole_page(pool, measured=measured)

    assert "<img" not in page
    assert not set(page) & {"\x00", "\ud800", "\u202e"}
    assert page.encode()
    names = [data_of(page)["devices"][0]["name"], *data_of(page)["operations"]["words"]]
    assert names[0] == "</script><img src=x onerror=alert(1)>\ufffd\ufffd\ufffd\"'&"
    assert not set("".join(names)) & {"\x00", "\ud800", "\u202e"}
    assert [tag for tag, _ in Tags(page).found].count("script") == 2


def test_a_page_of_one_distribution_has_no_front_and_one_without_a_run_no_measurements(pool: Pool) -> None:
    page = render_page(pool, [best_for(pool, Target.THROUGHPUT)])

    assert 'id="front"' not in page
    assert 'id="measured"' not in page
    assert len(data_of(page)["views"]) == 1


def test_predicted_stands_beside_measured_with_the_whole_first(pool: Pool) -> None:
    beside = [
        {"what": "box-0->box-1", "predicted": 0.5, "measured": 1.0},
        {"what": "box-0", "predicted": 1.1, "measured": 1.0},
        {"what": "period", "predicted": 1.0, "measured": 1.0},
    ]
    page = whole_page(pool, measured={"beside": beside, "report": {"samples": 32, "is_equal": True}})

    table = page[page.index('id="measured"') :]
    assert table.index(">period<") < table.index(">box-0<") < table.index(">box-0 → box-1<")
    assert "<td>equal</td>" in table
    assert "<td>10.0 % more</td>" in table
    assert "<td>50.0 % less</td>" in table
    assert "equal to those of the network in one process, to the last bit" in table


def test_a_page_of_a_thousand_operations_and_forty_distributions_stays_below_a_megabyte(pool: Pool) -> None:
    large = Pool(chain(1000), make_fabric(9), None, pool.answer)
    choices = [placed(large, [min((at + shift) // 111, 8) for at in range(1000)]) for shift in range(40)]
    page = render_page(large, choices[:1], front=choices, axes=AXES)

    assert len(data_of(page)["views"]) == 40
    assert len(page) < 1_000_000


# -- words ----------------------------------------------------------------------------------------------------------------


def test_a_distribution_is_told_with_what_it_means_and_how_far_from_the_best_it_can_be(pool: Pool) -> None:
    best = best_for(pool, Target.THROUGHPUT)
    words = sentence(pool.network, best)

    assert "A sample every 40 ms, 25 a second;" in words
    assert words.endswith("No distribution is better.")
    assert sentence(pool.network, placed(pool, [0] * 12)).endswith("No bound is known.")


def test_values_have_the_unit_of_their_target() -> None:
    values = {target: value_words(target, 0.05) for target in Target if target is not Target.NODES}

    assert values == {"throughput": "50 ms", "latency": "50 ms", "energy": "0.05 J", "memory": "5 %", "step": "50 ms"}
    assert value_words(Target.NODES, 3.0) == "3"


@pytest.mark.parametrize(
    ("target", "values", "title", "ticks"),
    [
        (Target.LATENCY, [0.2, 0.8], "latency (ms)", ["200", "400", "600", "800"]),
        (Target.ENERGY, [1000.0, 3000.0], "energy (kJ)", ["1.0", "1.5", "2.0", "2.5", "3.0"]),
        (Target.NODES, [1.0, 4.0], "devices", ["1", "2", "3", "4"]),
        (Target.LATENCY, [2.0, 2.0], "latency (s)", ["1.8", "1.9", "2.0", "2.1", "2.2"]),
    ],
)
def test_axes_have_round_numbers_and_a_unit(target: Target, values: list[float], title: str, ticks: list[str]) -> None:
    axis = axis_of(target, values, 0, 100)

    assert axis.title == title
    assert [text for _, text in axis.ticks()] == ticks
    assert all(0 <= axis.at(value) <= 100 for value in values)


# -- boxes and where they stand -------------------------------------------------------------------------------------------


def test_few_operations_have_a_box_each() -> None:
    boxes = boxes_of(chain(5))

    assert boxes.members == ((0,), (1,), (2,), (3,), (4,))
    assert boxes.labels == ("linear",) * 5


def test_operations_of_one_module_are_joined_first() -> None:
    names = [f"layers.{layer}.{part}" for layer in range(3) for part in ("attention", "attention", "mlp")]
    boxes = boxes_of(chain(9, names=names), most=6)

    assert boxes.members == ((0, 1), (2,), (3, 4), (5,), (6, 7), (8,))
    assert boxes.labels[::2] == ("layers.0.attention", "layers.1.attention", "layers.2.attention")


def test_a_box_over_several_modules_names_the_first_and_the_last() -> None:
    boxes = boxes_of(chain(8, names=[f"layers.{layer}" for layer in range(8)]), most=2)

    assert boxes.labels == ("layers.0–3", "layers.4–7")


def test_where_no_neighbours_can_be_joined_there_are_few_boxes_all_the_same() -> None:
    edges = [
        (position, 10 * (position // 10 + 1) + reader) for position in range(50) for reader in range(10)
    ]  # six layers of ten, each reading all of the one before it
    boxes = boxes_of(make_network(edges), most=20)

    assert len(boxes.members) <= 20
    assert all(box < follower for box, follower in boxes.edges)


@st.composite
def graphs(draw: st.DrawFn) -> Network:
    count = draw(st.integers(2, 30))
    pairs = st.tuples(st.integers(0, count - 1), st.integers(0, count - 1)).filter(lambda pair: pair[0] < pair[1])
    edges = draw(st.lists(pairs, min_size=1, max_size=60, unique=True))
    names = draw(st.lists(st.sampled_from(["a.b", "a.c", "d", ""]), min_size=count, max_size=count))
    return make_network(sorted(edges), names)


@given(graphs(), st.integers(1, 12))
def test_boxes_hold_every_operation_once_and_never_wait_for_each_other_in_a_circle(network: Network, most: int) -> None:
    boxes = boxes_of(network, most)

    assert len(boxes.members) <= max(most, 1)
    assert sorted(each for members in boxes.members for each in members) == list(range(len(network.operations)))
    assert all(box < follower for box, follower in boxes.edges)


@given(graphs())
def test_boxes_do_not_lie_on_each_other_and_lines_lead_from_box_to_box(network: Network) -> None:
    boxes = boxes_of(network)
    layout = lay_out(boxes)

    for first, second in combinations(layout.boxes, 2):
        assert abs(first.x - second.x) >= BOX_WIDTH or abs(first.y - second.y) >= BOX_HEIGHT
    for (source, target), route in layout.routes.items():
        assert (route[0], route[-1]) == (layout.boxes[source], layout.boxes[target])
    assert all(BOX_WIDTH / 2 < point.x < layout.width - BOX_WIDTH / 2 for point in layout.boxes)
    assert all(BOX_HEIGHT / 2 < point.y < layout.height - BOX_HEIGHT / 2 for point in layout.boxes)


# -- time-lines -----------------------------------------------------------------------------------------------------------


def test_in_a_stream_a_sample_leaves_once_in_a_period_and_the_first_one_after_the_latency() -> None:
    evaluation = Evaluation(chain(12), make_fabric(3), [0] * 4 + [1] * 5 + [2] * 3)
    stream = stream_of(evaluation, None, 1000)

    ends = [slot.end_seconds for slot in stream.slots if slot.device == 2]
    assert ends[0] == pytest.approx(evaluation.latency_seconds)
    assert [late - early for early, late in pairwise(ends)] == pytest.approx(
        [evaluation.period_seconds] * (stream.samples - 1)
    )
    assert stream.is_whole


@given(graphs(), st.randoms(use_true_random=False))
def test_no_device_and_no_lane_does_two_things_at_a_time_wherever_operations_are(network: Network, random: Any) -> None:
    fabric = make_fabric(3)
    evaluation = Evaluation(network, fabric, [random.randrange(3) for _ in network.operations])
    stream = stream_of(evaluation, None, 10_000)

    assert len(stream.slots) == stream.samples * len(evaluation.segments)
    by_place: dict[str, list[tuple[float, float]]] = {}
    for slot in stream.slots:
        by_place.setdefault(f"device {slot.device}", []).append((slot.begin_seconds, slot.end_seconds))
    for move in stream.moves:
        for lane in fabric.ways[move.source, move.target].lanes:
            by_place.setdefault(f"lane {lane}", []).append((move.begin_seconds, move.end_seconds))
    for spans in by_place.values():
        spans.sort()
        assert all(early[1] <= late[0] + 1e-9 for early, late in pairwise(spans))


def test_the_time_line_of_training_is_its_schedule_with_gradients_on_their_way_back() -> None:
    evaluation = Evaluation(chain(6, is_training=True), make_fabric(2), [0] * 3 + [1] * 3)
    stream = stream_of(evaluation, Training(micro_batches=3), 1000)

    schedule = training_step(evaluation, 3)
    assert set(stream.slots) == set(schedule.slots)
    assert stream.end_seconds == schedule.step_seconds
    assert {(move.source, move.target, move.is_backward) for move in stream.moves} == {(0, 1, False), (1, 0, True)}
    assert len(stream.moves) == 6


def test_devices_that_take_turns_have_rows_of_their_own() -> None:
    evaluation = Evaluation(chain(6), make_fabric(3), [0] * 2 + [1] * 4, replicas=[(1, 2)])
    stream = stream_of(evaluation, None, 1000)

    assert {slot.micro_batch % 2 for slot in stream.slots if slot.device == 1} == {0}
    assert {slot.micro_batch % 2 for slot in stream.slots if slot.device == 2} == {1}
    assert {(move.source, move.target, move.sample % 2) for move in stream.moves} == {(0, 1, 0), (0, 2, 1)}
    ends = sorted(slot.end_seconds for slot in stream.slots if slot.device)
    assert [late - early for early, late in pairwise(ends)] == pytest.approx([0.02] * (stream.samples - 1))


def test_the_time_line_of_training_follows_the_turns() -> None:
    evaluation = Evaluation(chain(6, is_training=True), make_fabric(3), [0] * 2 + [1] * 4, replicas=[(1, 2)])
    stream = stream_of(evaluation, Training(micro_batches=4), 1000)

    ways = {(move.source, move.target, move.sample % 2, move.is_backward) for move in stream.moves}
    assert ways == {(0, 1, 0, False), (0, 2, 1, False), (1, 0, 0, True), (2, 0, 1, True)}


def test_a_page_names_the_devices_that_take_turns(pool: Pool) -> None:
    found = replace(placed(pool, [0] * 6 + [1] * 6), replicas={"box-1": ("box-2",)}, metrics=None)
    view = data_of(render_page(pool, [found]))["views"][0]

    assert view["replicas"] == [[1, 2]]
    assert [device for device, _ in view["busy"]] == [device for device, _ in view["memory"]] == [0, 1, 2]
    assert view["traffic"] == [[0, 1, 500_000], [0, 2, 500_000]]


def test_a_long_time_line_leaves_out_what_comes_last_and_says_so() -> None:
    evaluation = Evaluation(chain(6, is_training=True), make_fabric(2), [0] * 3 + [1] * 3)
    stream = stream_of(evaluation, Training(micro_batches=64), 100)

    assert len(stream.slots) == 100
    assert not stream.is_whole
    assert max(slot.begin_seconds for slot in stream.slots) < stream.end_seconds / 2
