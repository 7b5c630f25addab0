"""Metrics in Prometheus' text format: Triton's names where it has one, so that its dashboards work, and this server's
own."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from tonnage.serve.data_plane import DataPlane
from tonnage.serve.served_version import ServedVersion
from tonnage.serve.statistics import BOUNDS, FAILURES, Histogram, Statistics

# Prometheus keeps a series for each bound of each model: three a decade will do there.
_TOLD_BOUNDS = frozenset(bound for place, bound in enumerate(BOUNDS) if place % 10 in (0, 3, 7))  # 1, 2 and 5
CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
# Triton's counters: name, what it counts, and where the number is.
_COUNTERS: tuple[tuple[str, str, Callable[[Statistics], float]], ...] = (
    ("nv_inference_request_success", "Requests that were answered", lambda s: s.success.count),
    ("nv_inference_count", "Rows that were inferred", lambda s: s.inferences),
    ("nv_inference_exec_count", "Batches that were run", lambda s: s.executions),
    ("nv_inference_request_duration_us", "Time of requests", lambda s: _us(s.success.nanoseconds + s.fail.nanoseconds)),
    ("nv_inference_queue_duration_us", "Time in the queue", lambda s: _us(s.queue.nanoseconds)),
    ("nv_inference_compute_input_duration_us", "Time of reading inputs", lambda s: _us(s.compute_input.nanoseconds)),
    ("nv_inference_compute_infer_duration_us", "Time of running models", lambda s: _us(s.compute_infer.nanoseconds)),
    ("nv_inference_compute_output_duration_us", "Time of writing outputs", lambda s: _us(s.compute_output.nanoseconds)),
)
_GAUGES: tuple[tuple[str, str, Callable[[ServedVersion], float]], ...] = (
    ("nv_inference_pending_request_count", "Requests that wait for an instance", lambda v: v.waiting),
    ("tonnage_instances", "Instances that are loaded", lambda v: len(v.pids)),
    ("tonnage_instances_busy", "Instances that are running a batch", lambda v: v.running),
)
_HISTOGRAMS: tuple[tuple[str, str, Callable[[Statistics], Histogram]], ...] = (
    ("tonnage_queue_delay_seconds", "How long requests waited for an instance", lambda s: s.queue_delays),
    ("tonnage_request_seconds", "From the arrival of a request to its answer", lambda s: s.latencies),
)


def render(plane: DataPlane) -> str:
    return "\n".join(_lines(plane)) + "\n"


def _lines(plane: DataPlane) -> Iterator[str]:
    versions = plane.models.all()
    for name, what, number in _COUNTERS:
        yield from _head(name, what, "counter")
        yield from (f"{name}{{{_labels(each)}}} {number(each.statistics)}" for each in versions)
    name = "tonnage_instance_restarts_total"
    yield from _head(name, "Instances that ended and were replaced", "counter")
    yield from (f"{name}{{{_labels(each)}}} {each.restarts}" for each in versions)
    name = "nv_inference_request_failure"
    yield from _head(name, "Number of failed inference requests", "counter")
    for each in versions:
        for reason in FAILURES:
            yield f'{name}{{{_labels(each)},reason="{reason}"}} {each.statistics.failures.get(reason, 0)}'
    name = "tonnage_batches_total"
    yield from _head(name, "Batches by why they have the size that they have", "counter")
    for each in versions:
        for reason, count in sorted(each.statistics.reasons.items()):
            yield f'{name}{{{_labels(each)},reason="{reason}"}} {count}'
    for name, what, gauge in _GAUGES:
        yield from _head(name, what, "gauge")
        yield from (f"{name}{{{_labels(each)}}} {gauge(each)}" for each in versions)
    for name, what, histogram in _HISTOGRAMS:
        yield from _head(name, what, "histogram")
        for each in versions:
            yield from _histogram(name, _labels(each), histogram(each.statistics))


def _head(name: str, what: str, kind: str) -> Iterator[str]:
    yield f"# HELP {name} {what}"
    yield f"# TYPE {name} {kind}"


def _labels(version: ServedVersion) -> str:
    name = version.configuration.name.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
    return f'model="{name}",version="{version.version}"'


def _histogram(name: str, labels: str, histogram: Histogram) -> Iterator[str]:
    total = 0
    for bound, count in zip((*BOUNDS, "+Inf"), histogram.counts, strict=True):
        total += count
        if bound == "+Inf" or bound in _TOLD_BOUNDS:
            yield f'{name}_bucket{{{labels},le="{bound}"}} {total}'
    yield f"{name}_sum{{{labels}}} {histogram.seconds}"
    yield f"{name}_count{{{labels}}} {total}"


def _us(nanoseconds: int) -> float:
    return nanoseconds // 1000
