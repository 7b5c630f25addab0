"""The two-phase estimator finds a known law, and says where it does not know."""

import json
from dataclasses import replace

import numpy as np
import pytest
from clusters import H200, features, host_and_device, model, random_features, rows
from hypothesis import given, settings
from hypothesis import strategies as st

from tonnage.errors import InvalidFile, UsageError
from tonnage.estimate.cluster_features import COUNTS, DEVICE_VARIABLES, HOST_VARIABLES, Features, variables_on
from tonnage.estimate.cluster_fit import Array, fit_line, size_of, solve_nonnegative
from tonnage.estimate.cluster_regression import ClusterModel
from tonnage.estimate.cluster_rows import TARGETS
from tonnage.estimate.cluster_selection import LEAST_ROWS, Constraints, Criterion, byte_seconds
from tonnage.estimate.model import Query
from tonnage.hardware import find_gpu

MODEL = model()
SMALL = features(
    dense_multiply_adds=1e8, layer_bytes=1e6, operator_calls=100.0, parameters=1e5, h2d_bytes=1e5
)  # bound by the host
LARGE = replace(SMALL, counts=dict(SMALL.counts) | {"dense_multiply_adds": 8e11})


def step(predictor: ClusterModel, one: Features) -> float:
    return predictor.predict(Query(features=one), H200)["step_seconds"].value


def of(one: Features, names: tuple[str, ...]) -> Array:
    variables = variables_on(one, H200)
    return np.array([[variables[name] for name in names]])


# -- the law ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(5))
def test_a_law_without_noise_is_found(seed: int) -> None:
    one = random_features(np.random.default_rng(1000 + seed))
    assert step(MODEL, one) == pytest.approx(max(host_and_device(variables_on(one, H200))), rel=0.05)


def test_the_small_network_costs_launches_and_the_large_one_work() -> None:
    more_work = dict(SMALL.counts) | {"dense_multiply_adds": 2e8}
    assert step(MODEL, replace(SMALL, counts=more_work)) == pytest.approx(step(MODEL, SMALL), rel=0.02)
    more_calls = dict(LARGE.counts) | {"operator_calls": 110.0}
    assert step(MODEL, replace(LARGE, counts=more_calls)) == pytest.approx(step(MODEL, LARGE), rel=0.02)


def test_coefficients_of_a_line_are_found_and_never_negative() -> None:
    generator = np.random.default_rng(3)
    matrix = np.column_stack([generator.uniform(1, 100, (60, 3)), np.ones(60)])
    target = matrix @ np.array([2.0, 0.0, 0.5, 10.0])
    found = fit_line(matrix, target, size_of(matrix, target)).coefficients
    assert found == pytest.approx([2.0, 0.0, 0.5, 10.0], abs=0.2)
    assert (fit_line(matrix, 500 - target, size_of(matrix, 500 - target)).coefficients >= 0).all()


def test_a_variable_that_never_moves_gets_no_coefficient() -> None:
    matrix = np.column_stack([np.full(30, 4e-9), np.linspace(1, 9, 30), np.ones(30)])
    found = fit_line(matrix, 1 + matrix[:, 1], size_of(matrix, 1 + matrix[:, 1])).coefficients
    assert found[0] == 0


@given(st.integers(0, 10_000))
@settings(max_examples=50, deadline=None)
def test_the_solution_of_least_squares_is_optimal_among_nonnegative_ones(seed: int) -> None:
    generator = np.random.default_rng(seed)
    matrix = generator.standard_normal((20, 6))
    gram, moments = matrix.T @ matrix + 1e-3 * np.eye(6), matrix.T @ generator.standard_normal(20)
    solution = solve_nonnegative(gram, moments)
    slope = gram @ solution - moments
    assert (solution >= 0).all()
    assert (slope >= -1e-8).all()  # no variable at zero wants to grow
    assert np.abs(slope[solution > 0]).max(initial=0.0) < 1e-8


@given(st.sampled_from(COUNTS), st.floats(1.0, 1.4), st.integers(0, 1000))
@settings(max_examples=40, deadline=None)
def test_inside_a_cluster_more_work_never_takes_less_time(count: str, factor: float, seed: int) -> None:
    one = random_features(np.random.default_rng(seed))
    law = MODEL.select(Query(features=one), H200).law
    more = replace(one, counts=dict(one.counts) | {count: one.counts[count] * factor})
    before, after = (law.at(of(asked, HOST_VARIABLES), of(asked, DEVICE_VARIABLES))[0] for asked in (one, more))
    assert after >= before


# -- phase one ----------------------------------------------------------------------------------------------------------


def test_a_query_between_the_rows_is_spanned() -> None:
    cluster = MODEL.select(Query(features=SMALL), H200)
    assert cluster.spans
    assert len(cluster.indices) >= LEAST_ROWS
    assert "operator_calls" in cluster.variables
    assert "constant" not in cluster.variables


def test_beyond_all_rows_the_answer_says_so_and_its_interval_is_wider() -> None:
    beyond = replace(SMALL, counts=dict(SMALL.counts) | {"operator_calls": 40_000.0})
    inside, outside = (MODEL.predict(Query(features=one), H200)["step_seconds"] for one in (SMALL, beyond))
    assert outside.extrapolated
    assert not inside.extrapolated
    assert outside.high / outside.low > inside.high / inside.low


def test_too_few_comparable_rows_are_refused_with_the_number_that_is_needed() -> None:
    with pytest.raises(UsageError, match=f"only 0 measured rows .* at least {LEAST_ROWS}"):
        MODEL.predict(Query(features=replace(SMALL, mode="inference")), H200)
    few = ClusterModel(rows=rows(5), quantiles={})
    with pytest.raises(UsageError, match=f"at least {LEAST_ROWS}"):
        few.predict(Query(features=SMALL), H200)


def test_a_condition_that_is_freed_admits_other_rows() -> None:
    free = MODEL.with_criterion(Criterion.LINEAR, Constraints(fixed=frozenset({"mode"})))
    half = replace(SMALL, precision="bfloat16")
    assert free.predict(Query(features=half), H200)["step_seconds"].value > 0
    with pytest.raises(UsageError):
        MODEL.predict(Query(features=half), H200)


def test_only_conditions_can_be_fixed() -> None:
    with pytest.raises(UsageError, match="'colour' cannot be fixed"):
        MODEL.with_criterion(Criterion.LINEAR, Constraints(fixed=frozenset({"colour"}))).predict(
            Query(features=SMALL), H200
        )


def test_the_criteria_choose_the_best_fit_and_the_fewest_resources() -> None:
    noisy = model(noise=0.1)
    for seed in range(10):
        query = Query(features=random_features(np.random.default_rng(seed)))
        linear = noisy.select(query, H200)
        frugal = noisy.with_criterion(Criterion.RESOURCES).select(query, H200)
        assert linear.error <= frugal.error <= 1.25 * linear.error
        assert byte_seconds(noisy.rows, frugal.indices) <= byte_seconds(noisy.rows, linear.indices)


# -- values -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -1.0])
def test_what_is_no_amount_of_work_is_refused(value: float) -> None:
    with pytest.raises(UsageError, match="operator_calls must be"):
        features(operator_calls=value)


def test_rows_that_took_no_time_are_refused() -> None:
    broken = rows(20)
    with pytest.raises(UsageError, match="step_seconds of measured rows must be positive"):
        replace(broken, targets=dict(broken.targets) | {"step_seconds": np.zeros(20)})


def test_a_query_without_anything_is_refused() -> None:
    with pytest.raises(UsageError, match="a trace or the features"):
        Query()


def test_bounds_hold_the_value_and_power_stays_below_the_limit() -> None:
    t4 = find_gpu("T4")
    for target, prediction in MODEL.predict(Query(features=SMALL), t4).items():
        assert prediction.low <= prediction.value <= prediction.high, target
    assert MODEL.predict(Query(features=SMALL), t4)["power_watts"].high <= t4.tdp_watts


def test_a_slower_gpu_takes_longer_for_a_large_network() -> None:
    a100 = find_gpu("A100 SXM 80GB")
    assert MODEL.predict(Query(features=LARGE), a100)["step_seconds"].value > step(MODEL, LARGE)


def test_a_model_is_the_same_after_json() -> None:
    again = ClusterModel.from_dict(json.loads(json.dumps(MODEL.as_dict(), allow_nan=False)))
    before, after = (one.predict(Query(features=SMALL), H200) for one in (MODEL, again))
    assert set(before) == set(after) == set(TARGETS)
    for target in TARGETS:
        assert after[target].value == pytest.approx(before[target].value, rel=1e-3)
        assert after[target].high == pytest.approx(before[target].high, rel=1e-2)


@pytest.mark.parametrize("plain", [{}, {"format": "tonnage cluster model", "version": 99}])
def test_another_file_is_no_model(plain: dict[str, object]) -> None:
    with pytest.raises(InvalidFile):
        ClusterModel.from_dict(plain)
