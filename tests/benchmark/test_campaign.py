"""Campaigns: which points are chosen, in which order, always the same."""

from itertools import pairwise
from pathlib import Path
from textwrap import dedent

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tonnage.benchmark.axis import axis_of_range, axis_of_values, in_steps
from tonnage.benchmark.campaign import Campaign, points
from tonnage.benchmark.campaign_file import built_in_campaigns, find_campaign, read_campaign
from tonnage.benchmark.sampling import Source
from tonnage.benchmark.workloads import FAMILIES, Point, find_family
from tonnage.errors import NotFound

# Rows of databases are found by keys: if these change, everything would be measured again.
CHOSEN = [
    "fee1c7e08623e26d",
    "f65e47bd8ec119eb",
    "966b9fad36b92b71",
    "974d7f4d1ba4f06e",
    "7ea65ccb39ddef45",
    "463b62c430f97125",
]
DEFAULT = ["b14511ff82a33bad", "626a17ffd9c08faf", "13aa875f43f71049", "cf208ee4b7dbcdb5"]
SHARES = [0.44841514333227195, 0.4308819875443376, 0.4199991293921922]


def campaign(folder: Path, workloads: str, head: str = "name: test\nseed: 1\n") -> Campaign:
    path = folder / "campaign.yaml"
    path.write_text(f"{head}workloads:\n{dedent(workloads)}")
    return read_campaign(path)


# -- sampling -------------------------------------------------------------------------------------------------------------


@given(count=st.integers(1, 60), dimensions=st.integers(1, 8), seed=st.integers(0, 1000))
def test_a_latin_hypercube_has_one_point_in_every_stratum(count: int, dimensions: int, seed: int) -> None:
    drawn = np.array(list(Source([seed]).latin_hypercube(count, dimensions)))

    assert drawn.shape == (count, dimensions)
    for column in drawn.T:
        assert sorted(np.floor(column * count).astype(int)) == list(range(count))


def test_random_shares_never_change() -> None:
    shares = Source([1, 2]).uniform(3).tolist()
    assert shares == SHARES


def test_values_of_a_hypercube_lie_in_every_stratum(tmp_path: Path) -> None:
    entry = "- {family: mlp, sample: latin-hypercube, count: 32, vary: {inputs: [64, 65536], depth: [1, 64]}}\n"
    chosen = points(campaign(tmp_path, entry))
    inputs = sorted(int(point.structure["inputs"]) for point in chosen)
    depths = sorted(int(point.structure["depth"]) for point in chosen)

    edges = [64 * 2 ** (10 * stratum / 32) for stratum in range(33)]  # on the logarithmic scale of the number
    assert all(low - 0.5 <= value <= high + 0.5 for value, (low, high) in zip(inputs, pairwise(edges), strict=True))
    assert [(depth - 1) // 2 for depth in depths] == list(range(32))


def test_choices_of_a_hypercube_occur_equally_often(tmp_path: Path) -> None:
    entry = """\
      - family: mlp
        sample: latin-hypercube
        count: 40
        vary: {width: [8, 4096], activation: [relu, gelu, tanh, sigmoid]}
    """
    chosen = [point.structure["activation"] for point in points(campaign(tmp_path, entry))]
    assert [chosen.count(name) for name in ("relu", "gelu", "tanh", "sigmoid")] == [10, 10, 10, 10]


@given(st.floats(0, 1, exclude_max=True))
def test_every_share_of_a_range_is_an_allowed_value(share: float) -> None:
    for family in FAMILIES.values():
        for number in family.numbers:
            if number.choices:
                axis = axis_of_values(number, list(number.choices))
            else:
                axis = axis_of_range(number, number.low, number.high)
            assert number.check(axis.at(share)) == axis.at(share)


def test_steps_follow_the_scale_of_the_number() -> None:
    convolutional = find_family("convolutional")
    filters = in_steps(axis_of_range(convolutional.number("conv1"), 8, 512), 7)
    layers = in_steps(axis_of_range(convolutional.number("dense"), 0, 5), 6)
    assert filters.values == (8, 16, 32, 64, 128, 256, 512)
    assert layers.values == (0, 1, 2, 3, 4, 5)


# -- points ---------------------------------------------------------------------------------------------------------------

MIXED = """\
  - {family: mlp, sample: random, count: 20, vary: {width: [8, 4096], batch: [1, 512]}}
  - {family: rnn, sample: latin-hypercube, count: 10, vary: {hidden: [8, 512], cell: [lstm, gru]}}
  - {family: unet, sample: grid, vary: {depth: {from: 1, to: 5, steps: 5}, norm: [none, batch, group]}}
"""


def test_the_same_seed_chooses_the_same_points(tmp_path: Path) -> None:
    assert points(campaign(tmp_path, MIXED)) == points(campaign(tmp_path, MIXED))


def test_another_seed_chooses_others(tmp_path: Path) -> None:
    other = points(campaign(tmp_path, MIXED, head="name: test\nseed: 2\n"))
    assert points(campaign(tmp_path, MIXED))[:2] != other[:2]


def test_chosen_points_never_change(tmp_path: Path) -> None:
    chosen = points(campaign(tmp_path, MIXED))
    assert [point.key for point in chosen[:6]] == CHOSEN


def test_no_point_comes_twice(tmp_path: Path) -> None:
    twice = "  - {family: unet, sample: grid, vary: {norm: [none, batch, group]}, fix: {depth: 2}}\n"
    keys = [point.key for point in points(campaign(tmp_path, MIXED + twice))]
    assert len(keys) == len(set(keys)) == 20 + 10 + 15


def test_equal_networks_are_replaced_by_others(tmp_path: Path) -> None:
    entry = "- {family: mlp, sample: random, count: 12, vary: {depth: [1, 12]}}\n"
    depths = {point.structure["depth"] for point in points(campaign(tmp_path, entry))}
    assert depths == set(range(1, 13))


def test_a_space_with_too_few_points_gives_what_it_has(tmp_path: Path) -> None:
    entry = "- {family: mlp, sample: latin-hypercube, count: 50, vary: {depth: [1, 3]}}\n"
    assert len(points(campaign(tmp_path, entry))) == 3


def test_networks_that_are_too_large_are_left_out(tmp_path: Path) -> None:
    entry = "- {family: mlp, sample: grid, vary: {width: {values: [8, 16384]}}, fix: {depth: 64}}\n"
    assert [point.structure["width"] for point in points(campaign(tmp_path, entry))] == [8]


def test_an_entry_without_anything_that_varies_is_one_point(tmp_path: Path) -> None:
    assert len(points(campaign(tmp_path, "- {family: mlp, sample: grid, fix: {depth: 2}}\n"))) == 1


# -- order ----------------------------------------------------------------------------------------------------------------


def test_every_beginning_has_all_entries_alike(tmp_path: Path) -> None:
    families = [point.family for point in points(campaign(tmp_path, MIXED))]
    for end in range(1, 31):
        counts = [families[:end].count(family) for family in ("mlp", "rnn", "unet")]
        assert max(counts) - min(counts) <= 1


@pytest.mark.parametrize(
    "sample", ["grid, vary: {width: {from: 8, to: 4096, steps: 12}, depth: [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12]}",
               "random, count: 144, vary: {width: [8, 4096], depth: [1, 12]}",
               "latin-hypercube, count: 144, vary: {width: [8, 4096], depth: [1, 12]}"]
)  # fmt: skip
def test_every_beginning_covers_the_space(tmp_path: Path, sample: str) -> None:
    chosen = points(campaign(tmp_path, f"- {{family: mlp, sample: {sample}}}\n"))
    assert {quarter(point) for point in chosen[:24]} == {(False, False), (False, True), (True, False), (True, True)}


def quarter(point: Point) -> tuple[bool, bool]:
    return int(point.structure["width"]) > 180, int(point.structure["depth"]) > 6


# -- campaigns that come with the package ---------------------------------------------------------------------------------


def test_two_campaigns_come_with_the_package() -> None:
    assert built_in_campaigns() == ("default", "quick")


@pytest.mark.parametrize("name", built_in_campaigns())
def test_built_in_campaigns_are_valid_and_have_every_family(name: str) -> None:
    found = find_campaign(name)
    chosen = points(found)
    assert found.name == name
    assert {point.family for point in chosen} == set(FAMILIES)
    assert {point.mode for point in chosen} == {"training", "inference"}
    assert {point.precision for point in chosen} >= {"float32", "bfloat16"}


@pytest.mark.parametrize("name", built_in_campaigns())
def test_built_in_campaigns_have_layers(name: str) -> None:
    assert len(find_campaign(name).layers) >= 24


def test_the_default_campaign_takes_about_ten_minutes_on_an_h200() -> None:
    found = find_campaign("default")
    seconds = 1.7 * len(points(found)) + 0.13 * len(found.layers)  # as measured there
    assert 540 < seconds < 620
    assert (found.repetitions, found.steps) == (2, 20)


def test_the_default_campaign_goes_from_the_smallest_to_the_largest_batch() -> None:
    batches = [point.batch for point in points(find_campaign("default"))]
    assert (min(batches), max(batches)) == (1, 512)
    assert find_campaign("default").budget_seconds == 600


def test_points_of_the_default_campaign_never_change() -> None:
    chosen = points(find_campaign("default"))
    assert [point.key for point in chosen[:4]] == DEFAULT


def test_the_quick_campaign_is_small() -> None:
    chosen = points(find_campaign("quick"))
    operations = [find_family(p.family).multiply_adds(p.structure) * p.batch for p in chosen]
    assert len(chosen) <= 25
    assert max(operations) < 50e6


def test_a_campaign_is_found_by_its_path(tmp_path: Path) -> None:
    campaign(tmp_path, MIXED)
    assert find_campaign(tmp_path / "campaign.yaml").name == "test"


def test_an_unknown_campaign_is_answered_with_those_there_are() -> None:
    with pytest.raises(NotFound) as caught:
        find_campaign("defualt")
    assert caught.value.message == "there is no campaign 'defualt'"
    assert caught.value.hint == "name one of default, quick, or a file such as campaign.yaml"
