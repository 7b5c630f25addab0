"""A whole fit of a small database, with fits that take no time."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from observed import ENVIRONMENT, TRUTH, make_database

from tonnage.benchmark import cross_validation, refit
from tonnage.benchmark.kernel_samples import Sample
from tonnage.benchmark.seen import Seen
from tonnage.benchmark.time_models import shipped_model
from tonnage.benchmark.verdict import Verdict
from tonnage.estimate.kernels.model import Residual
from tonnage.estimate.time_model import Spreads, TimeModel
from tonnage.store.database import open_database

OLD = TimeModel(
    measured={"H200": {"old": 1.0}, "L4": {"older": 2.0}},
    spreads=Spreads(factors={"calibrated": {"step_seconds": 0.5}, "specification": {"step_seconds": 0.6}}),
    fitted={"seen": {"L4": "0123abcd"}},
)
CALIBRATED = replace(TRUTH.kernels, residuals=(Residual(gpu="H200", architecture="Hopper"),))


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_database(tmp_path_factory.mktemp("refit") / "benchmark.db", 60, families=("mlp", "rnn", "layer:linear"))


@pytest.fixture
def starts(monkeypatch: pytest.MonkeyPatch) -> list[TimeModel]:
    """Where fits started; all of them find the truth."""
    found: list[TimeModel] = []

    def find(kernels: Sequence[Sample], _steps: Any, _operators: Any, start: TimeModel, say: Any) -> TimeModel:
        assert kernels
        say("fitting")
        found.append(start)
        return replace(start, kernels=CALIBRATED, host=TRUTH.host, energy=TRUTH.energy)

    monkeypatch.setattr(cross_validation, "fit_parts", find)
    monkeypatch.setattr(refit, "fit_parts", find)
    return found


def fit(path: Path, current: TimeModel = OLD, **options: Any) -> tuple[Verdict, TimeModel | None]:
    with open_database(path) as database:
        return refit.refit(database, current, **options)


@pytest.fixture
def fitted(path: Path, starts: list[TimeModel]) -> TimeModel:
    assert starts == []
    _, model = fit(path)
    assert model is not None
    return model


@pytest.mark.usefixtures("starts")
def test_a_better_model_is_fitted_to_all_rows(path: Path) -> None:
    told: list[str] = []
    verdict, model = fit(path, progress=told.append)
    assert verdict.is_better
    assert model is not None
    assert told == [
        "reading the database", "fit 1 of 3, without mlp: fitting", "fit 2 of 3, without rnn: fitting",
        "fit 3 of 3, with everything: fitting",
    ]  # fmt: skip


def test_a_model_that_nobody_wants_is_not_fitted(path: Path, starts: list[TimeModel]) -> None:
    verdict, model = fit(path, replace(TRUTH, kernels=CALIBRATED))
    assert (verdict.is_better, model) == (False, None)
    assert len(starts) == 2


@pytest.mark.usefixtures("starts")
def test_a_model_may_be_wanted_in_any_case(path: Path) -> None:
    assert fit(path, TRUTH, wanted=lambda verdict: True)[1] is not None


def test_measured_operators_are_added_to_those_that_were_known(fitted: TimeModel) -> None:
    assert fitted.measured["L4"] == {"older": 2.0}
    assert fitted.measured["H200"]["old"] == 1.0
    assert len(fitted.measured["H200"]) > 100


def test_a_model_remembers_what_it_was_fitted_to(path: Path, fitted: TimeModel) -> None:
    seen = Seen.by(fitted.fitted)
    with open_database(path) as database:
        assert all(("H200", measurement.key) in seen for _, measurement in database.measurements())
    assert ("L4", "0123abcd") in seen


@pytest.mark.usefixtures("starts")
def test_a_model_fitted_twice_is_told_to_be_at_an_advantage(path: Path, fitted: TimeModel) -> None:
    verdict, _ = fit(path, fitted)
    assert (verdict.judgement.steps, verdict.judgement.seen) == (40, 40)


def test_bounds_come_from_what_was_held_back(fitted: TimeModel) -> None:
    calibrated = fitted.spreads.factors["calibrated"]
    assert calibrated["step_seconds"] < 1e-6
    assert calibrated["power_watts"] == calibrated["energy_joules_step"]
    assert fitted.spreads.factors["specification"] == {"step_seconds": 0.6}


@pytest.mark.usefixtures("starts")
def test_a_gpu_from_its_data_sheet_is_not_known_better_than_a_measured_one(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(refit, "spreads_of", lambda errors, before: replace(before, factors=WIDE))
    _, model = fit(path)
    assert model is not None
    assert model.spreads.factors["specification"] == {"step_seconds": 0.9, "forward_seconds": 0.9}


WIDE = {
    "calibrated": {"step_seconds": 0.9, "forward_seconds": 0.7},
    "specification": {"step_seconds": 0.6, "forward_seconds": 0.9},
}


def test_fits_that_are_judged_start_from_a_model_that_has_not_seen_the_judges(
    path: Path, starts: list[TimeModel]
) -> None:
    with open_database(path) as database:
        everything = Seen.of(("H200", measurement.key) for _, measurement in database.measurements()).as_dict()
    old = replace(OLD, fitted={"seen": everything})
    fit(path, old, wanted=lambda verdict: True)
    assert [start.kernels for start in starts] == [shipped_model().kernels] * 2 + [old.kernels]


def test_gpus_are_left_out_if_there_are_several(
    path: Path, starts: list[TimeModel], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    both = tmp_path / "both.db"
    both.write_bytes(path.read_bytes())
    make_database(both, 20, replace(ENVIRONMENT, gpu="L4"))
    told: list[str] = []
    monkeypatch.setattr("tonnage.benchmark.fit_kernels.fit_kernels", lambda samples, start: TRUTH.kernels)
    verdict, _ = fit(both, progress=told.append)
    assert set(verdict.gpus_left_out) == {"L4"}  # without the H200 too few kernels are left
    assert len(starts) == 3
    assert "fit 4 of 5, without the L4: fitting kernels" in told
