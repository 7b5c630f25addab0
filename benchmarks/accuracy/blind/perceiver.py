"""Perceiver (Jaegle et al. 2021): a latent array reads long inputs through cross-attention, with shared weights."""

import argparse
import math

import torch
from torch import nn
from torch.nn import functional as F


def fourier_features(size, bands, max_frequency):
    axis = torch.linspace(-1, 1, size)
    grid = torch.stack(torch.meshgrid(axis, axis, indexing="ij"), dim=-1).view(size * size, 2, 1)
    scales = torch.linspace(1.0, max_frequency / 2, bands) * math.pi
    angles = grid * scales
    return torch.cat([angles.sin(), angles.cos(), grid], dim=-1).flatten(1)


class Attention(nn.Module):
    def __init__(self, dim, context_dim, heads, dim_head):
        super().__init__()
        inner = heads * dim_head
        self.heads = heads
        self.norm, self.norm_context = nn.LayerNorm(dim), nn.LayerNorm(context_dim)
        self.to_q = nn.Linear(dim, inner, bias=False)
        self.to_kv = nn.Linear(context_dim, inner * 2, bias=False)
        self.to_out = nn.Linear(inner, dim)

    def split(self, t):
        b, n, _ = t.shape
        return t.view(b, n, self.heads, -1).transpose(1, 2)

    def forward(self, x, context=None):
        x = self.norm(x)
        context = x if context is None else self.norm_context(context)
        k, v = self.to_kv(context).chunk(2, dim=-1)
        q, k, v = map(self.split, (self.to_q(x), k, v))
        scores = torch.einsum("bhid,bhjd->bhij", q, k) / math.sqrt(q.shape[-1])
        out = torch.einsum("bhij,bhjd->bhid", scores.softmax(dim=-1), v)
        return self.to_out(out.transpose(1, 2).flatten(2))


class GEGLUFeedForward(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.norm = nn.LayerNorm(dim)
        self.inner, self.outer = nn.Linear(dim, dim * 8), nn.Linear(dim * 4, dim)

    def forward(self, x):
        x, gates = self.inner(self.norm(x)).chunk(2, dim=-1)
        return self.outer(x * F.gelu(gates))


class Perceiver(nn.Module):
    def __init__(self, args):
        super().__init__()
        positions = fourier_features(args.size, args.bands, float(args.size))
        self.register_buffer("positions", positions)
        width = 3 + positions.shape[1]
        self.latents = nn.Parameter(torch.randn(args.latents, args.dim) * 0.02)
        self.cross, self.cross_ff = Attention(args.dim, width, 1, args.dim // 8), GEGLUFeedForward(args.dim)
        self.selfs = nn.ModuleList()
        for _ in range(args.layers):
            self.selfs.append(
                nn.ModuleList([Attention(args.dim, args.dim, 8, args.dim // 8), GEGLUFeedForward(args.dim)])
            )
        self.repeats = args.repeats
        self.head = nn.Sequential(nn.LayerNorm(args.dim), nn.Linear(args.dim, args.classes))

    def forward(self, image):
        data = image.flatten(2).transpose(1, 2)
        data = torch.cat([data, self.positions.expand(len(image), -1, -1)], dim=-1)
        x = self.latents.expand(len(image), -1, -1)
        for _ in range(self.repeats):
            x = x + self.cross(x, data)
            x = x + self.cross_ff(x)
            for attention, feed_forward in self.selfs:
                x = x + attention(x)
                x = x + feed_forward(x)
        return self.head(x.mean(1))


def main():
    cli = argparse.ArgumentParser(description=__doc__)
    cli.add_argument("--batch-size", type=int, default=8)
    cli.add_argument("--steps", type=int, default=10)
    cli.add_argument("--size", type=int, default=128)
    cli.add_argument("--bands", type=int, default=32)
    cli.add_argument("--latents", type=int, default=256)
    cli.add_argument("--dim", type=int, default=512)
    cli.add_argument("--layers", type=int, default=4)
    cli.add_argument("--repeats", type=int, default=2)
    cli.add_argument("--classes", type=int, default=1000)
    cli.add_argument("--half", action="store_true")
    args = cli.parse_args()

    device = "cuda" if torch.cuda.is_available() else "cpu"
    model = Perceiver(args).to(device)
    opt = torch.optim.AdamW(model.parameters(), lr=4e-4, foreach=False)
    scaler = torch.amp.GradScaler(device, enabled=args.half)
    for _ in range(args.steps):
        image = torch.randn(args.batch_size, 3, args.size, args.size, device=device)
        label = torch.randint(0, args.classes, (args.batch_size,), device=device)
        with torch.autocast(device_type=device, dtype=torch.float16, enabled=args.half):
            loss = F.cross_entropy(model(image), label)
        scaler.scale(loss).backward()
        scaler.step(opt)
        scaler.update()
        opt.zero_grad()
    print(f"{args.steps} iterations, loss {loss.item():.4f}")


if __name__ == "__main__":
    main()
