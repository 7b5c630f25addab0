"""ConvNeXt (Liu et al. 2022): depthwise 7x7, LayerNorm, inverted bottleneck; AdamW and an EMA copy of the weights."""

import argparse
from copy import deepcopy

import torch
import torch.nn as nn
import torch.nn.functional as F

SIZES = {
    "nano": ((1, 1, 2, 1), (32, 64, 128, 256)),
    "tiny": ((3, 3, 9, 3), (96, 192, 384, 768)),
    "small": ((3, 3, 27, 3), (96, 192, 384, 768)),
}


class LayerNorm2d(nn.LayerNorm):
    def forward(self, x):
        return super().forward(x.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)


class DropPath(nn.Module):
    def __init__(self, rate):
        super().__init__()
        self.rate = rate

    def forward(self, x):
        if not self.training or self.rate == 0:
            return x
        keep = 1 - self.rate
        mask = x.new_empty(x.shape[0], 1, 1, 1).bernoulli_(keep) / keep
        return x * mask


class Block(nn.Module):
    def __init__(self, dim, drop):
        super().__init__()
        self.depthwise = nn.Conv2d(dim, dim, 7, padding=3, groups=dim)
        self.norm = nn.LayerNorm(dim, eps=1e-6)
        self.up, self.down = nn.Linear(dim, 4 * dim), nn.Linear(4 * dim, dim)
        self.gamma = nn.Parameter(1e-6 * torch.ones(dim))
        self.drop = DropPath(drop)

    def forward(self, x):
        h = self.depthwise(x).permute(0, 2, 3, 1)
        h = self.gamma * self.down(F.gelu(self.up(self.norm(h))))
        return x + self.drop(h.permute(0, 3, 1, 2))


class ConvNeXt(nn.Module):
    def __init__(self, size, classes, drop_path):
        super().__init__()
        depths, dims = SIZES[size]
        rates = torch.linspace(0, drop_path, sum(depths)).tolist()
        layers = [nn.Conv2d(3, dims[0], 4, 4), LayerNorm2d(dims[0], eps=1e-6)]
        for i, (depth, dim) in enumerate(zip(depths, dims, strict=True)):
            if i:
                layers += [LayerNorm2d(dims[i - 1], eps=1e-6), nn.Conv2d(dims[i - 1], dim, 2, 2)]
            layers += [Block(dim, rates.pop(0)) for _ in range(depth)]
        self.features = nn.Sequential(*layers)
        self.norm, self.head = nn.LayerNorm(dims[-1], eps=1e-6), nn.Linear(dims[-1], classes)

    def forward(self, x):
        return self.head(self.norm(self.features(x).mean([-2, -1])))


def update_ema(ema, model, decay):
    with torch.no_grad():
        averaged, current = ema.state_dict(), model.state_dict()
        for name, value in averaged.items():
            value.copy_(decay * value + (1 - decay) * current[name])


def main(args):
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    model = ConvNeXt(args.size, args.classes, args.drop_path).to(device)
    if args.channels_last:
        model = model.to(memory_format=torch.channels_last)
    ema = deepcopy(model).eval() if args.ema else None
    optimizer = torch.optim.AdamW(model.parameters(), lr=4e-3, weight_decay=0.05)
    warmup = torch.optim.lr_scheduler.LinearLR(optimizer, 0.1, total_iters=2)
    cosine = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=100)
    schedule = torch.optim.lr_scheduler.SequentialLR(optimizer, [warmup, cosine], milestones=[2])
    host = torch.randn(args.batch_size, 3, args.image_size, args.image_size)

    for step in range(args.steps):
        images = host.to(device)
        targets = torch.randint(args.classes, (args.batch_size,)).to(device)
        # mixup
        weight = torch.distributions.Beta(0.8, 0.8).sample().item()
        images = weight * images + (1 - weight) * images.flip(0)
        if args.channels_last:
            images = images.to(memory_format=torch.channels_last)
        with torch.autocast(device.type, dtype=torch.bfloat16, enabled=args.bf16):
            logits = model(images)
            loss = weight * F.cross_entropy(logits, targets) + (1 - weight) * F.cross_entropy(logits, targets.flip(0))
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        schedule.step()
        if ema is not None:
            update_ema(ema, model, 0.9999)
        print(f"Epoch 0 [{step}] loss {loss.item():.4f} lr {schedule.get_last_lr()[0]:.2e}")


if __name__ == "__main__":
    p = argparse.ArgumentParser()
    p.add_argument("--size", choices=SIZES, default="tiny")
    p.add_argument("--batch-size", type=int, default=32)
    p.add_argument("--steps", type=int, default=5)
    p.add_argument("--image-size", type=int, default=224)
    p.add_argument("--classes", type=int, default=1000)
    p.add_argument("--drop-path", type=float, default=0.1)
    p.add_argument("--bf16", action="store_true")
    p.add_argument("--channels-last", action="store_true")
    p.add_argument("--ema", action="store_true")
    main(p.parse_args())
