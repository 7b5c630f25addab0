"""A transformer in the usual form of today: normalisation first, fused projections, scaled dot-product attention."""

import torch
from torch import Tensor, nn
from torch.nn import functional


class Block(nn.Module):
    """Attention, then two linear layers with GELU between them; each part is added to what came in."""

    def __init__(self, width: int, heads: int, inner: int, is_causal: bool) -> None:
        super().__init__()
        self.heads, self.is_causal = heads, is_causal
        self.norm1 = nn.LayerNorm(width)
        self.projections = nn.Linear(width, 3 * width)
        self.merge = nn.Linear(width, width)
        self.norm2 = nn.LayerNorm(width)
        self.expand = nn.Linear(width, inner)
        self.contract = nn.Linear(inner, width)

    def forward(self, tokens: Tensor) -> Tensor:
        tokens = tokens + self.attend(self.norm1(tokens))
        expanded = functional.gelu(self.expand(self.norm2(tokens)))
        added: Tensor = tokens + self.contract(expanded)
        return added

    def attend(self, tokens: Tensor) -> Tensor:
        batch, sequence, width = tokens.shape
        shape = (batch, sequence, 3, self.heads, width // self.heads)
        query, key, value = self.projections(tokens).view(shape).permute(2, 0, 3, 1, 4)
        mixed = functional.scaled_dot_product_attention(query, key, value, is_causal=self.is_causal)
        merged: Tensor = self.merge(mixed.transpose(1, 2).reshape(batch, sequence, width))
        return merged


class TransformerNetwork(nn.Module):
    """Token and position embeddings, blocks, and an output layer over the vocabulary."""

    def __init__(
        self,
        *,
        depth: int,
        width: int,
        heads: int,
        sequence: int,
        vocabulary: int,
        feedforward: int,
        is_causal: bool,
    ) -> None:
        super().__init__()
        self.tokens = nn.Embedding(vocabulary, width)
        self.positions = nn.Parameter(torch.zeros(sequence, width))
        self.blocks = nn.Sequential(*(Block(width, heads, feedforward * width, is_causal) for _ in range(depth)))
        self.norm = nn.LayerNorm(width)
        self.output = nn.Linear(width, vocabulary)

    def forward(self, tokens: Tensor) -> Tensor:
        logits: Tensor = self.output(self.norm(self.blocks(self.tokens(tokens) + self.positions)))
        return logits
