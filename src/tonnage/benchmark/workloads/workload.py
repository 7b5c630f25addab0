"""A built network with its data and its loss. The only module of families that knows torch, and only when used."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch
    from torch import Generator, Tensor, nn

Draw = Callable[[int, "Generator"], tuple["Tensor", "Tensor"]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """A network, a way to make a batch for it, and the loss that trains it."""

    module: nn.Module
    draw: Draw
    loss: Callable[[Tensor, Tensor], Tensor]

    def sample(
        self, batch: int, device: str | torch.device = "cpu", dtype: torch.dtype | None = None
    ) -> tuple[Tensor, Tensor]:
        """Inputs and targets, made on the host, equal every time, then brought to `device`.

        `dtype` is for inputs that are not whole numbers.
        """
        import torch

        inputs, targets = self.draw(batch, torch.Generator().manual_seed(0))
        if dtype is not None and inputs.is_floating_point():
            inputs = inputs.to(dtype)
        return inputs.to(device), targets.to(device)


def numbers_and_class(shape: tuple[int, ...], classes: int) -> Draw:
    """Random numbers of a shape, and one class for each sample."""

    def draw(batch: int, generator: Generator) -> tuple[Tensor, Tensor]:
        import torch

        inputs = torch.randn(batch, *shape, generator=generator)
        return inputs, torch.randint(classes, (batch,), generator=generator)

    return draw


def image_and_mask(shape: tuple[int, int, int], classes: int) -> Draw:
    """A random image, and one class for each of its pixels."""

    def draw(batch: int, generator: Generator) -> tuple[Tensor, Tensor]:
        import torch

        inputs = torch.randn(batch, *shape, generator=generator)
        return inputs, torch.randint(classes, (batch, *shape[1:]), generator=generator)

    return draw


def tokens_and_tokens(sequence: int, vocabulary: int) -> Draw:
    """Random tokens, and the token to predict at each position."""

    def draw(batch: int, generator: Generator) -> tuple[Tensor, Tensor]:
        import torch

        drawn = torch.randint(vocabulary, (2, batch, sequence), generator=generator)
        return drawn[0], drawn[1]

    return draw


def classification_loss(outputs: Tensor, targets: Tensor) -> Tensor:
    """Cross entropy with classes in the second dim: of samples (batch, classes) or of pixels."""
    from torch.nn import functional

    return functional.cross_entropy(outputs, targets)


def token_loss(outputs: Tensor, targets: Tensor) -> Tensor:
    """Cross entropy of every token of every sequence."""
    from torch.nn import functional

    return functional.cross_entropy(outputs.flatten(0, 1), targets.flatten())
