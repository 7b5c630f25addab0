"""Small models as exported graphs."""

from __future__ import annotations

import warnings
from typing import Any

import torch
from torch import fx, nn


def exported(module: nn.Module, *args: Any, training: bool = False) -> fx.GraphModule:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of torch, about itself
        return torch.export.export(module.train(training), args).module(check_guards=False)  # type: ignore[return-value]


class Tied(nn.Module):
    """Reads one weight at its beginning and at its end."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(100, 16)
        self.inner = nn.Linear(16, 16)
        self.head = nn.Linear(16, 100, bias=False)
        self.head.weight = self.embedding.weight

    def forward(self, words: torch.Tensor) -> torch.Tensor:
        return self.head(torch.tanh(self.inner(self.embedding(words))))


class Halves(nn.Module):
    def forward(self, values: torch.Tensor) -> torch.Tensor:
        left, right = values.split(4, dim=-1)
        return left * right


class InPlace(nn.Module):
    """The last multiplication reads what the addition has changed."""

    def forward(self, values: torch.Tensor) -> torch.Tensor:
        made = values * 2
        made[:, 0].add_(1)
        return made * values


class WithoutGradients(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(8, 8)

    def forward(self, values: torch.Tensor) -> torch.Tensor:
        with torch.no_grad():
            scale = torch.sin(values).cos()
        return self.inner(values) * scale


class Choosing(nn.Module):
    def forward(self, values: torch.Tensor) -> torch.Tensor:
        return torch.cond(values.sum() > 0, lambda v: v + 1, lambda v: v - 1, (values,))
