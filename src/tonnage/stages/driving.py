"""Feeds samples to the workers of a run and takes what comes out: one alone, many as a pipeline, or steps of training."""

from __future__ import annotations

import math
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from tonnage.errors import UsageError
from tonnage.stages.controller import Controller
from tonnage.stages.orders import Team
from tonnage.stages.stage import CONTROLLER
from tonnage.stages.timings import Timings
from tonnage.stages.training import Training

WARM_SAMPLES, ALONE_SAMPLES = 2, 5  # that come first, one at a time: unmeasured; for the latency
_STEPS_AHEAD = 2


@dataclass
class Driven:
    """What happened, in numbers of samples and of steps."""

    moments: list[float] = field(default_factory=list)  # when samples of the steady state, or steps, were complete
    latencies: list[float] = field(default_factory=list)
    steady: range = range(0)
    steady_steps: range = range(0)
    losses: dict[int, float] = field(default_factory=dict)  # by micro-batch
    weights: dict[str, torch.Tensor] = field(default_factory=dict)
    timings: dict[str, Timings] = field(default_factory=dict)
    peak_bytes: dict[str, int] = field(default_factory=dict)


@dataclass
class Drive:
    """`samples` are flat inputs; `take` gets the flat outputs of each."""

    team: Team
    controller: Controller
    samples: Sequence[Sequence[Any]]
    weights: dict[str, torch.Tensor]
    take: Callable[[int, list[Any]], None]

    def __post_init__(self) -> None:
        self._found: dict[int, dict[str, Any]] = defaultdict(dict)
        cut = self.team.cut
        self._awaited = {name for kind, name in cut.outputs if kind == "value" and name not in cut.inputs}
        if not self._awaited:
            raise UsageError("the network computes nothing that it returns")

    def feed(self, number: int) -> None:
        """To each stage its own inputs; those without inputs must know of the sample too."""
        given = dict(zip(self.team.cut.inputs, self.samples[number], strict=True))
        for stage in self.team.cut.stages:
            devices = self.team.replicas[stage.device]
            names = [name for name, source in stage.sources.items() if source == CONTROLLER]
            header = {"kind": "input", "number": number}
            self.controller.send(devices[number % len(devices)], header, {name: given[name] for name in names})

    def wait(self) -> int:
        """The number of the next sample that is complete."""
        while True:
            received = self.controller.next_result().received
            if received is not None and received.header["kind"] == "value":
                number: int = received.header["number"]
                self._found[number][received.header["name"]] = received.value
                if len(self._found[number]) == len(self._awaited):
                    self.take(number, self._outputs(number, self._found.pop(number)))
                    return number

    def close(self, driven: Driven, seconds: float) -> Driven:
        """All workers end; what they have measured."""
        for device in self.team.stage_of:
            self.controller.send(device, {"kind": "stop"})
        for device, received in self.controller.gather("report", seconds).items():
            driven.timings[device] = Timings.from_json(received.header["timings"])
            driven.peak_bytes[device] = received.header["peak_bytes"]
            driven.weights |= received.value
        return driven

    def _outputs(self, number: int, found: dict[str, Any]) -> list[Any]:
        given = dict(zip(self.team.cut.inputs, self.samples[number], strict=True))
        tables = {"value": given | found, "weight": self.weights}
        return [tables[kind][what] if kind in tables else what for kind, what in self.team.cut.outputs]


def default_in_flight(team: Team) -> int:
    """Each device and each link may be busy with a sample, and one more waits for each."""
    return 2 * (len(team.stage_of) + len(team.links(training=False)))


def infer(drive: Drive, in_flight: int, measured: int, seconds: float) -> Driven:
    """The first samples one at a time, the rest as a stream, of which the middle is measured."""
    total, driven = len(drive.samples), Driven()
    alone = min(WARM_SAMPLES + ALONE_SAMPLES, total - measured)
    for number in range(alone):
        start = time.perf_counter()
        drive.feed(number)
        drive.wait()
        driven.latencies.append(time.perf_counter() - start)
    driven.latencies = driven.latencies[WARM_SAMPLES:]
    edge = (total - alone - measured) // 2
    driven.steady = range(alone + edge, alone + edge + measured)
    _stream(drive, range(alone, total), in_flight, driven)
    return drive.close(driven, seconds)


def _stream(drive: Drive, numbers: range, in_flight: int, driven: Driven) -> None:
    fed, done = 0, 0
    while done < len(numbers):
        while fed < len(numbers) and fed - done < in_flight:
            drive.feed(numbers[fed])
            fed += 1
        number = drive.wait()
        done += 1
        if number in driven.steady:
            driven.moments.append(time.perf_counter())


def train(drive: Drive, training: Training, seconds: float) -> Driven:
    """Steps follow each other without a pause: the next one's samples are there when the first is done with this one."""
    count, driven = training.micro_batches, Driven()
    fed, updated = 0, defaultdict[int, int](int)
    workers = len(drive.team.stage_of)
    while len(driven.moments) < training.steps:
        while fed < training.steps and fed - len(driven.moments) < _STEPS_AHEAD:
            _feed_step(drive, fed, count)
            fed += 1
        event = drive.controller.next_result()
        assert event.received is not None
        number, kind = event.received.header.get("number", -1), event.received.header["kind"]
        if kind == "value":
            driven.losses[number] = float(event.received.value.detach())
        updated[number] += kind == "updated"
        if kind == "updated" and updated[number] == workers:
            driven.moments.append(time.perf_counter())
    driven.steady = range(count if training.steps > 1 else 0, training.steps * count)
    driven.steady_steps = range(1 if training.steps > 1 else 0, training.steps)
    return drive.close(driven, seconds)


def _feed_step(drive: Drive, step: int, count: int) -> None:
    for device in drive.team.stage_of:
        drive.controller.send(device, {"kind": "step", "number": step})
    for number in range(step * count, (step + 1) * count):
        drive.feed(number)


def mean_losses(driven: Driven, training: Training) -> tuple[float, ...]:
    count = training.micro_batches
    steps = (range(step * count, (step + 1) * count) for step in range(training.steps))
    return tuple(math.fsum(driven.losses[number] for number in numbers) / count for numbers in steps)
