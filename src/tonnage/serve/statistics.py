"""What happened to the requests of one version of a model: counts and times, as Triton's clients read them."""

from __future__ import annotations

import time
from bisect import bisect_left
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tonnage.serve.errors import ServingError

if TYPE_CHECKING:
    from tonnage.serve.instance_process import Turn
    from tonnage.serve.queue import Batch

# Upper ends, in seconds: three a decade, from 10 us to 100 s.
BOUNDS = (*(base * 10.0**power for power in range(-5, 2) for base in (1.0, 2.0, 5.0)), 100.0)

# Why a request failed, in the words of Triton's metrics, and which of them a status means that a client was told.
FAILURES = ("REJECTED", "CANCELED", "BACKEND", "OTHER")
_BY_STATUS = {"UNAVAILABLE": "REJECTED", "CANCELLED": "CANCELED", "INTERNAL": "BACKEND"}


@dataclass(slots=True)
class Duration:
    count: int = 0
    nanoseconds: int = 0

    def add(self, nanoseconds: float, count: int = 1) -> None:
        self.count += count
        self.nanoseconds += int(nanoseconds)

    def to_json(self) -> dict[str, int]:
        return {"count": self.count, "ns": self.nanoseconds}


@dataclass(slots=True)
class Histogram:
    """How many durations were at most so long; the last place is for longer ones."""

    counts: list[int] = field(default_factory=lambda: [0] * (len(BOUNDS) + 1))
    seconds: float = 0.0

    def add(self, seconds: float) -> None:
        self.counts[bisect_left(BOUNDS, seconds)] += 1
        self.seconds += seconds


@dataclass(slots=True)
class BatchStatistics:
    compute_input: Duration = field(default_factory=Duration)
    compute_infer: Duration = field(default_factory=Duration)
    compute_output: Duration = field(default_factory=Duration)


@dataclass(slots=True)
class Statistics:
    """Counters only go up."""

    success: Duration = field(default_factory=Duration)
    fail: Duration = field(default_factory=Duration)
    queue: Duration = field(default_factory=Duration)
    compute_input: Duration = field(default_factory=Duration)
    compute_infer: Duration = field(default_factory=Duration)
    compute_output: Duration = field(default_factory=Duration)
    inferences: int = 0  # rows
    executions: int = 0  # batches
    last_inference_ms: int = 0  # since 1970
    batches: dict[int, BatchStatistics] = field(default_factory=dict)
    queue_delays: Histogram = field(default_factory=Histogram)
    latencies: Histogram = field(default_factory=Histogram)
    reasons: dict[str, int] = field(default_factory=dict)
    failures: dict[str, int] = field(default_factory=dict)

    def answered(self, seconds: float) -> None:
        success = self.success
        success.count += 1
        success.nanoseconds += int(seconds * 1e9)
        self.latencies.add(seconds)

    def failed(self, error: ServingError, seconds: float) -> None:
        self.fail.add(seconds * 1e9)
        reason = _BY_STATUS.get(error.grpc_status, "OTHER")
        self.failures[reason] = self.failures.get(reason, 0) + 1

    def ran(self, batch: Batch, turn: Turn) -> None:
        """A batch that brought outputs."""
        count = len(batch.requests)
        self.inferences += batch.rows
        self.executions += 1
        self.last_inference_ms = time.time_ns() // 1_000_000
        for request in batch.requests:
            delay = request.started - request.arrived
            self.queue.add(delay * 1e9)
            self.queue_delays.add(delay)
        self.compute_input.add(turn.input_ns * count, count)
        self.compute_infer.add(turn.infer_ns * count, count)
        self.compute_output.add(turn.output_ns * count, count)
        sized = self.batches.get(batch.rows)
        if sized is None:
            sized = self.batches[batch.rows] = BatchStatistics()
        sized.compute_input.add(turn.input_ns)
        sized.compute_infer.add(turn.infer_ns)
        sized.compute_output.add(turn.output_ns)
        self.reasons[batch.reason] = self.reasons.get(batch.reason, 0) + 1

    def to_json(self, name: str, version: str) -> dict[str, Any]:
        none = {"count": 0, "ns": 0}
        return {
            "name": name,
            "version": version,
            "last_inference": self.last_inference_ms,
            "inference_count": self.inferences,
            "execution_count": self.executions,
            "inference_stats": {
                "success": self.success.to_json(),
                "fail": self.fail.to_json(),
                "queue": self.queue.to_json(),
                "compute_input": self.compute_input.to_json(),
                "compute_infer": self.compute_infer.to_json(),
                "compute_output": self.compute_output.to_json(),
                "cache_hit": none,
                "cache_miss": none,
            },
            "response_stats": {},
            "batch_stats": [
                {
                    "batch_size": size,
                    "compute_input": each.compute_input.to_json(),
                    "compute_infer": each.compute_infer.to_json(),
                    "compute_output": each.compute_output.to_json(),
                }
                for size, each in sorted(self.batches.items())
            ],
            "memory_usage": [],
        }
