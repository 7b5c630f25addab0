"""Decoder-only language model (GPT-2 layout), gradient accumulation, clipping, cosine schedule, fused AdamW."""

import argparse
import math
from contextlib import nullcontext

import torch
import torch.nn as nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint


class SelfAttention(nn.Module):
    def __init__(self, dim, heads, context, attention, dropout):
        super().__init__()
        self.heads, self.attention, self.dropout = heads, attention, dropout
        self.qkv = nn.Linear(dim, 3 * dim)
        self.proj = nn.Linear(dim, dim)
        self.drop = nn.Dropout(dropout)
        if attention == "explicit":
            self.register_buffer("mask", torch.tril(torch.ones(context, context)).view(1, 1, context, context))

    def forward(self, x):
        b, t, c = x.shape
        q, k, v = self.qkv(x).split(c, dim=2)
        q, k, v = (z.view(b, t, self.heads, c // self.heads).transpose(1, 2) for z in (q, k, v))
        if self.attention == "explicit":
            scores = (q @ k.transpose(-2, -1)) * (1.0 / math.sqrt(k.size(-1)))
            scores = scores.masked_fill(self.mask[:, :, :t, :t] == 0, float("-inf"))
            y = self.drop(F.softmax(scores, dim=-1)) @ v
        else:
            y = F.scaled_dot_product_attention(q, k, v, dropout_p=self.dropout if self.training else 0, is_causal=True)
        return self.drop(self.proj(y.transpose(1, 2).contiguous().view(b, t, c)))


class Block(nn.Module):
    def __init__(self, dim, heads, context, attention, dropout):
        super().__init__()
        self.ln1, self.ln2 = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.attn = SelfAttention(dim, heads, context, attention, dropout)
        self.mlp = nn.Sequential(nn.Linear(dim, 4 * dim), nn.GELU(), nn.Linear(4 * dim, dim), nn.Dropout(dropout))

    def forward(self, x):
        x = x + self.attn(self.ln1(x))
        return x + self.mlp(self.ln2(x))


class GPT(nn.Module):
    def __init__(self, vocabulary, context, layers, heads, dim, attention, dropout, recompute):
        super().__init__()
        self.recompute = recompute
        self.tokens = nn.Embedding(vocabulary, dim)
        self.positions = nn.Embedding(context, dim)
        self.drop = nn.Dropout(dropout)
        self.blocks = nn.ModuleList(Block(dim, heads, context, attention, dropout) for _ in range(layers))
        self.norm = nn.LayerNorm(dim)
        self.head = nn.Linear(dim, vocabulary, bias=False)
        self.head.weight = self.tokens.weight

    def forward(self, idx, targets=None):
        pos = torch.arange(idx.size(1), device=idx.device)
        x = self.drop(self.tokens(idx) + self.positions(pos))
        for block in self.blocks:
            x = checkpoint(block, x, use_reentrant=False) if self.recompute else block(x)
        logits = self.head(self.norm(x))
        loss = None
        if targets is not None:
            loss = F.cross_entropy(logits.view(-1, logits.size(-1)), targets.view(-1), ignore_index=-1)
        return logits, loss


parser = argparse.ArgumentParser()
parser.add_argument("--batch-size", type=int, default=8)
parser.add_argument("--steps", type=int, default=5)
parser.add_argument("--context", type=int, default=512)
parser.add_argument("--layers", type=int, default=12)
parser.add_argument("--heads", type=int, default=12)
parser.add_argument("--dim", type=int, default=768)
parser.add_argument("--vocabulary", type=int, default=50304)
parser.add_argument("--dropout", type=float, default=0.0)
parser.add_argument("--attention", choices=["sdpa", "explicit"], default="sdpa")
parser.add_argument("--dtype", choices=["float32", "bfloat16", "float16"], default="bfloat16")
parser.add_argument("--accumulate", type=int, default=1)
parser.add_argument("--recompute", action="store_true")
args = parser.parse_args()

torch.manual_seed(1337)
device = "cuda"
torch.backends.cuda.matmul.allow_tf32 = True
amp = nullcontext() if args.dtype == "float32" else torch.autocast(device, dtype=getattr(torch, args.dtype))
data = torch.randint(args.vocabulary, (1_000_000,))


def get_batch():
    ix = torch.randint(len(data) - args.context, (args.batch_size,))
    x = torch.stack([data[i : i + args.context] for i in ix])
    y = torch.stack([data[i + 1 : i + 1 + args.context] for i in ix])
    return x.pin_memory().to(device, non_blocking=True), y.pin_memory().to(device, non_blocking=True)


model = GPT(
    args.vocabulary, args.context, args.layers, args.heads, args.dim, args.attention, args.dropout, args.recompute
)
model.to(device)
decayed = [p for p in model.parameters() if p.dim() >= 2]
others = [p for p in model.parameters() if p.dim() < 2]
groups = [{"params": decayed, "weight_decay": 0.1}, {"params": others, "weight_decay": 0.0}]
optimizer = torch.optim.AdamW(groups, lr=6e-4, betas=(0.9, 0.95), fused=True)
scaler = torch.amp.GradScaler(enabled=args.dtype == "float16")
print(f"{sum(p.numel() for p in model.parameters()) / 1e6:.1f}M parameters")

X, Y = get_batch()
for step in range(args.steps):
    for group in optimizer.param_groups:
        group["lr"] = 6e-4 * 0.5 * (1 + math.cos(math.pi * step / args.steps))
    for _ in range(args.accumulate):
        with amp:
            logits, loss = model(X, Y)
            loss = loss / args.accumulate
        X, Y = get_batch()  # the next batch is fetched while the GPU is busy
        scaler.scale(loss).backward()
    scaler.unscale_(optimizer)
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    scaler.step(optimizer)
    scaler.update()
    optimizer.zero_grad(set_to_none=True)
    print(f"iter {step}: loss {loss.item() * args.accumulate:.4f}")
