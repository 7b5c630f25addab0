"""Low-rank adaptation (Hu et al. 2021): half-precision frozen decoder, small float32 adapters that learn."""

import argparse
import math

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint


class LoRALinear(nn.Module):
    def __init__(self, base, rank, alpha):
        super().__init__()
        self.base, self.scale = base, alpha / rank
        self.a = nn.Parameter(torch.empty(rank, base.in_features))
        self.b = nn.Parameter(torch.zeros(base.out_features, rank))
        nn.init.kaiming_uniform_(self.a, a=math.sqrt(5))

    def forward(self, x):
        low = F.linear(F.linear(x.to(self.a.dtype), self.a), self.b)
        return self.base(x) + (self.scale * low).to(x.dtype)


class Layer(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.heads = heads
        self.q, self.k, self.v, self.o = (nn.Linear(dim, dim, bias=False) for _ in range(4))
        self.gate, self.up = nn.Linear(dim, 3 * dim, bias=False), nn.Linear(dim, 3 * dim, bias=False)
        self.down = nn.Linear(3 * dim, dim, bias=False)
        self.norm1, self.norm2 = nn.RMSNorm(dim, eps=1e-6), nn.RMSNorm(dim, eps=1e-6)

    def forward(self, x):
        b, t, c = x.shape
        h = self.norm1(x)
        q, k, v = (m(h).view(b, t, self.heads, c // self.heads).transpose(1, 2) for m in (self.q, self.k, self.v))
        h = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.o(h.transpose(1, 2).reshape(b, t, c))
        h = self.norm2(x)
        return x + self.down(F.silu(self.gate(h)) * self.up(h))


class Decoder(nn.Module):
    def __init__(self, vocab, dim, heads, layers):
        super().__init__()
        self.embed = nn.Embedding(vocab, dim)
        self.layers = nn.ModuleList(Layer(dim, heads) for _ in range(layers))
        self.norm, self.head = nn.RMSNorm(dim, eps=1e-6), nn.Linear(dim, vocab, bias=False)

    def forward(self, ids, recompute):
        x = self.embed(ids)
        if recompute:
            x = x.requires_grad_()  # the embedding is frozen: without this, nothing would be recomputed
        for layer in self.layers:
            x = checkpoint(layer, x, use_reentrant=True) if recompute else layer(x)
        return self.head(self.norm(x))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--batch-size", type=int, default=4)
    parser.add_argument("--steps", type=int, default=5)
    parser.add_argument("--length", type=int, default=512)
    parser.add_argument("--dim", type=int, default=1024)
    parser.add_argument("--heads", type=int, default=16)
    parser.add_argument("--layers", type=int, default=16)
    parser.add_argument("--vocab", type=int, default=32000)
    parser.add_argument("--rank", type=int, default=8)
    parser.add_argument("--recompute", action="store_true")
    parser.add_argument("--out", default=None, help="where to save the adapters")
    args = parser.parse_args()

    device = torch.device("cuda")
    with device:
        model = Decoder(args.vocab, args.dim, args.heads, args.layers).to(torch.bfloat16)
    model.requires_grad_(False)
    for layer in model.layers:
        layer.q = LoRALinear(layer.q, args.rank, 16).to(device)
        layer.v = LoRALinear(layer.v, args.rank, 16).to(device)
    adapters = [p for p in model.parameters() if p.requires_grad]
    print(f"training {sum(p.numel() for p in adapters):,} of {sum(p.numel() for p in model.parameters()):,} parameters")
    optimizer = torch.optim.AdamW(adapters, lr=2e-4)

    for step in range(args.steps):
        ids = torch.randint(args.vocab, (args.batch_size, args.length), device=device)
        logits = model(ids, args.recompute)
        loss = F.cross_entropy(logits[:, :-1].float().reshape(-1, args.vocab), ids[:, 1:].reshape(-1))
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        print(step, f"{loss.item():.3f}")
    if args.out:
        torch.save({name: p.cpu() for name, p in model.named_parameters() if p.requires_grad}, args.out)


if __name__ == "__main__":
    main()
