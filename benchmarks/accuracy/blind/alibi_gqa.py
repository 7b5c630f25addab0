"""Language model with grouped-query attention and linear position biases (ALiBi), attention written out by hand."""

from __future__ import annotations

import argparse
import math
from dataclasses import dataclass

import torch
import torch.nn as nn
from torch import Tensor


@dataclass
class Config:
    vocab: int
    length: int
    dim: int
    layers: int
    heads: int
    groups: int


def alibi_bias(heads: int, length: int) -> Tensor:
    slopes = torch.tensor([2 ** (-8 * (i + 1) / heads) for i in range(heads)])
    distance = torch.arange(length)[None, :] - torch.arange(length)[:, None]
    bias = slopes[:, None, None] * distance
    return bias.masked_fill(distance > 0, float("-inf"))


class GroupedQueryAttention(nn.Module):
    def __init__(self, config: Config) -> None:
        super().__init__()
        self.heads, self.groups = config.heads, config.groups
        self.head_dim = config.dim // config.heads
        self.q_proj = nn.Linear(config.dim, config.dim, bias=False)
        self.k_proj = nn.Linear(config.dim, self.groups * self.head_dim, bias=False)
        self.v_proj = nn.Linear(config.dim, self.groups * self.head_dim, bias=False)
        self.o_proj = nn.Linear(config.dim, config.dim, bias=False)

    def forward(self, x: Tensor, bias: Tensor) -> Tensor:
        b, t, d = x.shape
        repeat = self.heads // self.groups
        q = self.q_proj(x).view(b, t, self.heads, self.head_dim).transpose(1, 2)
        k = self.k_proj(x).view(b, t, self.groups, self.head_dim).transpose(1, 2)
        v = self.v_proj(x).view(b, t, self.groups, self.head_dim).transpose(1, 2)
        k, v = k.repeat_interleave(repeat, dim=1), v.repeat_interleave(repeat, dim=1)
        scores = torch.matmul(q, k.transpose(-2, -1)) / math.sqrt(self.head_dim) + bias
        weights = torch.softmax(scores.float(), dim=-1).to(v.dtype)
        return self.o_proj(torch.matmul(weights, v).transpose(1, 2).reshape(b, t, d))


class ReluSquared(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(x).square()


class Layer(nn.Module):
    def __init__(self, config: Config) -> None:
        super().__init__()
        self.attention_norm = nn.LayerNorm(config.dim)
        self.attention = GroupedQueryAttention(config)
        self.mlp_norm = nn.LayerNorm(config.dim)
        self.mlp = nn.Sequential(
            nn.Linear(config.dim, 4 * config.dim), ReluSquared(), nn.Linear(4 * config.dim, config.dim)
        )

    def forward(self, x: Tensor, bias: Tensor) -> Tensor:
        x = x + self.attention(self.attention_norm(x), bias)
        return x + self.mlp(self.mlp_norm(x))


class LanguageModel(nn.Module):
    def __init__(self, config: Config) -> None:
        super().__init__()
        self.embed = nn.Embedding(config.vocab, config.dim)
        self.layers = nn.ModuleList(Layer(config) for _ in range(config.layers))
        self.norm = nn.LayerNorm(config.dim)
        self.lm_head = nn.Linear(config.dim, config.vocab, bias=False)
        self.register_buffer("bias", alibi_bias(config.heads, config.length), persistent=False)

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.embed(tokens)
        for layer in self.layers:
            x = layer(x, self.bias)
        return self.lm_head(self.norm(x))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--batch-size", type=int, default=4)
    parser.add_argument("--steps", type=int, default=5)
    parser.add_argument("--length", type=int, default=512)
    parser.add_argument("--dim", type=int, default=768)
    parser.add_argument("--layers", type=int, default=12)
    parser.add_argument("--heads", type=int, default=12)
    parser.add_argument("--groups", type=int, default=4)
    parser.add_argument("--vocab", type=int, default=32000)
    parser.add_argument("--bf16", action="store_true")
    parser.add_argument("--score", action="store_true", help="only compute the perplexity of the text")
    args = parser.parse_args()

    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    config = Config(args.vocab, args.length, args.dim, args.layers, args.heads, args.groups)
    model = LanguageModel(config).to(device)
    tokens = torch.randint(args.vocab, (args.batch_size, args.length + 1), device=device)
    criterion = nn.CrossEntropyLoss()
    if args.score:
        model.to(torch.bfloat16 if args.bf16 else torch.float32).eval()
        for _ in range(args.steps):
            with torch.no_grad():
                logits = model(tokens[:, :-1])
                perplexity = criterion(logits.flatten(0, 1).float(), tokens[:, 1:].flatten()).exp()
        print("perplexity", perplexity.item())
        return
    optimizer = torch.optim.AdamW(model.parameters(), lr=6e-4, betas=(0.9, 0.95), weight_decay=0.1, fused=True)
    for step in range(args.steps):
        with torch.autocast(device.type, dtype=torch.bfloat16, enabled=args.bf16):
            logits = model(tokens[:, :-1])
            loss = criterion(logits.flatten(0, 1), tokens[:, 1:].flatten())
        loss.backward()
        norm = nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        print(f"{step:4d} {loss.item():.4f} {norm.item():.3f}")


if __name__ == "__main__":
    main()
