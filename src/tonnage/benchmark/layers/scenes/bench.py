"""What the makers of layers need: tensors and modules on the device, and a scene around a function."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Protocol, TypeAlias

import torch
from torch import Tensor, nn


class Stage(Protocol):
    """Where a scene says what it is about to do, and asks for cold caches."""

    def phase(self, name: str) -> None: ...
    def forget(self) -> None: ...


Scene: TypeAlias = Callable[[Stage], None]
Maker: TypeAlias = Callable[..., Scene]
Function: TypeAlias = Callable[..., Tensor]


class Bench:
    """Makes everything on one device and in one dtype."""

    def __init__(self, device: str, dtype: str) -> None:
        self.device = device
        self.dtype: torch.dtype = getattr(torch, dtype)

    def tensor(self, *shape: int, grad: bool = True, channels_last: bool = False) -> Tensor:
        value = torch.randn(*shape, device=self.device).to(self.dtype)
        if channels_last:
            value = value.to(memory_format=torch.channels_last)
        return value.requires_grad_(grad)

    def indices(self, high: int, *shape: int) -> Tensor:
        return torch.randint(0, high, shape, device=self.device)

    def module(self, module: nn.Module, channels_last: bool = False) -> nn.Module:
        module = module.to(device=self.device, dtype=self.dtype)
        if channels_last:
            # torch declares `to` without the keyword that its documentation has.
            module = module.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        if isinstance(module, nn.RNNBase):
            module.flatten_parameters()  # another dtype has put its weights into pieces of memory of their own
        return module

    def scene(self, function: Function, *inputs: Tensor, leaves: Iterable[Tensor] = ()) -> Scene:
        """As in a network: the first input and the arriving gradient have just been written, all else has not."""
        master = inputs[0].detach().clone(memory_format=torch.preserve_format)
        gradients: list[Tensor] = []
        all_leaves = (*inputs, *leaves)

        def run(stage: Stage) -> None:
            stage.phase("prepare")
            stage.forget()
            with torch.no_grad():
                inputs[0].copy_(master)
            stage.phase("forward")
            result = function(*inputs)
            stage.phase("prepare")
            if result.requires_grad:
                if not gradients:
                    gradients.append(torch.randn_like(result))
                stage.forget()
                torch.autograd.backward(result, gradients[0].clone())
            for leaf in all_leaves:
                leaf.grad = None

        return run

    def layer(self, module: nn.Module, *inputs: Tensor, channels_last: bool = False) -> Scene:
        module = self.module(module, channels_last)
        return self.scene(module, *inputs, leaves=tuple(module.parameters()))


def forward_only(act: Callable[[], object], phase: str = "forward") -> Scene:
    """A scene without a backward pass."""

    def run(stage: Stage) -> None:
        stage.phase("prepare")
        stage.forget()
        stage.phase(phase)
        act()
        stage.phase("prepare")

    return run
