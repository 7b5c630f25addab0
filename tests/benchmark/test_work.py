"""The order of points and layers: every beginning has its share of both."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tonnage.benchmark.layers import Layer, sample_layers
from tonnage.benchmark.progress import Tally
from tonnage.benchmark.work import LAYERS_AT_ONCE, arrange, in_full, in_words
from tonnage.benchmark.workloads import Point, make_point

POINTS = [make_point("mlp", {"batch": batch}) for batch in range(1, 301)]
LAYERS = list(sample_layers(640, seed=1))


@given(points=st.integers(0, 300), layers=st.integers(0, 640))
def test_every_job_is_there_once_and_in_its_order(points: int, layers: int) -> None:
    jobs = [job for batch in arrange(POINTS[:points], LAYERS[:layers]) for job in batch]
    assert [job for job in jobs if isinstance(job, Point)] == POINTS[:points]
    assert [job for job in jobs if isinstance(job, Layer)] == LAYERS[:layers]


@given(points=st.integers(1, 300), layers=st.integers(1, 640))
def test_every_beginning_has_its_share_of_points_and_layers(points: int, layers: int) -> None:
    batches = arrange(POINTS[:points], LAYERS[:layers])
    singles = sum(isinstance(batch[0], Point) for batch in batches)
    seen = 0
    for number, batch in enumerate(batches, 1):
        seen += isinstance(batch[0], Point)
        assert abs(seen - number * singles / len(batches)) <= 1.5


def test_layers_share_a_profile_but_not_too_many() -> None:
    sizes = [len(batch) for batch in arrange([], LAYERS)]
    assert set(sizes) == {LAYERS_AT_ONCE}
    assert [len(batch) for batch in arrange([], LAYERS[:10])] == [2, 2, 2, 2, 2]


def test_jobs_have_names_for_people() -> None:
    layer = Layer(kind="unary", numbers={"rows": 8, "function": "relu"}, dtype="bfloat16")
    assert in_words(POINTS[0]) == "mlp training, batch 1, float32"
    assert in_words(layer) == "layer unary, bfloat16"
    assert in_full(layer) == "layer unary, bfloat16, rows 8, function relu"


def test_the_time_left_knows_that_points_take_longer_than_layers() -> None:
    tally = Tally()
    assert tally.remaining_seconds(POINTS[:3]) is None
    tally.time(POINTS[:1], 2.0)
    assert tally.remaining_seconds([*POINTS[:2], *LAYERS[:1]]) == 6.0  # no layer is known yet
    tally.time(LAYERS[:40], 4.0)
    assert tally.remaining_seconds([*POINTS[:2], *LAYERS[:10]]) == pytest.approx(5.0)
