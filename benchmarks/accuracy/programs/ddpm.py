"""One training stage of a denoising diffusion model (Ho et al. 2020): U-Net with time embedding, EMA of the weights."""

import argparse
import copy
import math

import torch
import torch.nn.functional as F
from torch import nn


def timestep_embedding(t, dim):
    half = dim // 2
    freqs = torch.exp(-math.log(10000) * torch.arange(half, device=t.device, dtype=torch.float32) / half)
    angles = t[:, None].float() * freqs[None]
    return torch.cat([angles.cos(), angles.sin()], dim=-1)


class ResBlock(nn.Module):
    def __init__(self, cin, cout, emb, dropout):
        super().__init__()
        self.inner = nn.Sequential(nn.GroupNorm(32, cin), nn.SiLU(), nn.Conv2d(cin, cout, 3, padding=1))
        self.time = nn.Sequential(nn.SiLU(), nn.Linear(emb, cout))
        self.outer = nn.Sequential(
            nn.GroupNorm(32, cout), nn.SiLU(), nn.Dropout(dropout), nn.Conv2d(cout, cout, 3, padding=1)
        )
        self.skip = nn.Conv2d(cin, cout, 1) if cin != cout else nn.Identity()

    def forward(self, x, emb):
        h = self.inner(x) + self.time(emb)[:, :, None, None]
        return self.skip(x) + self.outer(h)


class Attention(nn.Module):
    def __init__(self, channels, heads=4):
        super().__init__()
        self.heads = heads
        self.norm = nn.GroupNorm(32, channels)
        self.qkv = nn.Conv1d(channels, 3 * channels, 1)
        self.proj = nn.Conv1d(channels, channels, 1)

    def forward(self, x):
        b, c, h, w = x.shape
        q, k, v = self.qkv(self.norm(x).reshape(b, c, -1)).reshape(b, 3, self.heads, c // self.heads, -1).unbind(1)
        weight = torch.softmax(torch.einsum("bhct,bhcs->bhts", q, k) / math.sqrt(c // self.heads), dim=-1)
        out = torch.einsum("bhts,bhcs->bhct", weight, v).reshape(b, c, -1)
        return x + self.proj(out).reshape(b, c, h, w)


class UNet(nn.Module):
    def __init__(self, channels=128, mults=(1, 2, 2, 2), blocks=2, attention_at=(16,), size=32, dropout=0.1):
        super().__init__()
        emb = channels * 4
        self.channels = channels
        self.time = nn.Sequential(nn.Linear(channels, emb), nn.SiLU(), nn.Linear(emb, emb))
        self.stem = nn.Conv2d(3, channels, 3, padding=1)
        self.downs, self.ups = nn.ModuleList(), nn.ModuleList()
        stack, c, resolution = [channels], channels, size
        for level, mult in enumerate(mults):
            for _ in range(blocks):
                attention = Attention(channels * mult) if resolution in attention_at else nn.Identity()
                self.downs.append(nn.ModuleList([ResBlock(c, channels * mult, emb, dropout), attention]))
                c = channels * mult
                stack.append(c)
            if level < len(mults) - 1:
                self.downs.append(nn.Conv2d(c, c, 3, stride=2, padding=1))
                stack.append(c)
                resolution //= 2
        self.mid = nn.ModuleList([ResBlock(c, c, emb, dropout), Attention(c), ResBlock(c, c, emb, dropout)])
        for level, mult in reversed(list(enumerate(mults))):
            for block in range(blocks + 1):
                attention = Attention(channels * mult) if resolution in attention_at else nn.Identity()
                layers = [ResBlock(c + stack.pop(), channels * mult, emb, dropout), attention]
                c = channels * mult
                if level > 0 and block == blocks:
                    layers.append(nn.Sequential(nn.Upsample(scale_factor=2), nn.Conv2d(c, c, 3, padding=1)))
                    resolution *= 2
                self.ups.append(nn.ModuleList(layers))
        self.out = nn.Sequential(nn.GroupNorm(32, c), nn.SiLU(), nn.Conv2d(c, 3, 3, padding=1))

    def forward(self, x, t):
        emb = self.time(timestep_embedding(t, self.channels))
        h = self.stem(x)
        hs = [h]
        for layer in self.downs:
            if isinstance(layer, nn.Conv2d):
                h = layer(h)
            else:
                h = layer[1](layer[0](h, emb))
            hs.append(h)
        h = self.mid[2](self.mid[1](self.mid[0](h, emb)), emb)
        for layer in self.ups:
            h = layer[1](layer[0](torch.cat([h, hs.pop()], dim=1), emb))
            if len(layer) == 3:
                h = layer[2](h)
        return self.out(h)


class EMA:
    def __init__(self, model, decay=0.9999):
        self.model, self.decay = copy.deepcopy(model).eval().requires_grad_(False), decay

    @torch.no_grad()
    def update(self, model):
        for ema, current in zip(self.model.parameters(), model.parameters(), strict=True):
            ema.mul_(self.decay).add_(current, alpha=1 - self.decay)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--steps", type=int, default=5)
    parser.add_argument("--size", type=int, default=32)
    parser.add_argument("--channels", type=int, default=128)
    parser.add_argument("--blocks", type=int, default=2)
    parser.add_argument("--timesteps", type=int, default=1000)
    parser.add_argument("--fp16", action="store_true")
    parser.add_argument("--sample-steps", type=int, default=2, help="denoising steps tried after training")
    args = parser.parse_args()

    device = torch.device("cuda")
    model = UNet(args.channels, blocks=args.blocks, size=args.size).to(device)
    ema = EMA(model)
    optim = torch.optim.AdamW(model.parameters(), lr=2e-4, weight_decay=0.0)
    scaler = torch.amp.GradScaler("cuda", enabled=args.fp16)
    betas = torch.linspace(1e-4, 0.02, args.timesteps, device=device)
    alphas_bar = torch.cumprod(1 - betas, dim=0)

    for step in range(args.steps):
        x0 = (torch.rand(args.batch_size, 3, args.size, args.size) * 2 - 1).to(device)
        t = torch.randint(0, args.timesteps, (x0.shape[0],), device=device)
        noise = torch.randn_like(x0)
        a = alphas_bar[t].view(-1, 1, 1, 1)
        x_t = a.sqrt() * x0 + (1 - a).sqrt() * noise
        with torch.autocast("cuda", torch.float16, enabled=args.fp16):
            loss = F.mse_loss(model(x_t, t), noise)
        optim.zero_grad(set_to_none=True)
        scaler.scale(loss).backward()
        scaler.unscale_(optim)
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optim)
        scaler.update()
        ema.update(model)
        print(f"{step} {loss.item():.4f}")

    with torch.no_grad():
        x = torch.randn(min(16, args.batch_size), 3, args.size, args.size, device=device)
        for i in reversed(range(args.sample_steps)):
            t = torch.full((x.shape[0],), i, device=device)
            eps = ema.model(x, t)
            x = (x - betas[i] / (1 - alphas_bar[i]).sqrt() * eps) / (1 - betas[i]).sqrt()
            if i > 0:
                x = x + betas[i].sqrt() * torch.randn_like(x)
    print("sampled", x.clamp(-1, 1).std().item())


if __name__ == "__main__":
    main()
