#!/usr/bin/env python3
"""Semantic segmentation with a U-Net (Ronneberger et al. 2015): Adam, Dice plus cross-entropy, optional bfloat16."""

import argparse
from itertools import pairwise

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class DoubleConv(nn.Sequential):
    def __init__(self, cin, cout):
        super().__init__(
            nn.Conv2d(cin, cout, 3, padding=1),
            nn.BatchNorm2d(cout),
            nn.ReLU(),
            nn.Conv2d(cout, cout, 3, padding=1),
            nn.BatchNorm2d(cout),
            nn.ReLU(),
        )


class UNet(nn.Module):
    def __init__(self, classes, width=64, levels=4, bilinear=False):
        super().__init__()
        widths = [width * 2**level for level in range(levels + 1)]
        self.inc = DoubleConv(3, widths[0])
        self.down = nn.ModuleList(DoubleConv(a, b) for a, b in pairwise(widths))
        self.up, self.merge = nn.ModuleList(), nn.ModuleList()
        for small, large in zip(reversed(widths[:-1]), reversed(widths[1:]), strict=True):
            if bilinear:
                up = nn.Sequential(
                    nn.Upsample(scale_factor=2, mode="bilinear", align_corners=True), nn.Conv2d(large, small, 1)
                )
            else:
                up = nn.ConvTranspose2d(large, small, 2, stride=2)
            self.up.append(up)
            self.merge.append(DoubleConv(2 * small, small))
        self.pool = nn.MaxPool2d(2)
        self.head = nn.Conv2d(width, classes, 1)

    def forward(self, x):
        skips = [self.inc(x)]
        for block in self.down:
            skips.append(block(self.pool(skips[-1])))
        x = skips.pop()
        for up, merge in zip(self.up, self.merge, strict=True):
            x = merge(torch.cat([skips.pop(), up(x)], dim=1))
        return self.head(x)


def dice_loss(logits, target, eps=1e-6):
    probabilities = logits.float().softmax(dim=1)
    one_hot = nn.functional.one_hot(target, logits.shape[1]).permute(0, 3, 1, 2).float()
    overlap = (probabilities * one_hot).sum(dim=(2, 3))
    sizes = probabilities.sum(dim=(2, 3)) + one_hot.sum(dim=(2, 3))
    return 1 - ((2 * overlap + eps) / (sizes + eps)).mean()


def train(opt):
    device = torch.device("cuda")
    net = UNet(opt.classes, opt.width, opt.levels, opt.bilinear).to(device)
    optimizer = torch.optim.Adam(net.parameters(), lr=opt.lr)
    criterion = nn.CrossEntropyLoss()
    images = torch.rand(2 * opt.batch_size, 3, opt.size, opt.size)
    masks = torch.randint(0, opt.classes, (2 * opt.batch_size, opt.size, opt.size))
    loader = DataLoader(TensorDataset(images, masks), batch_size=opt.batch_size, shuffle=True)

    step, running = 0, 0.0
    while step < opt.steps:
        for image, mask in loader:
            image, mask = image.cuda(), mask.cuda()
            optimizer.zero_grad()
            with torch.autocast(device_type="cuda", dtype=torch.bfloat16, enabled=opt.bf16):
                output = net(image)
                loss = criterion(output, mask) + dice_loss(output, mask)
            loss.backward()
            optimizer.step()
            running += loss.item()
            step += 1
            if step >= opt.steps:
                break
        # validation on the last image batch
        net.eval()
        with torch.no_grad():
            predicted = net(image).argmax(dim=1)
            iou = ((predicted == mask).float().mean()).item()
        net.train()
        print(f"[{step}/{opt.steps}] loss {running / step:.3f} pixel accuracy {iou:.3f}")


if __name__ == "__main__":
    p = argparse.ArgumentParser(description=__doc__)
    p.add_argument("--batch-size", "-b", type=int, default=4)
    p.add_argument("--steps", type=int, default=5)
    p.add_argument("--size", type=int, default=256)
    p.add_argument("--classes", type=int, default=21)
    p.add_argument("--width", type=int, default=64)
    p.add_argument("--levels", type=int, default=4)
    p.add_argument("--lr", type=float, default=1e-4)
    p.add_argument("--bilinear", action="store_true")
    p.add_argument("--bf16", action="store_true")
    train(p.parse_args())
