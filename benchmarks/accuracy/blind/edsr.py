"""Super-resolution with residual blocks and pixel shuffle (EDSR, Lim et al. 2017); trains on patches or enlarges frames."""

import argparse

import torch
from torch import nn


class ResBlock(nn.Module):
    def __init__(self, feats, scale):
        super().__init__()
        self.scale = scale
        self.body = nn.Sequential(
            nn.Conv2d(feats, feats, 3, padding=1), nn.ReLU(True), nn.Conv2d(feats, feats, 3, padding=1)
        )

    def forward(self, x):
        return x + self.body(x).mul(self.scale)


class Upsampler(nn.Sequential):
    def __init__(self, factor, feats):
        layers = []
        while factor > 1:
            step = 2 if factor % 2 == 0 else 3
            layers += [nn.Conv2d(feats, feats * step * step, 3, padding=1), nn.PixelShuffle(step)]
            factor //= step
        super().__init__(*layers)


class EDSR(nn.Module):
    def __init__(self, blocks, feats, factor, res_scale):
        super().__init__()
        self.register_buffer("mean", torch.tensor([0.4488, 0.4371, 0.4040]).view(1, 3, 1, 1))
        self.head = nn.Conv2d(3, feats, 3, padding=1)
        self.body = nn.Sequential(
            *[ResBlock(feats, res_scale) for _ in range(blocks)], nn.Conv2d(feats, feats, 3, padding=1)
        )
        self.tail = nn.Sequential(Upsampler(factor, feats), nn.Conv2d(feats, 3, 3, padding=1))

    def forward(self, x):
        x = self.head(x - self.mean)
        return self.tail(x + self.body(x)) + self.mean


class Patches(torch.utils.data.IterableDataset):
    def __init__(self, patch, factor):
        self.low = torch.rand(3, patch, patch)
        self.high = torch.rand(3, patch * factor, patch * factor)

    def __iter__(self):
        while True:
            yield self.low, self.high


def psnr(a, b):
    return -10 * torch.log10(torch.mean((a - b) ** 2))


def train(net, opt, device):
    loader = iter(torch.utils.data.DataLoader(Patches(opt.patch, opt.factor), batch_size=opt.batch_size))
    l1 = nn.L1Loss()
    adam = torch.optim.Adam(net.parameters(), lr=1e-4, betas=(0.9, 0.999), eps=1e-8)
    scaler = torch.amp.GradScaler(device, enabled=opt.fp16)
    for step in range(1, opt.steps + 1):
        low, high = (t.to(device) for t in next(loader))
        adam.zero_grad()
        with torch.autocast(device, dtype=torch.float16, enabled=opt.fp16):
            out = net(low)
            loss = l1(out, high)
        scaler.scale(loss).backward()
        scaler.step(adam)
        scaler.update()
        if step % 50 == 0 or step == opt.steps:
            print(f"{step} L1 {loss.item():.4f} PSNR {psnr(out.detach().float(), high).item():.2f}")


@torch.no_grad()
def enlarge(net, opt, device):
    net.eval()
    dtype = torch.float16 if opt.fp16 else torch.float32
    net.to(dtype=dtype, memory_format=torch.channels_last)
    height, width = opt.frame
    raw = torch.randint(0, 256, (opt.batch_size, 3, height, width), dtype=torch.uint8)
    for _ in range(opt.steps):
        frames = raw.to(device).to(dtype).div_(255).contiguous(memory_format=torch.channels_last)
        result = net(frames).clamp_(0, 1).mul_(255).round_().to(torch.uint8).cpu()
    print("enlarged to", tuple(result.shape))


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--batch-size", type=int, default=16)
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--patch", type=int, default=48)
    parser.add_argument("--blocks", type=int, default=16)
    parser.add_argument("--feats", type=int, default=64)
    parser.add_argument("--factor", type=int, choices=[2, 3, 4], default=2)
    parser.add_argument("--fp16", action="store_true")
    parser.add_argument("--enlarge", action="store_true")
    parser.add_argument("--frame", type=int, nargs=2, default=[360, 640])
    opt = parser.parse_args()
    device = "cuda" if torch.cuda.is_available() else "cpu"
    net = EDSR(opt.blocks, opt.feats, opt.factor, res_scale=0.1 if opt.feats > 64 else 1.0).to(device)
    if opt.enlarge:
        enlarge(net, opt, device)
    else:
        train(net, opt, device)
