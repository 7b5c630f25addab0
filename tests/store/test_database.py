"""The benchmark database answers what it was told, on SQLite and on PostgreSQL."""

from dataclasses import replace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from store_examples import (
    CPU,
    H200,
    MATMUL,
    T4,
    environments,
    host,
    hosts,
    kernel,
    kernels,
    later,
    measurement,
    measurements,
)

from tonnage.errors import InvalidFile, UsageError
from tonnage.program.trace import Operator, TensorSpec
from tonnage.store.database import Database, open_database
from tonnage.store.rows import Environment, HostRow, KernelRow, Measurement, Spread, Status


def test_a_measurement_comes_back_as_it_was(database: Database) -> None:
    assert database.add(H200, measurement(), [kernel()], [host()])
    assert list(database.measurements()) == [(H200, measurement())]
    assert list(database.kernels()) == [(H200, "a", kernel())]
    assert list(database.hosts()) == [(H200, "a", host())]


def test_numbers_keep_their_kind(database: Database) -> None:
    database.add(H200, measurement(), [kernel()])
    ((_, _, row),) = database.kernels()
    assert [type(value) for value in row.operator.attributes.values()] == [
        type(MATMUL.attributes[name]) for name in row.operator.attributes
    ]


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(environments, measurements, st.lists(kernels, max_size=3), st.lists(hosts, max_size=3))
def test_anything_comes_back_as_it_was(
    database: Database,
    environment: Environment,
    row: Measurement,
    kernel_rows: list[KernelRow],
    host_rows: list[HostRow],
) -> None:
    if database.counts()["measurements"]:
        database.remove(environment=next(database.measurements())[0])
    database.add(environment, row, kernel_rows, host_rows)
    assert list(database.measurements()) == [(environment, row)]
    assert [found for _, _, found in database.kernels()] == kernel_rows
    assert [found for _, _, found in database.hosts()] == host_rows


def test_what_was_added_is_there_when_the_database_is_opened_again(location: str) -> None:
    with open_database(location) as database:
        database.add(H200, measurement(), [kernel()])
    with open_database(location) as database:
        assert list(database.measurements()) == [(H200, measurement())]


def test_the_same_measurement_is_added_once(database: Database) -> None:
    assert database.add(H200, measurement(), [kernel()])
    assert not database.add(H200, measurement(), [kernel()])
    assert database.counts() == {"environments": 1, "operators": 1, "measurements": 1, "kernels": 1, "hosts": 0}


def test_the_same_workload_may_be_measured_again(database: Database) -> None:
    assert database.add(H200, measurement())
    assert database.add(H200, measurement(measured_at=later(60)))
    assert database.add(T4, measurement())
    assert database.counts()["measurements"] == 3
    assert database.counts()["environments"] == 2


def test_an_operator_is_stored_once_however_many_rows_name_it(database: Database) -> None:
    equal = Operator(MATMUL.name, MATMUL.inputs, MATMUL.outputs, dict(MATMUL.attributes))
    database.add(H200, measurement("a"), [kernel(), kernel(equal, position=1)], [host(equal)])
    database.add(T4, measurement("b"), [kernel(equal)])
    assert database.counts()["operators"] == 1


def test_operators_that_differ_in_an_attribute_are_two(database: Database) -> None:
    one = replace(MATMUL, attributes={"alpha": 1})
    database.add(H200, measurement(), [kernel(one), kernel(replace(MATMUL, attributes={"alpha": 1.0}))])
    assert database.counts()["operators"] == 2


def test_questions_can_be_limited(database: Database) -> None:
    database.add(H200, measurement("a"), [kernel()])
    database.add(T4, measurement("b", family="resnet"), [kernel()], [host()])
    database.add(T4, measurement("c", campaign="second", status=Status.FAILED))
    assert [row.key for _, row in database.measurements(gpu="T4")] == ["b", "c"]
    assert [row.key for _, row in database.measurements(gpu="T4", family="resnet")] == ["b"]
    assert [row.key for _, row in database.measurements(campaign="second")] == ["c"]
    assert [row.key for _, row in database.measurements(status=Status.OK)] == ["a", "b"]
    assert [key for _, key, _ in database.kernels(gpu="H200")] == ["a"]
    assert [key for _, key, _ in database.hosts(family="mlp")] == []


def test_rows_can_be_added_while_others_are_read(database: Database) -> None:
    for number in range(3):
        database.add(H200, measurement(str(number)))
    for _, row in database.measurements():
        database.add(H200, replace(row, key=f"{row.key}+"))
    assert database.counts()["measurements"] == 6


def test_known_keys_are_those_that_need_not_run_again(database: Database) -> None:
    for status in Status:
        database.add(H200, measurement(status.value, status=status))
    database.add(H200, measurement("other", campaign="second"))
    database.add(T4, measurement("elsewhere"))
    assert database.known_keys(H200) == {"ok", "out_of_memory", "other"}
    assert database.known_keys(H200, "first") == {"ok", "out_of_memory"}
    assert database.known_keys(CPU) == set()


def test_failed_rows_can_be_removed_with_all_that_belongs_to_them(database: Database) -> None:
    database.add(H200, measurement("a", status=Status.FAILED), [kernel()], [host()])
    database.add(H200, measurement("b"), [kernel()])
    assert database.remove(status=Status.FAILED) == 1
    assert database.counts() == {"environments": 1, "operators": 1, "measurements": 1, "kernels": 1, "hosts": 0}


def test_rows_can_be_removed_by_environment_and_key(database: Database) -> None:
    for environment in (H200, T4):
        for key in "abc":
            database.add(environment, measurement(key))
    assert database.remove(environment=T4, keys=["a", "b", "x"]) == 2
    assert [row.key for _, row in database.measurements(gpu="T4")] == ["c"]
    assert database.remove(keys=[]) == 0


def test_removing_everything_by_accident_is_refused(database: Database) -> None:
    with pytest.raises(UsageError):
        database.remove()


def test_the_summary_counts_by_gpu_family_and_status(database: Database) -> None:
    database.add(H200, measurement("a"), [kernel(), kernel(position=1)], [host()])
    database.add(H200, measurement("b", measured_at=later(3600)), [kernel()])
    database.add(H200, measurement("c", status=Status.OUT_OF_MEMORY))
    database.add(CPU, measurement("d"))
    cpu, ok, out_of_memory = database.summary()
    assert (cpu.gpu, cpu.measurements, cpu.kernels) == ("", 1, 0)
    assert (ok.gpu, ok.family, ok.status, ok.measurements, ok.kernels, ok.hosts) == ("H200", "mlp", Status.OK, 2, 3, 1)
    assert (ok.first_at, ok.last_at) == (later(0), later(3600))
    assert out_of_memory.status is Status.OUT_OF_MEMORY
    assert database.summary(gpu="T4") == []


def test_thousands_of_kernels_are_added_at_once(database: Database) -> None:
    rows = [kernel(replace(MATMUL, outputs=(TensorSpec((number % 500,), "float32"),))) for number in range(3000)]
    database.add(H200, measurement("a"), rows)
    assert [row for _, _, row in database.kernels()] == rows


# -- the edge -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"step_seconds": Spread(float("nan"), 0)}, "step_seconds_mean is nan: it must be a finite number"),
        ({"host_seconds": Spread(1, float("inf"))}, "host_seconds_deviation is inf: it must be a finite number"),
        ({"backward_seconds": Spread(-1, 0)}, "backward_seconds_mean is -1: it must not be negative"),
        ({"reserved_bytes": -5}, "reserved_bytes is -5: it must not be negative"),
        ({"reserved_bytes": 2**63}, f"reserved_bytes is {2**63}: it is too large"),
        ({"reserved_bytes": 1.5}, "reserved_bytes is 1.5: it must be a whole number"),
        ({"power_watts": float("-inf")}, "power_watts is -inf: it must be a finite number"),
        ({"utilisation": 1.01}, "utilisation is 1.01: it must be a share from 0 to 1"),
        ({"utilisation": 97}, "utilisation is 97: it must be a share from 0 to 1"),
        ({"measured_at": later(0).replace(tzinfo=None)}, "it must have a time zone"),
        ({"message": "a\0b"}, "message is 'a\\x00b': it must not contain the character NUL"),
        ({"family": "x" * 201}, "it must not be longer than 200 characters"),
        ({"structure": {"width": {1, 2}}}, "{1, 2} is a set, which is no attribute"),
        ({"status": "fine"}, "status is 'fine': it must be one of ok, out_of_memory, failed, interrupted"),
    ],
)
def test_a_wrong_measurement_is_refused(database: Database, changes: dict[str, object], sentence: str) -> None:
    with pytest.raises(InvalidFile) as caught:
        database.add(H200, measurement(**changes))
    assert sentence in caught.value.message
    assert database.counts()["measurements"] == database.counts()["environments"] == 0


def test_a_wrong_kernel_keeps_its_measurement_out(database: Database) -> None:
    with pytest.raises(InvalidFile, match="seconds_mean is nan"):
        database.add(H200, measurement(), [kernel(), kernel(seconds=Spread(float("nan"), 0))])
    with pytest.raises(InvalidFile, match="grid"):
        database.add(H200, measurement(), [kernel(grid=(-1,))])
    assert database.counts()["measurements"] == 0


def test_attributes_may_hold_any_text(database: Database) -> None:
    row = measurement(structure={"a\0b": "\0'\"\\\u2028"}, message="'; DROP TABLE measurements; --")
    database.add(H200, row)
    assert list(database.measurements()) == [(H200, row)]


def test_a_temperature_may_be_below_zero(database: Database) -> None:
    assert database.add(H200, measurement(temperature_celsius=-5.0))
