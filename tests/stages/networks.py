"""Small networks with what makes cutting hard: skips, in-place operators, tied weights, buffers that change, tuples."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.nn import functional as F


class Perceptron(nn.Module):
    """Four layers in a row."""

    def __init__(self, width: int = 32) -> None:
        super().__init__()
        self.layers = nn.Sequential(*(nn.Sequential(nn.Linear(width, width), nn.GELU()) for _ in range(4)))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layers(x)


class Block(nn.Module):
    """A residual block as ResNets have it: in-place activations, batch normalisation, an in-place sum."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.one, self.two = (nn.Conv2d(channels, channels, 3, padding=1, bias=False) for _ in range(2))
        self.norm_one, self.norm_two = nn.BatchNorm2d(channels), nn.BatchNorm2d(channels)
        self.activation = nn.ReLU(inplace=True)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out = self.activation(self.norm_one(self.one(x)))
        out = self.norm_two(self.two(out))
        out += x
        return self.activation(out)


class Residual(nn.Module):
    """Three blocks, and a skip from the stem over all of them."""

    def __init__(self, channels: int = 8) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, channels, 3, padding=1)
        self.blocks = nn.ModuleList(Block(channels) for _ in range(3))
        self.head = nn.Linear(channels, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        first = hidden = self.stem(x)
        for block in self.blocks:
            hidden = block(hidden)
        return self.head((hidden + first).mean((2, 3)))


class Odd(nn.Module):
    """What graphs hold beside tensors: tuples, None, numbers from data, a changing buffer, strides that are not dense."""

    def __init__(self) -> None:
        super().__init__()
        self.one, self.two = nn.Linear(8, 8), nn.Linear(8, 8)
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, x: torch.Tensor, scale: float = 2.0, mask: torch.Tensor | None = None) -> dict[str, Any]:
        self.calls.add_(1)
        left, right = self.one(x).split(4, dim=-1)
        values, places = left.max(dim=-1)
        window = right.t()[1:, ::2]
        count = (values > 0).sum().item()
        spread = self.two(x)[:, None].expand(-1, 3, -1)
        return {
            "window": window @ window.t() * scale,
            "places": places,
            "count": count,
            "calls": self.calls * 1,
            "spread": spread.cumsum(1),
            "mask": mask,
            "fixed": 3,
        }


class Averaging(nn.Module):
    """A buffer that changes in a block without gradients, which export makes a graph of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.one, self.two = nn.Linear(8, 8), nn.Linear(8, 3)
        self.register_buffer("mean", torch.zeros(8))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        hidden = self.one(x)
        with torch.no_grad():
            self.mean.mul_(0.9).add_(hidden.mean(0), alpha=0.1)
        return self.two(hidden - self.mean)


class WithLoss(nn.Module):
    """A network that ends with its loss."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network

    def forward(self, x: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        return F.cross_entropy(self.network(x), target)


def gpt2(layers: int = 2, *, labels: bool = False) -> tuple[nn.Module, dict[str, torch.Tensor]]:
    """The embedding is read at the beginning and at the end."""
    from transformers import GPT2Config, GPT2LMHeadModel

    shape = {"n_layer": layers, "n_embd": 32, "n_head": 2, "vocab_size": 100, "n_positions": 32, "use_cache": False}
    ends = {"bos_token_id": 0, "eos_token_id": 0, "resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0}
    model = GPT2LMHeadModel(GPT2Config(**shape, **ends, loss_type="ForCausalLM"))
    tokens = torch.randint(0, 100, (2, 16))
    return model, {"input_ids": tokens} | ({"labels": tokens} if labels else {})


def bert() -> tuple[nn.Module, dict[str, torch.Tensor]]:
    from transformers import BertConfig, BertModel

    shape = {"num_hidden_layers": 2, "hidden_size": 32, "num_attention_heads": 2, "intermediate_size": 64}
    return BertModel(BertConfig(**shape, vocab_size=100)), {"input_ids": torch.randint(0, 100, (2, 16))}
