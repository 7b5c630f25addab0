"""Windowed attention with shifted windows and relative position bias (after Liu et al. 2021)."""

import argparse

import torch
import torch.nn.functional as F
from torch import nn


def window_partition(x, w):
    b, h, wd, c = x.shape
    return x.view(b, h // w, w, wd // w, w, c).permute(0, 1, 3, 2, 4, 5).reshape(-1, w * w, c)


def window_reverse(windows, w, h, wd):
    b = windows.shape[0] // (h * wd // w // w)
    return windows.view(b, h // w, wd // w, w, w, -1).permute(0, 1, 3, 2, 4, 5).reshape(b, h, wd, -1)


class WindowAttention(nn.Module):
    def __init__(self, dim, window, heads, resolution, shift):
        super().__init__()
        self.heads, self.window, self.shift = heads, window, shift
        self.qkv, self.proj = nn.Linear(dim, 3 * dim), nn.Linear(dim, dim)
        self.bias_table = nn.Parameter(torch.zeros((2 * window - 1) ** 2, heads))
        nn.init.trunc_normal_(self.bias_table, std=0.02)
        coords = torch.stack(torch.meshgrid(torch.arange(window), torch.arange(window), indexing="ij")).flatten(1)
        relative = (coords[:, :, None] - coords[:, None]).permute(1, 2, 0) + window - 1
        self.register_buffer("index", relative[..., 0] * (2 * window - 1) + relative[..., 1], persistent=False)
        self.register_buffer("mask", self.make_mask(resolution) if shift else None, persistent=False)

    def make_mask(self, resolution):
        region = torch.zeros(1, resolution, resolution, 1)
        cuts = (slice(0, -self.window), slice(-self.window, -self.shift), slice(-self.shift, None))
        for number, (rows, columns) in enumerate((a, b) for a in cuts for b in cuts):
            region[:, rows, columns] = number
        windows = window_partition(region, self.window).squeeze(-1)
        different = windows[:, None] != windows[:, :, None]
        return torch.zeros(different.shape).masked_fill(different, -100.0)

    def forward(self, x):
        _, h, w, _ = x.shape
        if self.shift:
            x = torch.roll(x, (-self.shift, -self.shift), (1, 2))
        x = window_partition(x, self.window)
        n, t, c = x.shape
        q, k, v = self.qkv(x).reshape(n, t, 3, self.heads, c // self.heads).permute(2, 0, 3, 1, 4)
        attn = (q * (c // self.heads) ** -0.5) @ k.transpose(-2, -1)
        attn = attn + self.bias_table[self.index.view(-1)].view(t, t, -1).permute(2, 0, 1).unsqueeze(0)
        if self.mask is not None:
            count = self.mask.shape[0]
            attn = attn.view(n // count, count, self.heads, t, t) + self.mask[None, :, None]
            attn = attn.view(n, self.heads, t, t)
        x = self.proj((attn.softmax(-1) @ v).transpose(1, 2).reshape(n, t, c))
        x = window_reverse(x, self.window, h, w)
        return torch.roll(x, (self.shift, self.shift), (1, 2)) if self.shift else x


class SwinBlock(nn.Module):
    def __init__(self, dim, heads, window, resolution, shift):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.attn = WindowAttention(dim, window, heads, resolution, shift)
        self.mlp = nn.Sequential(nn.Linear(dim, 4 * dim), nn.GELU(), nn.Linear(4 * dim, dim))

    def forward(self, x):
        x = x + self.attn(self.norm1(x))
        return x + self.mlp(self.norm2(x))


class PatchMerging(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.norm, self.reduction = nn.LayerNorm(4 * dim), nn.Linear(4 * dim, 2 * dim, bias=False)

    def forward(self, x):
        parts = [x[:, i::2, j::2] for j in (0, 1) for i in (0, 1)]
        return self.reduction(self.norm(torch.cat(parts, -1)))


class Swin(nn.Module):
    def __init__(self, size=224, dim=96, depths=(2, 2, 6, 2), window=7, head_dim=32, classes=1000):
        super().__init__()
        self.embed = nn.Conv2d(3, dim, 4, 4)
        layers, resolution = [], size // 4
        for stage, depth in enumerate(depths):
            for i in range(depth):
                shift = window // 2 if i % 2 and resolution > window else 0
                layers.append(SwinBlock(dim, dim // head_dim, window, resolution, shift))
            if stage < len(depths) - 1:
                layers.append(PatchMerging(dim))
                dim, resolution = 2 * dim, resolution // 2
        self.layers = nn.Sequential(*layers)
        self.norm, self.head = nn.LayerNorm(dim), nn.Linear(dim, classes)

    def forward(self, x):
        x = self.layers(self.embed(x).permute(0, 2, 3, 1))
        return self.head(self.norm(x).mean((1, 2)))


if __name__ == "__main__":
    ap = argparse.ArgumentParser()
    ap.add_argument("--batch-size", type=int, default=16)
    ap.add_argument("--steps", type=int, default=5)
    ap.add_argument("--image-size", type=int, default=224)
    ap.add_argument("--dim", type=int, default=96)
    ap.add_argument("--depths", type=int, nargs="+", default=[2, 2, 6, 2])
    ap.add_argument("--fp16", action="store_true")
    ap.add_argument("--eval", action="store_true", help="inference only")
    args = ap.parse_args()

    model = Swin(args.image_size, args.dim, args.depths).cuda()
    images = torch.randn(args.batch_size, 3, args.image_size, args.image_size)
    if args.eval:
        model.eval()
        with torch.no_grad():
            for _ in range(args.steps):
                with torch.amp.autocast("cuda", dtype=torch.float16, enabled=args.fp16):
                    scores = model(images.cuda(non_blocking=True)).softmax(-1)
                print(scores.max(-1).values.mean().item())
        raise SystemExit(0)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=0.05)
    scaler = torch.amp.GradScaler("cuda", enabled=args.fp16)
    for step in range(args.steps):
        labels = torch.randint(1000, (args.batch_size,)).cuda()
        with torch.amp.autocast("cuda", dtype=torch.float16, enabled=args.fp16):
            loss = F.cross_entropy(model(images.cuda(non_blocking=True)), labels)
        optimizer.zero_grad()
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        nn.utils.clip_grad_norm_(model.parameters(), 5.0)
        scaler.step(optimizer)
        scaler.update()
        torch.cuda.synchronize()
        print(step, loss.item())
