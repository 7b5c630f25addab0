"""What a fit learns from, and databases that do not do."""

import csv
import gzip
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from observed import ENVIRONMENT, all_measured, make_database

from tonnage.benchmark import fit_rows, shipped
from tonnage.benchmark.fit_rows import FitRows, read_rows
from tonnage.errors import TonnageError
from tonnage.store.database import Database, open_database
from tonnage.store.rows import Environment

A100 = Environment(device="cuda", gpu="A100 SXM 80GB")
CPU = Environment(device="cpu", gpu="", cpu="EPYC")


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A package that comes with a few rows of an H200."""
    path = make_database(tmp_path / "package.db", 3)

    @contextmanager
    def opened() -> Iterator[Database]:
        with open_database(path) as database:
            yield database

    monkeypatch.setattr(shipped, "shipped_database", opened)


def rows_of(path: Path) -> FitRows:
    with open_database(path, create=False) as database:
        return read_rows(database)


def refusal(path: Path) -> TonnageError:
    with pytest.raises(TonnageError) as raised:
        rows_of(path)
    assert raised.value.exit_code == 1
    return raised.value


@pytest.mark.usefixtures("package")
def test_kernels_of_gpus_that_come_with_the_package_take_part(tmp_path: Path) -> None:
    rows = rows_of(make_database(tmp_path / "own.db", 20, A100))
    assert (rows.gpus, rows.shipped_gpus) == (("A100 SXM 80GB",), ("H200",))
    assert len(rows.all_kernels) == len(rows.kernels) + len(rows.shipped)
    assert {step.gpu.name for step in rows.steps} == {"A100 SXM 80GB"}
    assert all(pair in rows.seen for pair in [("A100 SXM 80GB", rows.keys[0]), ("H200", rows.shipped[0].key)])


def test_a_gpu_that_the_user_has_measured_is_the_users_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shipped, "shipped_database", None)  # must not be opened
    assert rows_of(make_database(tmp_path / "own.db", 20)).shipped == []


def test_a_gpu_may_be_called_as_its_driver_does(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shipped, "shipped_database", None)  # must not be opened
    rows = rows_of(make_database(tmp_path / "own.db", 20, Environment(device="cuda", gpu="NVIDIA H200")))
    assert (rows.gpus, rows.steps[0].gpu.name) == (("H200",), "H200")


def test_the_rows_of_the_package_are_of_the_gpus_that_it_names() -> None:
    with gzip.open(shipped.ROWS / "environments.csv.gz", "rt") as file:
        assert {row["gpu"] for row in csv.DictReader(file)} == set(shipped.GPUS)


@pytest.mark.usefixtures("package")
def test_hosts_without_a_known_gpu_say_nothing(tmp_path: Path) -> None:
    path = make_database(tmp_path / "own.db", 20, A100)
    before = rows_of(path).costs
    make_database(path, 20, CPU)
    assert rows_of(path).costs == before


# -- databases that do not do ---------------------------------------------------------------------------------------------


def test_an_empty_database_says_what_is_needed(tmp_path: Path) -> None:
    with open_database(tmp_path / "new.db"):
        pass
    raised = refusal(tmp_path / "new.db")
    assert "new.db holds no measurements; a fit needs at least 20 measurements with kernels of a GPU" in raised.message
    assert raised.hint == "measure some: tonnage bench run"


def test_cpus_are_no_gpus(tmp_path: Path) -> None:
    raised = refusal(make_database(tmp_path / "cpu.db", 25, CPU))
    assert "holds measurements of CPUs only; a fit needs at least 20" in raised.message
    assert raised.hint == "run tonnage bench run on a machine with an NVIDIA GPU"


def test_a_gpu_that_nobody_knows_is_named(tmp_path: Path) -> None:
    raised = refusal(make_database(tmp_path / "strange.db", 25, Environment(device="cuda", gpu="Warp 9")))
    assert "holds measurements of Warp 9, which the catalogue does not know" in raised.message
    assert raised.hint == "tonnage gpus lists the GPUs that it knows"


def test_few_measurements_are_too_few(tmp_path: Path) -> None:
    raised = refusal(make_database(tmp_path / "few.db", 5))
    assert "holds 5 measurements with kernels of known GPUs; a fit needs at least 20" in raised.message
    assert raised.hint == "measure more: tonnage bench run"


def test_layers_alone_say_nothing_about_the_host(tmp_path: Path) -> None:
    raised = refusal(make_database(tmp_path / "layers.db", 25, families=("layer:linear",)))
    assert "holds 0 timed steps of sample workloads; a fit needs at least 12" in raised.message
    assert raised.hint == "measure more: tonnage bench run"


def test_steps_without_times_are_no_steps(tmp_path: Path) -> None:
    with open_database(tmp_path / "untimed.db") as database:
        for measurement, kernels, hosts in all_measured(25):
            database.add(ENVIRONMENT, replace(measurement, step_seconds=None), kernels, hosts)
    assert "holds 0 timed steps" in refusal(tmp_path / "untimed.db").message


def test_nothing_is_read_from_the_package_for_a_database_that_does_not_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fit_rows, "shipped_kernels", None)  # must not be called
    refusal(make_database(tmp_path / "few.db", 5, A100))
