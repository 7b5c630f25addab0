"""benchmarks/configure/rules.py still goes with what it measures."""

import sys
from pathlib import Path

import pytest
from traces import PRODUCT, training_trace

from tonnage.benchmark.time_models import shipped_model
from tonnage.estimate.estimator import estimate_trace
from tonnage.hardware import find_gpu

FOLDER = Path(__file__).parents[2] / "benchmarks" / "configure"


def test_a_sample_is_seen_on_one_gpu_and_known_on_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(FOLDER))
    monkeypatch.delitem(sys.modules, "programs", raising=False)
    import programs

    gpus = [find_gpu("H200"), find_gpu("T4")]
    report = estimate_trace(training_trace(operator=PRODUCT), gpus, curve=False, time_model=shipped_model())
    work = programs.work_of(programs.SAMPLES[0], report, "H200", 8)
    assert (work.indicators.gpu, work.indicators.basis, work.known) == ("H200", "measured", {})
    assert set(programs.with_truth(work, report).known) == {"H200", "T4"}
    sys.modules.pop("programs")
