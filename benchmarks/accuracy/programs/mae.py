"""Masked autoencoder (He et al. 2021): a quarter of the patches is encoded, all are reconstructed."""

import argparse

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


class OneImage(Dataset):
    def __init__(self, n, size):
        self.n, self.x = n, torch.randn(3, size, size)

    def __len__(self):
        return self.n

    def __getitem__(self, i):
        return self.x


class Attention(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(dim, dim * 3)
        self.proj = nn.Linear(dim, dim)

    def forward(self, x):
        b, n, c = x.shape
        q, k, v = self.qkv(x).reshape(b, n, 3, self.heads, c // self.heads).permute(2, 0, 3, 1, 4).unbind(0)
        x = nn.functional.scaled_dot_product_attention(q, k, v)
        return self.proj(x.transpose(1, 2).reshape(b, n, c))


class Block(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.norm1, self.norm2, self.attn = nn.LayerNorm(dim), nn.LayerNorm(dim), Attention(dim, heads)
        self.mlp = nn.Sequential(nn.Linear(dim, dim * 4), nn.GELU(), nn.Linear(dim * 4, dim))

    def forward(self, x):
        x = x + self.attn(self.norm1(x))
        return x + self.mlp(self.norm2(x))


class MAE(nn.Module):
    def __init__(self, size, patch, dim, depth, heads, decoder_dim, decoder_depth):
        super().__init__()
        self.patch = patch
        count = (size // patch) ** 2
        self.embed = nn.Conv2d(3, dim, patch, patch)
        self.register_buffer("pos", torch.randn(1, count, dim) * 0.02)
        self.register_buffer("decoder_pos", torch.randn(1, count, decoder_dim) * 0.02)
        self.encoder = nn.ModuleList(Block(dim, heads) for _ in range(depth))
        self.bridge = nn.Linear(dim, decoder_dim)
        self.mask_token = nn.Parameter(torch.zeros(1, 1, decoder_dim))
        self.decoder = nn.ModuleList(Block(decoder_dim, 8) for _ in range(decoder_depth))
        self.norm, self.decoder_norm = nn.LayerNorm(dim), nn.LayerNorm(decoder_dim)
        self.pred = nn.Linear(decoder_dim, patch * patch * 3)

    def patches(self, images):
        b, _, h, w = images.shape
        p = self.patch
        x = images.reshape(b, 3, h // p, p, w // p, p)
        return torch.einsum("nchpwq->nhwpqc", x).reshape(b, -1, p * p * 3)

    def random_mask(self, x, ratio):
        b, n, d = x.shape
        keep = int(n * (1 - ratio))
        noise = torch.rand(b, n, device=x.device)
        shuffle = torch.argsort(noise, dim=1)
        restore = torch.argsort(shuffle, dim=1)
        kept = shuffle[:, :keep]
        visible = torch.gather(x, 1, kept.unsqueeze(-1).repeat(1, 1, d))
        mask = torch.ones(b, n, device=x.device)
        mask[:, :keep] = 0
        return visible, torch.gather(mask, 1, restore), restore

    def forward(self, images, ratio=0.75):
        x = self.embed(images).flatten(2).transpose(1, 2) + self.pos
        x, mask, restore = self.random_mask(x, ratio)
        for block in self.encoder:
            x = block(x)
        x = self.bridge(self.norm(x))
        tokens = self.mask_token.repeat(x.shape[0], restore.shape[1] - x.shape[1], 1)
        x = torch.cat([x, tokens], dim=1)
        x = torch.gather(x, 1, restore.unsqueeze(-1).repeat(1, 1, x.shape[2])) + self.decoder_pos
        for block in self.decoder:
            x = block(x)
        pred = self.pred(self.decoder_norm(x))
        target = self.patches(images)
        mean, var = target.mean(-1, keepdim=True), target.var(-1, keepdim=True)
        loss = ((pred - (target - mean) / (var + 1e-6) ** 0.5) ** 2).mean(-1)
        return (loss * mask).sum() / mask.sum()


def main():
    parser = argparse.ArgumentParser("masked pre-training")
    parser.add_argument("--batch-size", default=64, type=int)
    parser.add_argument("--steps", default=5, type=int)
    parser.add_argument("--accum-iter", default=1, type=int)
    parser.add_argument("--size", default=224, type=int)
    parser.add_argument("--patch", default=16, type=int)
    parser.add_argument("--dim", default=768, type=int)
    parser.add_argument("--depth", default=12, type=int)
    parser.add_argument("--heads", default=12, type=int)
    parser.add_argument("--decoder-dim", default=512, type=int)
    parser.add_argument("--decoder-depth", default=4, type=int)
    parser.add_argument("--no-amp", action="store_true")
    parser.add_argument("--num-workers", default=0, type=int)
    args = parser.parse_args()

    device = torch.device("cuda")
    model = MAE(args.size, args.patch, args.dim, args.depth, args.heads, args.decoder_dim, args.decoder_depth)
    model.to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1.5e-4, betas=(0.9, 0.95), foreach=False)
    scaler = torch.amp.GradScaler("cuda", enabled=not args.no_amp)
    loader = DataLoader(
        OneImage(args.batch_size * args.steps * args.accum_iter, args.size),
        batch_size=args.batch_size,
        num_workers=args.num_workers,
        pin_memory=True,
        drop_last=True,
    )
    optimizer.zero_grad()
    for it, samples in enumerate(loader):
        samples = samples.to(device, non_blocking=True)
        with torch.amp.autocast("cuda", enabled=not args.no_amp):
            loss = model(samples)
        value = loss.item()
        scaler.scale(loss / args.accum_iter).backward()
        if (it + 1) % args.accum_iter == 0:
            scaler.step(optimizer)
            scaler.update()
            optimizer.zero_grad()
        print(f"it {it} loss {value:.4f}")


if __name__ == "__main__":
    main()
