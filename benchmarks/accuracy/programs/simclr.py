"""Contrastive learning (SimCLR, Chen et al. 2020): two views, one encoder, all pairs in the loss."""

import argparse

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset


class TwoViews(Dataset):
    def __init__(self, count, size):
        self.count, self.image = count, torch.rand(3, size, size)

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        flipped = self.image.flip(-1) if index % 2 else self.image
        return flipped, self.image * 0.8


class Encoder(nn.Module):
    def __init__(self, width, blocks, projection):
        super().__init__()
        layers, cin = [nn.Conv2d(3, width, 3, 1, 1, bias=False), nn.BatchNorm2d(width), nn.ReLU()], width
        for level in range(4):
            for i in range(blocks):
                cout = width * 2**level
                stride = 2 if level and i == 0 else 1
                layers += [nn.Conv2d(cin, cout, 3, stride, 1, bias=False), nn.BatchNorm2d(cout), nn.ReLU()]
                cin = cout
        self.backbone = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten())
        self.projector = nn.Sequential(nn.Linear(cin, cin), nn.ReLU(), nn.Linear(cin, projection))

    def forward(self, x):
        return self.projector(self.backbone(x))


def nt_xent(features, temperature):
    n = features.shape[0] // 2
    features = F.normalize(features, dim=1)
    similarity = features @ features.T
    labels = torch.cat([torch.arange(n), torch.arange(n)]).to(features.device)
    labels = (labels[None] == labels[:, None]).float()
    off_diagonal = ~torch.eye(2 * n, dtype=torch.bool, device=features.device)
    labels, similarity = labels[off_diagonal].view(2 * n, -1), similarity[off_diagonal].view(2 * n, -1)
    positives = similarity[labels.bool()].view(2 * n, -1)
    negatives = similarity[~labels.bool()].view(2 * n, -1)
    logits = torch.cat([positives, negatives], dim=1) / temperature
    return F.cross_entropy(logits, torch.zeros(2 * n, dtype=torch.long, device=features.device))


class LARS(torch.optim.Optimizer):
    """Layer-wise adaptive rates (You et al. 2017)."""

    def __init__(self, params, lr, momentum=0.9, trust=0.001):
        super().__init__(params, {"lr": lr, "momentum": momentum, "trust": trust})

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            for p in group["params"]:
                update = p.grad
                if p.ndim > 1:
                    ratio = group["trust"] * p.norm() / (update.norm() + 1e-9)
                    update = update * torch.where(p.norm() > 0, ratio, torch.ones_like(ratio))
                buffer = self.state[p].setdefault("buffer", torch.zeros_like(p))
                buffer.mul_(group["momentum"]).add_(update)
                p.add_(buffer, alpha=-group["lr"])


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--batch-size", type=int, default=256)
    parser.add_argument("--steps", type=int, default=5)
    parser.add_argument("--size", type=int, default=32)
    parser.add_argument("--width", type=int, default=64)
    parser.add_argument("--blocks", type=int, default=3)
    parser.add_argument("--projection", type=int, default=128)
    parser.add_argument("--fp16", action="store_true")
    parser.add_argument("--optimizer", choices=["lars", "adam"], default="lars")
    args = parser.parse_args()
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    model = Encoder(args.width, args.blocks, args.projection).to(device)
    if args.optimizer == "lars":
        optimizer = LARS(model.parameters(), 0.3)
    else:
        optimizer = torch.optim.Adam(model.parameters(), 3e-4, weight_decay=1e-4)
    scaler = torch.amp.GradScaler("cuda", enabled=args.fp16)
    loader = DataLoader(TwoViews(args.batch_size * args.steps, args.size), args.batch_size, pin_memory=True)
    for n_iter, views in enumerate(loader):
        images = torch.cat(views, dim=0).to(device)
        with torch.autocast("cuda", dtype=torch.float16, enabled=args.fp16):
            loss = nt_xent(model(images), 0.1)
        optimizer.zero_grad()
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        print(n_iter, loss.item())


if __name__ == "__main__":
    main()
