"""A model and its inputs, for `tonnage estimate examples/classifier.py:build`."""

import torch
from torch import nn


def build(batch_size: int = 256) -> tuple[nn.Module, torch.Tensor]:
    """Inference: a network in evaluation mode and a batch for it."""
    layers = [nn.Linear(784, 4096), nn.ReLU(), nn.Linear(4096, 4096), nn.ReLU(), nn.Linear(4096, 10)]
    return nn.Sequential(*layers).eval(), torch.randn(batch_size, 784)


def build_training(batch_size: int = 256) -> dict[str, object]:
    """Training: the same network with a loss and an optimizer."""
    model, inputs = build(batch_size)
    labels = torch.zeros(batch_size, dtype=torch.long, device="cuda")
    return {
        "model": model.train(),
        "inputs": inputs,
        "loss": lambda output: nn.functional.cross_entropy(output, labels),
        "optimizer": lambda parameters: torch.optim.SGD(parameters, lr=0.1, momentum=0.9),
    }
