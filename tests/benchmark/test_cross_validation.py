"""Who judges, who teaches, and whose errors make whose bounds."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from observed import TRUTH, make_database

from tonnage.benchmark import cross_validation
from tonnage.benchmark.cross_validation import Fold, HeldStep, cross_validate, folds_of, outcomes_of
from tonnage.benchmark.fit_rows import FitRows, read_rows
from tonnage.benchmark.fit_spreads import QUANTITIES, measured_quantities
from tonnage.benchmark.kernel_samples import Sample
from tonnage.benchmark.scores import scores_of
from tonnage.benchmark.step_samples import StepSample
from tonnage.estimate.time_model import TimeModel
from tonnage.store.database import open_database

FAMILIES = ("mlp", "rnn", "unet", "layer:linear")


@pytest.fixture(scope="module")
def rows(tmp_path_factory: pytest.TempPathFactory) -> FitRows:
    path: Path = tmp_path_factory.mktemp("rows") / "benchmark.db"
    with open_database(make_database(path, 60, families=FAMILIES)) as database:
        found = read_rows(database)
    return replace(found, shipped=[replace(sample, gpu="L4") for sample in found.kernels])


@pytest.fixture
def taught(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """What each fit was given; nothing is fitted."""
    calls: list[dict[str, Any]] = []

    def remember(kernels: list[Sample], steps: list[StepSample], operators: Any, start: TimeModel, say: Any) -> Any:
        say("fitting")
        calls.append({"kernels": kernels, "steps": steps, "operators": operators, "start": start})
        return start

    monkeypatch.setattr(cross_validation, "fit_parts", remember)
    return calls


def test_each_family_judges_in_turn(rows: FitRows) -> None:
    assert [fold.name for fold in folds_of(rows)] == ["mlp", "rnn", "unet"]


def test_with_one_family_every_fifth_measurement_judges(rows: FitRows) -> None:
    (fold,) = folds_of(replace(rows, steps=[step for step in rows.steps if step.family == "mlp"]))
    assert (fold.name, fold.keys) == ("every fifth measurement", frozenset(rows.keys[::5]))


def test_a_family_is_not_left_out_if_too_few_steps_would_teach(rows: FitRows) -> None:
    few = [s for s in rows.steps if s.family == "mlp"] + [s for s in rows.steps if s.family == "rnn"][:3]
    assert [fold.name for fold in folds_of(replace(rows, steps=few))] == ["every fifth measurement"]


def test_a_family_is_not_left_out_if_too_few_kernels_would_teach(rows: FitRows) -> None:
    few = [sample for sample in rows.kernels if sample.family == "mlp"]
    assert [fold.name for fold in folds_of(replace(rows, kernels=few))] == ["every fifth measurement"]


def test_a_family_is_predicted_without_having_been_seen_on_any_gpu(rows: FitRows, taught: list[dict[str, Any]]) -> None:
    cross_validate(rows, [Fold(family="rnn")], TRUTH)
    (fit,) = taught
    assert {sample.family for sample in fit["kernels"]} == {"mlp", "unet", "layer:linear"}
    assert {sample.gpu for sample in fit["kernels"]} == {"H200", "L4"}
    assert {step.family for step in fit["steps"]} == {"mlp", "unet"}


def test_costs_of_operators_are_not_those_of_the_family_that_is_left_out(
    rows: FitRows, taught: list[dict[str, Any]]
) -> None:
    slow = [cost._replace(seconds=1.0) if cost.family == "rnn" else cost for cost in rows.costs]
    cross_validate(replace(rows, costs=slow), [Fold(family="rnn")], TRUTH)
    assert max(taught[0]["operators"].values()) < 1e-3


def test_measured_shapes_do_not_help(rows: FitRows, taught: list[dict[str, Any]]) -> None:
    cross_validate(rows, [Fold(family="rnn")], replace(TRUTH, measured={"H200": {"0": 1.0}}))
    assert taught[0]["start"].measured == {}


@pytest.mark.usefixtures("taught")
def test_every_step_judges_once_and_on_the_users_gpus_only(rows: FitRows) -> None:
    told: list[str] = []
    found = cross_validate(rows, folds_of(rows), TRUTH, told.append)
    assert sorted(held.step.name for held in found.steps) == sorted(step.name for step in rows.steps)
    assert {sample.gpu for sample in found.kernels} == {"H200"}
    assert len(found.kernels) == len(found.kernel_seconds)
    assert told == [f"without {name}: fitting" for name in ("mlp", "rnn", "unet")]


@pytest.mark.usefixtures("taught")
def test_a_model_that_knows_the_law_has_no_errors(rows: FitRows) -> None:
    found = cross_validate(rows, folds_of(rows), TRUTH)
    scores = scores_of("new", outcomes_of(found.steps, 0.9), QUANTITIES)
    assert {score.family for score in scores} == {"all", "mlp", "rnn", "unet"}
    assert {score.quantity for score in scores} == set(QUANTITIES)
    assert all(score.ninetieth < 1e-6 for score in scores)


def held_steps(rows: FitRows, factors: dict[str, float]) -> list[HeldStep]:
    """Estimates of each family are wrong by a factor."""
    return [
        HeldStep(step=step, group=step.family, estimated={q: factors[step.family] * measured[q] for q in QUANTITIES})
        for step in rows.steps
        if len(measured := measured_quantities(step)) == len(QUANTITIES)
    ]


def test_bounds_of_a_family_come_from_the_others(rows: FitRows) -> None:
    outcomes = outcomes_of(held_steps(rows, {"mlp": 1.1, "rnn": 1.1, "unet": 2.0}), 0.9)
    steps = {s.family: s for s in scores_of("new", outcomes, ["step_seconds"])}
    assert (steps["mlp"].covered, steps["rnn"].covered, steps["unet"].covered) == (1.0, 1.0, 0.0)
    assert steps["unet"].median == pytest.approx(1.0)


def test_without_other_families_a_factor_of_three_is_promised(rows: FitRows) -> None:
    steps = held_steps(rows, {"mlp": 2.9, "rnn": 3.1, "unet": 1.0})
    for family, covered in (("mlp", 1.0), ("rnn", 0.0)):
        alone = outcomes_of([held for held in steps if held.group == family], 0.9)
        assert {score.covered for score in scores_of("new", alone, QUANTITIES)} == {covered}
