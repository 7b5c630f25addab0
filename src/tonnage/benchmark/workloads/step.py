"""One step of a sample workload in parts that can be timed one by one: copy, forward, backward, optimizer, read."""

from __future__ import annotations

from abc import ABC, abstractmethod
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any

from tonnage.benchmark.workloads.point import Point
from tonnage.benchmark.workloads.registry import find_family
from tonnage.benchmark.workloads.workload import Workload

if TYPE_CHECKING:
    import torch
    from torch import Tensor


class Step(ABC):
    """A step that can be repeated. Call the parts in the order in which they stand here, or the step itself for all.

    Tensors live as long as in a plain loop: the last batch, outputs and loss stay until the next ones are there.
    """

    outputs: Tensor
    value: Any  # what `read` brought: the loss, or the outputs

    def __init__(self, workload: Workload, point: Point, device: str) -> None:
        import torch

        self.device = device
        self.loss_of = workload.loss
        layout = {"contiguous": torch.contiguous_format, "channels_last": torch.channels_last}[point.memory_format]
        # torch declares `to` for each argument apart, not for both at once.
        self.module: Any = workload.module.to(device, memory_format=layout)  # type: ignore[call-overload]
        inputs, targets = workload.sample(point.batch)
        self.host_batch = inputs.contiguous(memory_format=layout), targets
        self.autocast = _autocast(point.precision, device)

    def copy(self) -> None:
        """Bring the batch from the host to the device."""
        inputs, targets = self.host_batch
        self.inputs, self.targets = inputs.to(self.device), targets.to(self.device)

    @abstractmethod
    def forward(self) -> None: ...

    @abstractmethod
    def backward(self) -> None: ...

    @abstractmethod
    def optimize(self) -> None: ...

    @abstractmethod
    def read(self) -> None:
        """Bring the result from the device to the host, which waits for everything before it."""

    def __call__(self) -> None:
        for part in (self.copy, self.forward, self.backward, self.optimize, self.read):
            part()


class TrainingStep(Step):
    """Forward with loss, backward, optimizer with `zero_grad` at the end; the loss is read."""

    def __init__(self, workload: Workload, point: Point, device: str) -> None:
        import torch

        super().__init__(workload, point, device)
        self.module.train()
        self.optimizer = make_optimizer(point.optimizer, list(self.module.parameters()))
        self.scaler = torch.amp.GradScaler(device.partition(":")[0], enabled=point.precision == "float16")

    def forward(self) -> None:
        with self.autocast:
            self.outputs = self.module(self.inputs)
            self.loss = self.loss_of(self.outputs, self.targets)

    def backward(self) -> None:
        self.scaler.scale(self.loss).backward()  # type: ignore[no-untyped-call]  # torch declares no types for it

    def optimize(self) -> None:
        self.scaler.step(self.optimizer)
        self.scaler.update()
        self.optimizer.zero_grad()

    def read(self) -> None:
        self.value = self.loss.item()


class InferenceStep(Step):
    """Forward without gradients; the outputs are read. There is nothing to do for backward and optimizer."""

    def __init__(self, workload: Workload, point: Point, device: str) -> None:
        super().__init__(workload, point, device)
        self.module.eval()

    def forward(self) -> None:
        import torch

        with torch.no_grad(), self.autocast:
            self.outputs = self.module(self.inputs)

    def backward(self) -> None:
        pass

    def optimize(self) -> None:
        pass

    def read(self) -> None:
        self.value = self.outputs.cpu()


def make_step(workload: Workload, point: Point, device: str = "cuda") -> Step:
    """A step of a workload that was built for the point's structure, with the network on `device`."""
    kind = TrainingStep if point.mode == "training" else InferenceStep
    return kind(workload, point, device)


def prepare_step(point: Point, device: str = "cuda") -> Step:
    """Build the point's network and make a step of it.

    Weights are made on the host, as in most programs: making them on the device leaves its allocator in another state.
    """
    return make_step(find_family(point.family).build(point.structure), point, device)


def make_optimizer(name: str, parameters: list[Tensor]) -> torch.optim.Optimizer:
    """The optimizer of that name as torch makes it, with a rate at which nothing explodes."""
    from torch import optim

    match name:
        case "sgd":
            return optim.SGD(parameters, lr=1e-3)
        case "momentum":
            return optim.SGD(parameters, lr=1e-3, momentum=0.9)
        case "adam":
            return optim.Adam(parameters, lr=1e-4)
        case _:
            return optim.AdamW(parameters, lr=1e-4)


def _autocast(precision: str, device: str) -> AbstractContextManager[object]:
    import torch

    if precision == "float32":
        return nullcontext()
    return torch.autocast(device.partition(":")[0], dtype=getattr(torch, precision))
