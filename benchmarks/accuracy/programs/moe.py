"""Mixture-of-experts transformer: top-2 routing, tokens gathered per expert by what the router says."""

import argparse

import torch
import torch.nn.functional as F
from torch import nn


class Expert(nn.Module):
    def __init__(self, dim, hidden):
        super().__init__()
        self.w1, self.w2, self.w3 = (
            nn.Linear(a, b, bias=False) for a, b in ((dim, hidden), (hidden, dim), (dim, hidden))
        )

    def forward(self, x):
        return self.w2(F.silu(self.w1(x)) * self.w3(x))


class MoE(nn.Module):
    def __init__(self, dim, hidden, experts, top_k):
        super().__init__()
        self.top_k = top_k
        self.gate = nn.Linear(dim, experts, bias=False)
        self.experts = nn.ModuleList(Expert(dim, hidden) for _ in range(experts))
        self.balance_loss = None

    def forward(self, x):
        shape = x.shape
        x = x.reshape(-1, shape[-1])
        probabilities = F.softmax(self.gate(x), dim=-1, dtype=torch.float32)
        weights, chosen = torch.topk(probabilities, self.top_k, dim=-1)
        weights = (weights / weights.sum(-1, keepdim=True)).to(x.dtype)
        load = F.one_hot(chosen, len(self.experts)).float().mean((0, 1))
        self.balance_loss = len(self.experts) * (load * probabilities.mean(0)).sum()
        out = torch.zeros_like(x)
        for number, expert in enumerate(self.experts):
            token, slot = torch.where(chosen == number)
            if token.numel() == 0:
                continue
            out.index_add_(0, token, (expert(x[token]) * weights[token, slot, None]).to(out.dtype))
        return out.view(shape)


class Block(nn.Module):
    def __init__(self, dim, heads, hidden, experts, top_k):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.RMSNorm(dim), nn.RMSNorm(dim)
        self.qkv, self.out = nn.Linear(dim, 3 * dim, bias=False), nn.Linear(dim, dim, bias=False)
        self.moe = MoE(dim, hidden, experts, top_k)

    def forward(self, x):
        b, t, c = x.shape
        q, k, v = self.qkv(self.norm1(x)).view(b, t, 3, self.heads, -1).transpose(1, 3).unbind(2)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(b, t, c)
        x = x + self.out(y)
        return x + self.moe(self.norm2(x))


class Model(nn.Module):
    def __init__(self, args):
        super().__init__()
        self.embed = nn.Embedding(args.vocab, args.dim)
        self.blocks = nn.ModuleList(
            Block(args.dim, args.heads, args.hidden, args.experts, args.top_k) for _ in range(args.layers)
        )
        self.norm, self.head = nn.RMSNorm(args.dim), nn.Linear(args.dim, args.vocab, bias=False)

    def forward(self, ids):
        x = self.embed(ids)
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x)), sum(block.moe.balance_loss for block in self.blocks)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--batch-size", type=int, default=8)
    parser.add_argument("--steps", type=int, default=5)
    parser.add_argument("--length", type=int, default=512)
    parser.add_argument("--dim", type=int, default=512)
    parser.add_argument("--hidden", type=int, default=1024)
    parser.add_argument("--layers", type=int, default=6)
    parser.add_argument("--heads", type=int, default=8)
    parser.add_argument("--experts", type=int, default=8)
    parser.add_argument("--top-k", type=int, default=2)
    parser.add_argument("--vocab", type=int, default=32000)
    parser.add_argument("--bf16", action="store_true")
    args = parser.parse_args()

    torch.manual_seed(0)
    model = Model(args).to("cuda")
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, fused=True)
    for step in range(args.steps):
        ids = torch.randint(args.vocab, (args.batch_size, args.length + 1), device="cuda")
        with torch.autocast("cuda", torch.bfloat16, enabled=args.bf16):
            logits, balance = model(ids[:, :-1])
            loss = F.cross_entropy(logits.reshape(-1, args.vocab), ids[:, 1:].reshape(-1)) + 0.01 * balance
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        print(f"{step} {loss.item():.4f} balance {balance.item():.3f}")


if __name__ == "__main__":
    main()
