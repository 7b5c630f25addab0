"""When a new model takes the place of the old one."""

import json
from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import pytest
from observed import H200, TRUTH, all_measured

from tonnage.benchmark.cross_validation import CrossValidation, Fold, HeldStep
from tonnage.benchmark.fit_kernels import KindError
from tonnage.benchmark.fit_rows import FitRows
from tonnage.benchmark.fit_spreads import QUANTITIES, measured_quantities
from tonnage.benchmark.kernel_samples import Sample, Source, samples_of
from tonnage.benchmark.observed_steps import observed_step
from tonnage.benchmark.seen import Seen
from tonnage.benchmark.step_samples import StepSample
from tonnage.benchmark.verdict import KERNELS, Judgement, give_verdict, judge
from tonnage.store.rows import HostRow, Measurement

SAME = dict.fromkeys(QUANTITIES, 0.2)


def judgement(new: Mapping[str, float], *, seen: int = 0) -> Judgement:
    return Judgement(steps=30, seen=seen, old={**SAME, KERNELS: 0.1}, new={**SAME, KERNELS: 0.1, **new})


def test_all_quantities_of_a_step_count_alike() -> None:
    assert judgement({"step_seconds": 0.1}).ratio == pytest.approx(0.5 ** (1 / 5))
    assert judgement({"step_seconds": 0.1, "energy_joules_step": 0.4}).ratio == pytest.approx(1.0)


def test_a_quantity_that_nobody_measured_does_not_count() -> None:
    measured = {"step_seconds": 0.2}
    assert Judgement(steps=30, seen=0, old=measured, new={"step_seconds": 0.1}).ratio == pytest.approx(0.5)


def test_smaller_errors_are_better() -> None:
    found = judgement({"step_seconds": 0.1})
    assert found.is_better
    assert found.reason == "the new model is better: its errors of steps are 0.871 times those of the model in use"


def test_equal_errors_are_not_better() -> None:
    assert not judgement({}).is_better
    assert "not better: its errors of steps are 1 times" in judgement({}).reason


def test_larger_errors_are_not_better() -> None:
    assert "not better: its errors of steps are 1.15 times" in judgement({"step_seconds": 0.4}).reason


def test_kernels_must_not_be_worse() -> None:
    found = judgement({"step_seconds": 0.1, KERNELS: 0.2})
    assert not found.is_better
    assert found.reason.endswith("0.871 times those of the model in use, but its errors of kernels are larger")


def test_an_advantage_of_the_old_model_is_told() -> None:
    assert judgement({}).basis == "judged on 30 steps that neither model was fitted to"
    assert "the model in use was fitted to 8 of them, which favours it" in judgement({}, seen=8).basis


# -- on which steps -------------------------------------------------------------------------------------------------------


def held(measurement: Measurement, hosts: list[HostRow], wrong: float) -> HeldStep:
    assert measurement.step_seconds is not None
    step = StepSample(
        name=measurement.key, family="mlp", gpu=H200, step=observed_step(measurement, hosts),
        step_seconds=measurement.step_seconds.mean,
    )  # fmt: skip
    estimated = {name: wrong * value for name, value in measured_quantities(step).items()}
    return HeldStep(step=step, group="mlp", estimated=dict.fromkeys(QUANTITIES, 0.0) | estimated)


@pytest.fixture(scope="module")
def validation() -> CrossValidation:
    """Thirty steps that the new model estimates 10 % too long."""
    measured = list(all_measured(30))
    kernels: list[Sample] = []
    for measurement, rows, _ in measured:
        kernels += samples_of(Source.of("H200", measurement), rows)
    return CrossValidation(
        folds=(Fold(family="mlp"),),
        steps=tuple(held(measurement, hosts, 1.1) for measurement, _, hosts in measured),
        kernels=tuple(kernels),
        kernel_seconds=1.1 * np.array([sample.seconds for sample in kernels]),
    )


def having_seen(validation: CrossValidation, count: int) -> dict[str, object]:
    return {"seen": Seen.of(("H200", step.step.name) for step in validation.steps[:count]).as_dict()}


def test_both_models_are_judged_on_the_same_steps(validation: CrossValidation) -> None:
    found = judge(validation, TRUTH)
    assert (found.steps, found.seen) == (30, 0)
    assert found.new == pytest.approx({"step_seconds": 0.1, KERNELS: 0.1})
    assert found.old["step_seconds"] < 1e-6
    assert found.old[KERNELS] < 0.03


def test_one_long_step_does_not_decide_about_kernels(validation: CrossValidation) -> None:
    first = validation.steps[0].step.name
    longer = [replace(s, seconds=1e6 * s.seconds) if s.key == first else s for s in validation.kernels]
    assert judge(replace(validation, kernels=tuple(longer)), TRUTH).old[KERNELS] < 0.03


def test_steps_that_the_old_model_has_seen_do_not_judge(validation: CrossValidation) -> None:
    found = judge(validation, replace(TRUTH, fitted=having_seen(validation, 10)))
    assert (found.steps, found.seen) == (20, 0)


def test_if_few_are_unseen_all_judge_and_the_verdict_says_so(validation: CrossValidation) -> None:
    found = judge(validation, replace(TRUTH, fitted=having_seen(validation, 11)))
    assert (found.steps, found.seen) == (30, 11)
    assert "fitted to 11 of them" in found.basis


def test_measured_shapes_do_not_help_the_old_model(validation: CrossValidation) -> None:
    everything = {digest: 1.0 for held in validation.steps for digest in held.step.step.digests if digest is not None}
    assert judge(validation, replace(TRUTH, measured={"H200": everything})) == judge(validation, TRUTH)


def test_a_verdict_can_be_printed_as_json(validation: CrossValidation) -> None:
    rows = FitRows(
        kernels=list(validation.kernels),
        shipped=[],
        steps=[held.step for held in validation.steps],
        costs=[],
        copies=[],
    )
    left_out = {"L4": KindError(kind="all", rows=3, median=0.1, time_weighted=0.2, bias=0.0)}
    plain = json.loads(json.dumps(give_verdict(rows, validation, left_out, TRUTH).as_dict()))
    assert (plain["gpus"], plain["measurements"], plain["steps"], plain["held_back"]) == (["H200"], 30, 30, ["mlp"])
    assert plain["is_better"] is False
    assert plain["gpus_left_out"]["L4"]["time_weighted"] == 0.2
    assert set(plain["judgement"]) == {"steps", "seen", "old", "new", "ratio", "basis", "reason"}
    assert {(s["family"], s["quantity"], s["rows"]) for s in plain["scores"]} == {
        ("all", "step_seconds", 30), ("mlp", "step_seconds", 30),
    }  # fmt: skip
