"""Which measurements a model was fitted to."""

from typing import Any

import pytest

from tonnage.benchmark.seen import Seen
from tonnage.benchmark.time_models import shipped_model

BOTH = Seen.of([("H200", "0000a56693671938"), ("H200", "ffffa56693671938")])


def test_a_measurement_is_known_again() -> None:
    assert ("H200", "0000a56693671938") in BOTH
    assert ("H200", "1111a56693671938") not in BOTH


def test_the_same_point_on_another_gpu_is_another_measurement() -> None:
    assert ("L4", "0000a56693671938") not in BOTH


def test_what_a_model_remembers_is_short() -> None:
    assert BOTH.as_dict() == {"H200": "0000a566 ffffa566"}
    assert Seen.by({"seen": BOTH.as_dict()}) == BOTH


@pytest.mark.parametrize("fitted", [{}, {"seen": None}, {"seen": "H200"}, {"seen": {}}, {"seen": {"H200": ""}}])
def test_a_model_that_does_not_say_has_seen_nothing(fitted: dict[str, Any]) -> None:
    assert Seen.by(fitted) == Seen()


def test_what_was_seen_before_is_not_forgotten() -> None:
    assert ("L4", "1") in BOTH | Seen.of([("L4", "1")])
    assert ("H200", "0000a56693671938") in BOTH | Seen()


def test_the_shipped_model_says_what_it_has_seen() -> None:
    assert set(Seen.by(shipped_model().fitted).as_dict()) == {"H200"}
