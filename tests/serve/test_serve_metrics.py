"""Metrics as Prometheus reads them, and the log."""

from __future__ import annotations

import asyncio
import json
import logging
from types import SimpleNamespace
from typing import Any

import pytest
from fake_instances import Asked, FakeInstances, configuration, served, settle
from hypothesis import given
from hypothesis import strategies as st

from tonnage.errors import UsageError
from tonnage.serve.errors import Busy
from tonnage.serve.logs import start_logging
from tonnage.serve.metrics import render
from tonnage.serve.request_log import RequestLog
from tonnage.serve.statistics import BOUNDS, Histogram

parser = pytest.importorskip("prometheus_client.parser")


def families(text: str) -> dict[str, Any]:
    return {family.name: family for family in parser.text_string_to_metric_families(text)}


def samples(family: Any) -> dict[tuple[str, str], float]:
    """By name, to which the parser adds `_total` where it counts, and the label that tells them apart."""
    return {
        (sample.name.removesuffix("_total"), sample.labels.get("le", sample.labels.get("reason", ""))): sample.value
        for sample in family.samples
    }


async def _rendered() -> str:
    instances = FakeInstances()
    version = served(instances, configuration(), 2)
    await version.load()
    asked = [Asked(str(number), rows=2) for number in range(6)]
    for each in asked:
        version.submit(each.request)
    await settle()
    asked[5].request.cancel()
    for _ in range(2):
        instances.finish_all()
    instances.alive[0].fail("broken")
    instances.made[1].die()
    version.statistics.failed(Busy("full"), 0.0)
    text = render(SimpleNamespace(models=SimpleNamespace(all=lambda: [version])))  # type: ignore[arg-type]
    await version.close()
    return text


def test_every_line_is_read_and_means_what_happened() -> None:
    found = families(asyncio.run(_rendered()))
    assert samples(found["nv_inference_request_success"]) == {("nv_inference_request_success", ""): 4}
    assert samples(found["nv_inference_count"]) == {("nv_inference_count", ""): 8}
    assert samples(found["nv_inference_exec_count"]) == {("nv_inference_exec_count", ""): 4}
    failures = {reason: value for (_, reason), value in samples(found["nv_inference_request_failure"]).items()}
    assert failures == {"REJECTED": 1, "CANCELED": 1, "BACKEND": 1, "OTHER": 0}
    assert samples(found["tonnage_batches"]) == {("tonnage_batches", "single"): 4}
    assert samples(found["tonnage_instance_restarts"]) == {("tonnage_instance_restarts", ""): 1}
    assert samples(found["tonnage_instances"]) == {("tonnage_instances", ""): 1}
    assert samples(found["nv_inference_pending_request_count"]) == {("nv_inference_pending_request_count", ""): 0}
    assert {family.type for family in found.values()} == {"counter", "gauge", "histogram"}
    assert all(sample.labels["model"] == "m" for family in found.values() for sample in family.samples)


def test_histograms_agree_with_the_counters() -> None:
    found = families(asyncio.run(_rendered()))
    for name in ("tonnage_queue_delay_seconds", "tonnage_request_seconds"):
        values = samples(found[name])
        buckets = [value for (kind, _), value in values.items() if kind.endswith("_bucket")]
        assert buckets == sorted(buckets)
        assert buckets[-1] == values[f"{name}_count", ""] == 4
        assert values[f"{name}_sum", ""] > 0


@given(st.lists(st.floats(0, 1000)))
def test_a_duration_is_counted_below_the_first_bound_that_it_does_not_exceed(given: list[float]) -> None:
    histogram = Histogram()
    for seconds in given:
        histogram.add(seconds)
    assert sum(histogram.counts) == len(given)
    for place, bound in enumerate(BOUNDS):
        assert sum(histogram.counts[: place + 1]) == sum(seconds <= bound for seconds in given)


def test_names_of_models_cannot_break_the_format() -> None:
    async def rendered() -> str:
        version = served(FakeInstances(), configuration())
        await version.load()
        version.configuration = SimpleNamespace(name='a"b\\c\nd')
        text = render(SimpleNamespace(models=SimpleNamespace(all=lambda: [version])))  # type: ignore[arg-type]
        version.configuration = configuration()
        await version.close()
        return text

    found = families(asyncio.run(rendered()))
    assert found["nv_inference_count"].samples[0].labels["model"] == 'a"b\\c\nd'


@pytest.fixture
def _log_restored() -> Any:
    log = logging.getLogger("tonnage.serve")
    before = (log.handlers[:], log.level, log.propagate)
    yield
    log.handlers[:], log.level, log.propagate = before


@pytest.mark.usefixtures("_log_restored")
def test_a_line_of_the_log_is_a_json_object(capsys: pytest.CaptureFixture[str]) -> None:
    start_logging("json")
    RequestLog().grpc("ModelInfer", "1.2.3.4", "my-id", "INVALID_ARGUMENT", "the shape is wrong")
    line = json.loads(capsys.readouterr().err)
    assert {
        "level": "warning",
        "request": "my-id",
        "reason": "the shape is wrong",
        "client": "1.2.3.4",
    }.items() <= line.items()


@pytest.mark.usefixtures("_log_restored")
def test_a_client_cannot_write_lines_of_its_own(capsys: pytest.CaptureFixture[str]) -> None:
    start_logging("text")
    RequestLog().grpc("ModelInfer", "1.2.3.4", "x\n2026 error forged status=1", "NOT_FOUND", "")
    found = capsys.readouterr().err
    assert found.count("\n") == 1
    assert 'request="x\\n2026 error forged status=1"' in found


@pytest.mark.usefixtures("_log_restored")
def test_a_flood_of_failures_does_not_flood_the_log(capsys: pytest.CaptureFixture[str], monkeypatch: Any) -> None:
    start_logging("text")
    log, moment = RequestLog(), 100.0
    monkeypatch.setattr("time.monotonic", lambda: moment)
    for _ in range(500):
        log.grpc("ModelInfer", "", "", "NOT_FOUND", "")
    moment = 101.0
    log.grpc("ModelInfer", "", "", "NOT_FOUND", "")
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 102
    assert "count=400" in lines[100]


def test_an_unknown_form_of_the_log_is_refused() -> None:
    with pytest.raises(UsageError, match="--log-format xml"):
        start_logging("xml")
