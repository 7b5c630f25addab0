"""Indicators from an estimate, for programs that cannot be run."""

import pytest
from placing import DIGEST
from traces import PRODUCT, training_trace

from tonnage.benchmark.time_models import shipped_model
from tonnage.configure.predicted import gradient_bytes_of, indicators_of_report, known_of
from tonnage.errors import UsageError
from tonnage.estimate.estimate import Report
from tonnage.estimate.estimator import estimate_trace
from tonnage.hardware import find_gpu
from tonnage.units import MIB


@pytest.fixture
def report() -> Report:
    gpus = [find_gpu("H200"), find_gpu("T4")]
    return estimate_trace(training_trace(operator=PRODUCT), gpus, curve=False, time_model=shipped_model())


def test_the_parts_add_up_to_the_step(report: Report) -> None:
    shown = indicators_of_report(report, "H200", DIGEST)
    parts = (
        shown.forward_seconds,
        shown.backward_seconds,
        shown.optimizer_seconds,
        shown.h2d_seconds,
        shown.d2h_seconds,
    )
    assert sum(parts) + shown.idle_seconds == pytest.approx(shown.step_seconds, rel=1e-6)
    assert (shown.basis, shown.gpu, shown.program_digest) == ("predicted", "H200", DIGEST)


def test_every_gpu_of_the_report_is_known(report: Report) -> None:
    known = known_of(report)
    assert set(known) == {"H200", "T4"}
    for gpu, one in known.items():
        one.check(gpu)


def test_gradients_are_counted_in_training_only(report: Report) -> None:
    assert (gradient_bytes_of(report) or 0) >= 8 * MIB


def test_a_gpu_without_an_estimate_is_refused(report: Report) -> None:
    with pytest.raises(UsageError, match="no estimate for L4"):
        indicators_of_report(report, "L4", DIGEST)
