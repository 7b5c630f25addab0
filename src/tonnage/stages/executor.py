"""The heart of a worker: takes what arrives, runs what is ready, passes on what others need. Here for inference."""

from __future__ import annotations

import queue
import time
from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch

from tonnage.errors import TonnageError
from tonnage.stages.graph_code import compile_code
from tonnage.stages.links import Arrival, Inbox, Links, Outbox
from tonnage.stages.readiness import Readiness, Task
from tonnage.stages.stage import CONTROLLER, Stage
from tonnage.stages.tensors import map_tensors
from tonnage.stages.timings import Clock, Transferred

_TICK_SECONDS = 0.5
_REHEARSAL_SECONDS = 3.0  # of a node that is made slower: a machine that others use is slow for seconds
_MEASURED = ("value", "gradient", "weight")  # kinds of messages that are the traffic of a link


@dataclass
class Activity:
    """What a worker is doing, for its signs of life."""

    doing: str = "starting"
    steps: int = 0  # grows with all that happens
    is_computing: bool = False


@dataclass(frozen=True)
class Routes:
    """Which device runs a stage for a sample: devices that hold the same stage take turns."""

    replicas: Mapping[str, tuple[str, ...]]  # by the first device of the stage, itself included

    def device(self, stage: str, number: int) -> str:
        devices = self.replicas.get(stage, (stage,))
        return devices[number % len(devices)]


@dataclass
class Executor:
    """One stage with its weights. `device` may be a replica of the stage's own."""

    device: str
    stage: Stage
    weights: dict[str, torch.Tensor]  # by their names in the network
    torch_device: torch.device
    routes: Routes
    inbox: Inbox
    links: Links
    controller: Outbox
    seconds: float  # that a full queue may take to move
    clock: Clock
    activity: Activity = field(default_factory=Activity)

    def __post_init__(self) -> None:
        self.ready = Readiness()
        self.values: dict[int, dict[str, Any]] = {}  # by sample
        self.is_stopping = False
        self.rehearsed: set[int] = set()
        self.functions = [
            compile_code(each.code, (*each.inputs, *each.weights), each.outputs, self.torch_device)
            for each in self.stage.segments
        ]

    def run(self) -> None:
        """Until the controller says that there is no more, and all is done."""
        while not (self.is_stopping and self.is_done):
            self._take_arrivals()
            task = self.ready.pop()
            if task is not None:
                self.do(task)
                self.activity.steps += 1

    @property
    def is_done(self) -> bool:
        return not self.values

    # -- what arrives -----------------------------------------------------------------------------------------------------

    def _take_arrivals(self) -> None:
        """All that is there; waits only if there is nothing else to do."""
        wait = self.ready.is_idle
        if wait:
            self.activity.doing = self._waiting_for()
        try:
            while True:
                arrival = self.inbox.arrivals.get(block=wait, timeout=_TICK_SECONDS)
                wait = False
                if isinstance(arrival, TonnageError):
                    raise arrival
                self._take(arrival)
        except queue.Empty:
            return

    def _take(self, arrival: Arrival) -> None:
        self.activity.steps += 1
        if arrival.kind in _MEASURED:
            row = Transferred(arrival.number, arrival.kind, arrival.source, arrival.nbytes, arrival.seconds)
            self.clock.timings.transferred.append(row)
        if arrival.kind == "stop":
            self.is_stopping = True
        elif arrival.kind == "input":
            self.begin(arrival.number, arrival.value)
        else:
            self.take(arrival)

    def begin(self, number: int, inputs: Mapping[str, Any]) -> None:
        """A new sample; values of neighbours may have come before it."""
        held = self.values.setdefault(number, {})
        held |= {name: self.here(value) for name, value in inputs.items()}
        for name in inputs:
            self.ready.happen(("value", number, name), number)
        self.plan(number)

    def plan(self, number: int) -> None:
        """The runs of a sample, and what each waits for."""
        held_back: set[Hashable] = set()
        if self.stage.in_order:
            held_back |= {("finished", each) for each in self.values if each < number}
        for place in range(len(self.stage.segments)):
            self.ready.add((number, place), self.needs(number, place) | held_back)

    def needs(self, number: int, place: int) -> set[Hashable]:
        segment = self.stage.segments[place]
        values: set[Hashable] = {("value", number, name) for name in segment.inputs}
        return values | {("ran", number, each) for each in segment.after}

    def take(self, arrival: Arrival) -> None:
        self.hold(arrival.number, arrival.name, self.here(arrival.value))

    def hold(self, number: int, name: str, value: Any) -> None:
        self.values.setdefault(number, {})[name] = value
        self.ready.happen(("value", number, name), number)

    def here(self, value: Any) -> Any:
        """On this worker's device."""
        return map_tensors(value, lambda tensor: tensor.to(self.torch_device))

    # -- what is done -----------------------------------------------------------------------------------------------------

    def do(self, task: Task) -> None:
        number, place = task
        held, segment = self.values[number], self.stage.segments[place]
        if self.clock.is_paced and place not in self.rehearsed:
            self.rehearse(place, [held[name] for name in segment.inputs])
        with torch.no_grad(), self.computing(number, "forward", f"sample {number}", place):
            made = self.functions[place](*(held[name] for name in segment.inputs), *self.segment_weights(place))
        for name, value in zip(segment.outputs, made, strict=True):
            self.hold(number, name, value)
        for name in segment.publishes:
            self.publish(number, name, held[name])
        self.ready.happen(("ran", number, place), number)
        if all(("ran", number, each) in self.ready for each in range(len(self.stage.segments))):
            self.finish(number)

    def rehearse(self, place: int, inputs: list[Any]) -> None:
        """Before a segment runs on a node that is made slower: what it needs when nothing disturbs it."""
        self.rehearsed.add(place)
        end = time.monotonic() + (0.0 if self.stage.written_weights else _REHEARSAL_SECONDS / len(self.functions))
        while time.monotonic() < end:
            copies = [map_tensors(value, torch.clone) for value in inputs]  # it may write to them
            timed = self.clock.rehearsing("forward", place)
            with torch.no_grad(), _Computing(self.activity, timed, "rehearsing"):
                self.functions[place](*copies, *self.segment_weights(place))
            self.activity.steps += 1

    def finish(self, number: int) -> None:
        del self.values[number]
        self.ready.forget(number)
        self.ready.happen(("finished", number))

    def segment_weights(self, place: int, other: Mapping[str, torch.Tensor] | None = None) -> list[torch.Tensor]:
        """In the order of the code, with those of `other` in place of our own."""
        held = {**self.weights, **(other or {})}
        return [held[self.stage.weights[name]] for name in self.stage.segments[place].weights]

    def publish(self, number: int, name: str, value: Any) -> None:
        if name in self.stage.volatile:
            value = map_tensors(value, torch.clone)
        readers = self.stage.readers[name]
        if CONTROLLER in readers:
            self.post(CONTROLLER, "value", number, name, value)
        devices = [self.routes.device(reader, number) for reader in readers if reader != CONTROLLER]
        if devices:  # each passes it on to the next: who makes a value for many sends it once
            header = {"kind": "value", "number": number, "name": name, "onward": devices[1:]}
            self.links.send(devices[0], header, value)

    def post(self, stage: str, kind: str, number: int, name: str, value: Any) -> None:
        """To the controller, or to whoever runs that stage for this sample."""
        header = {"kind": kind, "number": number, "name": name}
        if stage == CONTROLLER:
            self.controller.put(header, value, self.seconds)
        else:
            self.links.send(self.routes.device(stage, number), header, value)

    def computing(self, number: int, phase: str, what: str, place: int = 0) -> _Computing:
        return _Computing(self.activity, self.clock.computing(number, phase, place), f"computing {what} ({phase})")

    def _waiting_for(self) -> str:
        fact = self.ready.waits_for
        if not isinstance(fact, tuple) or len(fact) < 3:
            return "waiting for samples"
        kind, number, name = fact[:3]
        source = fact[3] if len(fact) > 3 else self.stage.sources.get(str(name), self.stage.device)
        where = self.routes.device(source, number) if source else "the controller"
        what = {"value": "", "gradient": "the gradient of "}.get(kind, f"{kind} of ")
        return f"waiting for {what}{name} of sample {number} from {where}"


@dataclass
class _Computing:
    """Says what is computed while it is timed."""

    activity: Activity
    timed: Any
    doing: str

    def __enter__(self) -> None:
        self.activity.doing, self.activity.is_computing = self.doing, True
        self.timed.__enter__()

    def __exit__(self, *details: Any) -> None:
        self.timed.__exit__(*details)
        self.activity.is_computing = False
