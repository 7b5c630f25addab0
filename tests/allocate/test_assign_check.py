"""The checker finds what is wrong, whoever made it."""

from dataclasses import replace

import numpy as np
import pytest
from assign_instances import instance

from tonnage.allocate.assign import check, least_makespan
from tonnage.errors import TonnageError

TWO = instance([[1.0, 2.0], [3.0, float("inf")]], counts=[2, 1], memory=[60, 60])
GOOD = replace(least_makespan(TWO), types=np.array([0, 0]), gpus=np.array([0, 1]), positions=np.array([0, 0]))


def test_a_good_assignment_has_its_value() -> None:
    assert check.makespan(TWO, GOOD) == 3.0
    assert check.total_completion(TWO, GOOD) == 4.0


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"types": [0, 0], "gpus": [0, 0], "positions": [0, 1]}, "need 120 bytes, it has 100"),
        ({"types": [0, 1], "gpus": [0, 0]}, "cannot run on type 1"),
        ({"types": [0, 0], "gpus": [0, 2]}, "does not exist"),
        ({"types": [0, -1], "gpus": [0, -1]}, "neither placed nor listed"),
        ({"types": [0, 0], "gpus": [0, 1], "positions": [0, 1]}, "no clear order"),
    ],
)
def test_what_is_wrong_is_named(changes: dict[str, list[int]], message: str) -> None:
    wrong = replace(GOOD, **{name: np.array(values) for name, values in changes.items()})
    with pytest.raises(TonnageError, match=message):
        check.makespan(TWO, wrong)


def test_tasks_that_are_not_resident_only_have_to_fit_alone() -> None:
    alone = replace(TWO, resident=False)
    together = replace(GOOD, types=np.array([0, 0]), gpus=np.array([0, 0]), positions=np.array([1, 0]))
    assert check.makespan(alone, together) == 4.0
    assert check.total_completion(alone, together) == 7.0
