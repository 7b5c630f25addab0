"""Training on one device: forwards and backwards of micro-batches as 1F1B allows them, then the update of its weights.

A backward that is ready comes before any forward, and no more micro-batches are under way than 1F1B would have: as many
as there are devices from here to the loss. Gradients of a weight add up micro-batch after micro-batch, as in one process.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

import torch

from tonnage.errors import UsageError
from tonnage.stages.executor import Executor
from tonnage.stages.links import Arrival
from tonnage.stages.readiness import Task
from tonnage.stages.stage import CONTROLLER
from tonnage.stages.tensors import map_tensors, tensors_in

_BACKWARD, _FORWARD, _SHARE, _UPDATE = range(4)  # the first that is ready comes first
_OPTIMIZERS = {"sgd": torch.optim.SGD, "adam": torch.optim.Adam, "adamw": torch.optim.AdamW}


@dataclass(frozen=True, slots=True, kw_only=True)
class Training:
    """How to train: each step adds up the gradients of its micro-batches' mean loss."""

    steps: int = 3
    micro_batches: int = 4
    optimizer: str = "sgd"  # or adam, adamw
    options: Mapping[str, float] = field(default_factory=lambda: {"lr": 1e-3}, hash=False)  # as torch names them
    recompute: bool = False  # forget what the backward needs, and compute it again
    # Add up gradients of weights that several devices hold as one process would, micro-batch after micro-batch, and not
    # each its own first: the same bits, for so many times the traffic and memory as there are micro-batches.
    exact: bool = False
    seed: int = 0  # of random operators such as dropout

    def __post_init__(self) -> None:
        if self.optimizer not in _OPTIMIZERS:
            raise UsageError(f"there is no optimizer {self.optimizer!r} here", f"known are {', '.join(_OPTIMIZERS)}")
        if self.steps < 1 or self.micro_batches < 1:
            raise UsageError(f"{self.steps} steps of {self.micro_batches} micro-batches are impossible")

    def make_optimizer(self, weights: list[torch.Tensor]) -> torch.optim.Optimizer:
        kind: Any = _OPTIMIZERS[self.optimizer]
        made: torch.optim.Optimizer = kind(weights, **self.options)
        return made

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


@dataclass
class TrainingExecutor(Executor):
    """`holders` are all devices of each weight, in the one order in which they add up gradients; `loss` is a value."""

    training: Training = field(default_factory=Training)
    loss: str = ""
    holders: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    under_way: int = 1  # micro-batches that may be begun and not finished

    def __post_init__(self) -> None:
        super().__post_init__()
        self.made: dict[tuple[int, int], dict[str, Any]] = {}  # outputs with their graphs, by micro-batch and segment
        self.gradients: dict[tuple[int, str, str], list[torch.Tensor | None]] = {}
        # Of weights that others hold too, by step, weight and device; each by micro-batch, or all of them as one.
        self.weight_gradients: dict[tuple[int, str, str], dict[str, torch.Tensor]] = defaultdict(dict)
        self.open_steps: set[int] = set()
        self.trained = [weight for weight in self.weights.values() if weight.requires_grad]
        self.optimizer = self.training.make_optimizer(self.trained) if self.trained else None
        self.turn = len(self.routes.replicas.get(self.stage.device, (self.device,)))

    @property
    def is_done(self) -> bool:
        return not self.values and not self.open_steps

    # -- what arrives -----------------------------------------------------------------------------------------------------

    def take(self, arrival: Arrival) -> None:
        number, name = arrival.number, arrival.name
        if arrival.kind == "step":
            self._plan_step(number)
        elif arrival.kind == "gradient":
            key = (number, name, arrival.source)
            self.gradients[key] = self.here(arrival.value)
            self.ready.happen(("gradient", *key), number)
        elif arrival.kind == "weight":
            self.weight_gradients[number, name, arrival.source] = self.here(arrival.value)
            self.ready.happen(("weight", number, name, arrival.source), ("step", number))
        else:
            super().take(arrival)

    def plan(self, number: int) -> None:
        step, before = self._step_of(number), number - self.turn
        limit = number - self.turn * self.under_way
        facts: set[Hashable] = {("updated", step - 1)} if step - 1 in self.open_steps else set()
        facts |= {("finished", limit)} if limit in self.values else set()
        for place in range(len(self.stage.segments)):
            in_order = {("ran", before, place)} if before in self.values else set()
            self.ready.add((_FORWARD, number, place), self.needs(number, place) | facts | in_order)

    def _step_of(self, number: int) -> int:
        return number // self.training.micro_batches

    def _plan_step(self, step: int) -> None:
        self.open_steps.add(step)
        count = self.training.micro_batches
        numbers = [
            number
            for number in range(step * count, (step + 1) * count)
            if self.routes.device(self.stage.device, number) == self.device
        ]
        self.ready.add((_SHARE, step), [("finished", number) for number in numbers])

    # -- what is done -----------------------------------------------------------------------------------------------------

    def do(self, task: Task) -> None:
        kinds: dict[int, Callable[..., None]] = {
            _FORWARD: self._forward, _BACKWARD: self._backward, _SHARE: self._share, _UPDATE: self._update,
        }  # fmt: skip
        kinds[task[0]](*task[1:])

    def _forward(self, number: int, place: int) -> None:
        # A forward that is repeated must find what this one found; what it changes is changed once.
        before = {name: self.weights[name].clone() for name in self.stage.written_weights if self.training.recompute}
        with self.computing(number, "forward", f"micro-batch {number}", place):
            made = self._run(number, place)
        leaves = {name: map_tensors(value, _leaf) for name, value in made.items()}
        self.made[number, place] = before if self.training.recompute else made
        for name, leaf in leaves.items():
            self.hold(number, name, leaf)
        for name in self.stage.segments[place].publishes:
            self.publish(number, name, leaves[name])
        self.ready.happen(("ran", number, place), number)
        self.ready.add((_BACKWARD, number, -place), self._needs_of_backward(number, place, leaves))

    def _run(self, number: int, place: int, other: Mapping[str, torch.Tensor] | None = None) -> dict[str, Any]:
        """The segment's outputs; random operators give the same each time for the same micro-batch."""
        segment, held = self.stage.segments[place], self.values[number]
        torch.manual_seed(hash((self.training.seed, number, self.stage.segments[place].level)) % (1 << 63))
        with torch.enable_grad():
            weights = self.segment_weights(place, other)
            made = self.functions[place](*(held[name] for name in segment.inputs), *weights)
        return dict(zip(segment.outputs, made, strict=True))

    def _needs_of_backward(self, number: int, place: int, outputs: Mapping[str, Any]) -> set[Hashable]:
        facts: set[Hashable] = set()
        if number - self.turn in self.values:
            facts.add(("back", number - self.turn, place))
        for name, value in outputs.items():
            if any(tensor.requires_grad for tensor in tensors_in(value)):
                facts |= {("gradient", number, name, device) for device in self._remote_readers(number, name)}
                facts |= {("back", number, other) for other in self._local_readers(name) if other != place}
        return facts

    def _backward(self, number: int, negative_place: int) -> None:
        place = -negative_place
        with self.computing(number, "backward", f"micro-batch {number}", place):
            made = self.made.pop((number, place))
            if self.training.recompute:
                made = self._run(number, place, made)
            roots, gradients = self._roots(number, made)
            if roots:
                torch.autograd.backward(roots, gradients)
        del made, roots
        if self.training.exact:
            self._set_aside(number)
        self.ready.happen(("back", number, place), number)
        self._send_gradients(number, place)
        if all(("back", number, each) in self.ready for each in range(len(self.stage.segments))):
            self.finish(number)

    def _roots(self, number: int, made: Mapping[str, Any]) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
        """Outputs with the gradients that came back for them: those of later stages first, as in one process."""
        roots, gradients = [], []
        for name, value in made.items():
            tensors, leaves = tensors_in(value), tensors_in(self.values[number][name])
            for place, tensor in enumerate(tensors):
                parts = [self.gradients[number, name, device] for device in self._came_back(number, name)]
                found = [part for each in parts if (part := each[place]) is not None]
                found += [part] if (part := leaves[place].grad) is not None else []
                if name == self.loss:
                    found.append(torch.full_like(tensor, 1.0 / self.training.micro_batches))
                if tensor.requires_grad and found:
                    roots.append(tensor)
                    gradients.append(_sum(found))
        return roots, gradients

    def _came_back(self, number: int, name: str) -> list[str]:
        devices = reversed(self._remote_readers(number, name))
        return [device for device in devices if (number, name, device) in self.gradients]

    def _send_gradients(self, number: int, place: int) -> None:
        """Of what came from elsewhere, once all segments that read it have gone back."""
        for name in self.stage.segments[place].inputs:
            source, leaves = self.stage.sources.get(name, CONTROLLER), tensors_in(self.values[number][name])
            is_done = all(("back", number, other) in self.ready for other in self._local_readers(name))
            if source != CONTROLLER and is_done and any(leaf.requires_grad for leaf in leaves):
                self.post(source, "gradient", number, name, [leaf.grad for leaf in leaves])

    def finish(self, number: int) -> None:
        super().finish(number)
        self.gradients = {key: value for key, value in self.gradients.items() if key[0] != number}

    # -- the end of a step ------------------------------------------------------------------------------------------------

    def _set_aside(self, number: int) -> None:
        """Gradients of shared weights that this micro-batch has brought."""
        for name, _ in self._shared_weights():
            weight, kept = self.weights[name], self.weight_gradients[self._step_of(number), name, self.device]
            if weight.grad is not None:
                kept[f"{number}"] = _sum([kept[f"{number}"], weight.grad] if f"{number}" in kept else [weight.grad])
                weight.grad = None

    def _share(self, step: int) -> None:
        """Who holds a weight as well gets the gradients that were found here."""
        needed: set[Hashable] = {("updated", step - 1)} if step - 1 in self.open_steps else set()
        if not self.training.exact:
            self._set_aside(step * self.training.micro_batches)
        for name, others in self._shared_weights():
            for other in others:
                header = {"kind": "weight", "number": step, "name": name}
                self.links.send(other, header, self.weight_gradients[step, name, self.device])
                needed.add(("weight", step, name, other))
        self.ready.add((_UPDATE, step), needed)

    def _update(self, step: int) -> None:
        with self.computing(step, "update", f"step {step}"):
            for name, _ in self._shared_weights():
                self.weights[name].grad = self._total(step, name)
            if self.optimizer is not None:
                self.optimizer.step()
                self.optimizer.zero_grad(set_to_none=True)
        self.open_steps.discard(step)
        self.ready.forget(("step", step))
        self.ready.happen(("updated", step))
        self.controller.put({"kind": "updated", "number": step}, None, self.seconds)

    def _total(self, step: int, name: str) -> torch.Tensor | None:
        """The same sum on all that hold the weight, as all add up in one order."""
        parts = [self.weight_gradients.pop((step, name, device), {}) for device in self.holders[name]]
        numbers = sorted({number for part in parts for number in part}, key=int)
        sums = [_sum([part[number] for part in parts if number in part]) for number in numbers]
        return _sum(sums) if sums else None

    def _shared_weights(self) -> list[tuple[str, list[str]]]:
        return [
            (name, [device for device in devices if device != self.device])
            for name, devices in self.holders.items()
            if len(devices) > 1 and name in self.weights and self.weights[name].requires_grad
        ]

    # -- who reads what ---------------------------------------------------------------------------------------------------

    def _remote_readers(self, number: int, name: str) -> list[str]:
        readers = self.stage.readers.get(name, ())
        return [self.routes.device(stage, number) for stage in readers if stage != CONTROLLER]

    def _local_readers(self, name: str) -> list[int]:
        return [place for place, segment in enumerate(self.stage.segments) if name in segment.inputs]


def _leaf(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.detach().requires_grad_(tensor.requires_grad)


def _sum(parts: list[torch.Tensor]) -> torch.Tensor:
    total = parts[0]
    for part in parts[1:]:
        total = total + part
    return total
