"""Samples latents with a diffusion transformer (DiT, Peebles and Xie 2023): adaptive norms, classifier-free guidance, DDIM."""

import argparse
import math

import torch
import torch.nn.functional as F
from torch import nn

SIZES = {"XS": (2, 32, 2), "S": (12, 384, 6), "B": (12, 768, 12), "XL": (28, 1152, 16)}


def timestep_embedding(t, dim, max_period=10000):
    half = dim // 2
    freqs = torch.exp(-math.log(max_period) * torch.arange(half, device=t.device) / half)
    args = t[:, None].float() * freqs[None]
    return torch.cat([args.cos(), args.sin()], dim=-1)


def modulate(x, shift, scale):
    return x * (1 + scale.unsqueeze(1)) + shift.unsqueeze(1)


class DiTBlock(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.heads = heads
        self.norm1 = nn.LayerNorm(dim, elementwise_affine=False, eps=1e-6)
        self.norm2 = nn.LayerNorm(dim, elementwise_affine=False, eps=1e-6)
        self.qkv, self.proj = nn.Linear(dim, 3 * dim), nn.Linear(dim, dim)
        self.mlp = nn.Sequential(nn.Linear(dim, 4 * dim), nn.GELU(approximate="tanh"), nn.Linear(4 * dim, dim))
        self.adaLN_modulation = nn.Sequential(nn.SiLU(), nn.Linear(dim, 6 * dim))

    def attention(self, x):
        b, n, d = x.shape
        q, k, v = self.qkv(x).reshape(b, n, 3, self.heads, d // self.heads).permute(2, 0, 3, 1, 4).unbind(0)
        return self.proj(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(b, n, d))

    def forward(self, x, c):
        shift1, scale1, gate1, shift2, scale2, gate2 = self.adaLN_modulation(c).chunk(6, dim=1)
        x = x + gate1.unsqueeze(1) * self.attention(modulate(self.norm1(x), shift1, scale1))
        return x + gate2.unsqueeze(1) * self.mlp(modulate(self.norm2(x), shift2, scale2))


class DiT(nn.Module):
    def __init__(self, size, latent, classes=1000, patch=2, channels=4):
        super().__init__()
        depth, dim, heads = SIZES[size]
        self.patch, self.channels, self.dim = patch, channels, dim
        self.x_embedder = nn.Conv2d(channels, dim, patch, patch)
        self.pos_embed = nn.Parameter(torch.randn(1, (latent // patch) ** 2, dim) * 0.02)
        self.t_embedder = nn.Sequential(nn.Linear(256, dim), nn.SiLU(), nn.Linear(dim, dim))
        self.y_embedder = nn.Embedding(classes + 1, dim)
        self.blocks = nn.ModuleList(DiTBlock(dim, heads) for _ in range(depth))
        self.final_norm = nn.LayerNorm(dim, elementwise_affine=False, eps=1e-6)
        self.final_modulation = nn.Sequential(nn.SiLU(), nn.Linear(dim, 2 * dim))
        self.final = nn.Linear(dim, patch * patch * channels)

    def unpatchify(self, x):
        b, n, _ = x.shape
        side, p = int(n**0.5), self.patch
        x = x.reshape(b, side, side, p, p, self.channels)
        return torch.einsum("nhwpqc->nchpwq", x).reshape(b, self.channels, side * p, side * p)

    def forward(self, x, t, y):
        x = self.x_embedder(x).flatten(2).transpose(1, 2) + self.pos_embed
        c = self.t_embedder(timestep_embedding(t, 256).to(x.dtype)) + self.y_embedder(y)
        for block in self.blocks:
            x = block(x, c)
        shift, scale = self.final_modulation(c).chunk(2, dim=1)
        return self.unpatchify(self.final(modulate(self.final_norm(x), shift, scale)))


@torch.no_grad()
def sample(model, labels, steps, guidance, latent, dtype):
    device = labels.device
    alphas = torch.cumprod(1 - torch.linspace(1e-4, 0.02, 1000, device=device), dim=0)
    z = torch.randn(len(labels), 4, latent, latent, device=device, dtype=dtype)
    both = torch.cat([labels, torch.full_like(labels, 1000)])
    times = torch.linspace(999, 0, steps).long().tolist()
    for i, t in enumerate(times):
        t_batch = torch.full((len(both),), t, device=device)
        conditional, unconditional = model(torch.cat([z, z]), t_batch, both).chunk(2)
        eps = unconditional + guidance * (conditional - unconditional)
        a, a_next = alphas[t], alphas[times[i + 1]] if i + 1 < steps else torch.ones((), device=device)
        start = (z - (1 - a).sqrt() * eps) / a.sqrt()
        z = (a_next.sqrt() * start + (1 - a_next).sqrt() * eps).to(dtype)
    return z


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", choices=list(SIZES), default="B")
    parser.add_argument("--batch-size", type=int, default=8)
    parser.add_argument("--steps", type=int, default=50, help="sampling steps")
    parser.add_argument("--latent", type=int, default=32)
    parser.add_argument("--cfg-scale", type=float, default=4.0)
    parser.add_argument("--dtype", choices=["float32", "float16", "bfloat16"], default="float32")
    args = parser.parse_args()
    device = "cuda" if torch.cuda.is_available() else "cpu"
    dtype = getattr(torch, args.dtype)
    model = DiT(args.model, args.latent).to(device, dtype).eval()
    labels = torch.arange(args.batch_size, device=device) * 37 % 1000
    latents = sample(model, labels, args.steps, args.cfg_scale, args.latent, dtype)
    print(tuple(latents.shape), f"{latents.float().std().item():.3f}")


if __name__ == "__main__":
    main()
