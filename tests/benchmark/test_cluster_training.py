"""From measurements to a model: features of points, calibration, files."""

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pytest

from tonnage.benchmark.cluster_training import (
    Sample,
    conformal_quantile,
    folds_of,
    predict_all,
    read_model,
    samples_of,
    train,
    write_model,
)
from tonnage.benchmark.point_features import features_of_point
from tonnage.benchmark.workloads import Point, as_program, make_point
from tonnage.errors import InvalidFile, NotFound, UsageError
from tonnage.estimate.cluster_features import COUNTS, variables_on
from tonnage.estimate.model import Query
from tonnage.estimate.trace_features import features_of_trace
from tonnage.hardware import find_gpu
from tonnage.program.capture import capture
from tonnage.program.program import Program
from tonnage.store.rows import Measurement, Spread, Status

H200 = find_gpu("H200")


def measured(point: Point, noise: float, status: Status = Status.OK) -> Measurement:
    """A point that takes 20 us a call, or twice the time at the peak of its products, and 1 GB."""
    variables = variables_on(features_of_point(point), H200)
    host = (2e-5 * variables["operator_calls"] + 2e-4) * noise
    step = max(host, 2 * variables["dense_seconds"] * noise)
    return Measurement(
        key=point.key, campaign="", family=point.family, structure=point.structure, batch=point.batch,
        input_shape=(8,), precision=point.precision, settings={"optimizer": point.optimizer}, mode=point.mode,
        measured_at=datetime(2026, 1, 1, tzinfo=UTC), status=status, step_seconds=Spread(step, 0.0),
        host_seconds=Spread(host, 0.0), allocated_bytes=10**9, power_watts=150.0, energy_joules_step=0.0,
    )  # fmt: skip


def measurements(count: int, noise: float) -> Iterator[Measurement]:
    generator = np.random.default_rng(5)
    for _ in range(count):
        values = {
            "depth": int(generator.integers(1, 20)),
            "width": int(2 ** generator.uniform(4, 12)),
            "batch": int(2 ** generator.uniform(0, 9)),
        }
        yield measured(make_point("mlp", values), float(np.exp(noise * generator.standard_normal())))


@pytest.fixture(scope="module")
def samples() -> list[Sample]:
    return samples_of((H200, one) for one in measurements(150, noise=0.05))


def test_features_of_a_point_are_those_of_its_layers() -> None:
    point = make_point("mlp", {"depth": 2, "width": 32, "inputs": 16, "classes": 4, "batch": 8, "optimizer": "adam"})
    found = features_of_point(point)
    forward = 16 * 32 + 32 * 32 + 32 * 4
    assert (found.kind, found.mode, found.precision) == ("dense", "training", "float32")
    assert found.counts["dense_multiply_adds"] == 8 * (3 * forward - 16 * 32)  # no gradient of the first layer's input
    assert found.counts["parameters"] == forward + 32 + 32 + 4
    assert found.counts["state_bytes"] == 8 * found.counts["parameters"]
    assert found.counts["parameter_tensors"] == 6
    assert found.counts["h2d_bytes"] == 8 * (4 * 16 + 8)


@pytest.mark.parametrize(
    ("family", "kind"),
    [("mlp", "dense"), ("convolutional", "convolution"), ("unet", "convolution"), ("rnn", "recurrent")],
)
def test_families_belong_to_kinds_of_networks(family: str, kind: str) -> None:
    assert features_of_point(make_point(family, {})).kind == kind


def test_autocast_and_unaligned_heads_launch_more() -> None:
    calls = [
        features_of_point(make_point("transformer", values)).counts["operator_calls"]
        for values in ({}, {"precision": "bfloat16"}, {"width": 16, "heads": 8})
    ]
    assert calls[0] < calls[1]
    assert calls[0] < calls[2]


@pytest.mark.slow
@pytest.mark.parametrize("values", [{"precision": "float32"}, {"precision": "bfloat16", "optimizer": "adam"}], ids=str)
def test_the_trace_of_a_point_has_the_features_of_its_layers(values: dict[str, str], tmp_path: Path) -> None:
    pytest.importorskip("torch")
    point = make_point("convolutional", values)
    script = tmp_path / "train.py"
    script.write_text(as_program(point))
    found, expected = features_of_trace(capture(Program(kind="script", target=str(script)))), features_of_point(point)
    assert (found.kind, found.mode, found.precision) == (expected.kind, expected.mode, expected.precision)
    assert found.batch == expected.batch
    for name in set(COUNTS) - {"operator_calls"}:
        assert found.counts[name] == pytest.approx(expected.counts[name], rel=0.15), name
    assert found.counts["operator_calls"] == pytest.approx(expected.counts["operator_calls"], rel=0.35)


def test_only_steps_that_worked_are_learned_from() -> None:
    point = make_point("mlp", {})
    assert samples_of([(H200, measured(point, 1.0, Status.OUT_OF_MEMORY))]) == []


def test_what_was_not_measured_is_not_predicted(samples: list[Sample]) -> None:
    assert np.isnan(samples[0].targets["energy_joules_step"])
    model = train(samples)
    predicted = model.predict(Query(features=samples[0].features), H200)
    assert set(predicted) == {"step_seconds", "allocated_bytes", "power_watts"}


def test_unseen_points_are_predicted_within_noise_and_intervals_hold(samples: list[Sample]) -> None:
    model = train(samples[:110])
    outcomes = predict_all(model, samples[110:])
    pairs = [(outcome.predictions["step_seconds"], outcome.sample.targets["step_seconds"]) for outcome in outcomes]
    assert len(pairs) == 40
    assert np.median([abs(said.value / truth - 1) for said, truth in pairs]) < 0.08
    assert np.mean([said.low <= truth <= said.high for said, truth in pairs]) > 0.75


def test_a_model_survives_its_file(samples: list[Sample], tmp_path: Path) -> None:
    model = train(samples)
    write_model(model, tmp_path / "model.json")
    query = Query(features=samples[3].features)
    again = read_model(tmp_path / "model.json").predict(query, H200)
    assert again["step_seconds"].value == pytest.approx(model.predict(query, H200)["step_seconds"].value, rel=1e-3)


def test_files_that_are_no_models_are_refused(tmp_path: Path) -> None:
    with pytest.raises(NotFound):
        read_model(tmp_path / "missing.json")
    (tmp_path / "broken.json").write_text("[1, 2")
    with pytest.raises(InvalidFile):
        read_model(tmp_path / "broken.json")
    (tmp_path / "list.json").write_text("[]")
    with pytest.raises(InvalidFile):
        read_model(tmp_path / "list.json")


def test_nothing_to_learn_from_is_said() -> None:
    with pytest.raises(UsageError, match="no measured steps"):
        train([])


def test_folds_hold_each_index_once() -> None:
    assert sorted(np.concatenate(folds_of(23, seed=1)).tolist()) == list(range(23))


def test_the_conformal_quantile_is_the_next_rank() -> None:
    assert conformal_quantile(np.arange(1.0, 100.0), 0.9) == 90.0
