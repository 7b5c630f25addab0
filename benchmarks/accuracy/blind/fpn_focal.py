"""One-stage detector: a small residual backbone, a feature pyramid, shared heads, focal and smooth L1 losses."""

import argparse
import math

import torch
import torch.nn.functional as F
from torch import nn, optim


class Residual(nn.Module):
    def __init__(self, cin, cout, stride):
        super().__init__()
        self.a = nn.Conv2d(cin, cout, 3, stride, 1, bias=False)
        self.na = nn.GroupNorm(16, cout)
        self.b = nn.Conv2d(cout, cout, 3, 1, 1, bias=False)
        self.nb = nn.GroupNorm(16, cout)
        self.skip = nn.Conv2d(cin, cout, 1, stride, bias=False)

    def forward(self, x):
        return F.relu(self.nb(self.b(F.relu(self.na(self.a(x))))) + self.skip(x))


class Pyramid(nn.Module):
    def __init__(self, channels, out):
        super().__init__()
        self.lateral = nn.ModuleList(nn.Conv2d(c, out, 1) for c in channels)
        self.smooth = nn.ModuleList(nn.Conv2d(out, out, 3, padding=1) for _ in channels)
        self.p6 = nn.Conv2d(channels[-1], out, 3, 2, 1)
        self.p7 = nn.Conv2d(out, out, 3, 2, 1)

    def forward(self, features):
        merged = [lateral(f) for lateral, f in zip(self.lateral, features, strict=True)]
        for i in range(len(merged) - 1, 0, -1):
            merged[i - 1] = merged[i - 1] + F.interpolate(merged[i], size=merged[i - 1].shape[2:], mode="nearest")
        levels = [smooth(m) for smooth, m in zip(self.smooth, merged, strict=True)]
        levels.append(self.p6(features[-1]))
        levels.append(self.p7(F.relu(levels[-1])))
        return levels


def head(channels, outputs, bias=0.0):
    layers = []
    for _ in range(4):
        layers += [nn.Conv2d(channels, channels, 3, padding=1), nn.ReLU()]
    layers.append(nn.Conv2d(channels, outputs, 3, padding=1))
    nn.init.constant_(layers[-1].bias, bias)
    return nn.Sequential(*layers)


class Detector(nn.Module):
    def __init__(self, width, pyramid, classes, anchors):
        super().__init__()
        self.classes = classes
        self.stem = nn.Sequential(nn.Conv2d(3, width, 7, 2, 3), nn.ReLU(), nn.MaxPool2d(3, 2, 1))
        self.c2 = Residual(width, width, 1)
        self.c3 = nn.Sequential(Residual(width, 2 * width, 2), Residual(2 * width, 2 * width, 1))
        self.c4 = nn.Sequential(Residual(2 * width, 4 * width, 2), Residual(4 * width, 4 * width, 1))
        self.c5 = nn.Sequential(Residual(4 * width, 8 * width, 2), Residual(8 * width, 8 * width, 1))
        self.fpn = Pyramid([2 * width, 4 * width, 8 * width], pyramid)
        self.cls_head = head(pyramid, anchors * classes, -math.log(99))
        self.box_head = head(pyramid, anchors * 4)

    def forward(self, x):
        c3 = self.c3(self.c2(self.stem(x)))
        c4 = self.c4(c3)
        levels = self.fpn([c3, c4, self.c5(c4)])
        scores, boxes = [], []
        for level in levels:
            scores.append(self.cls_head(level).permute(0, 2, 3, 1).reshape(x.size(0), -1, self.classes))
            boxes.append(self.box_head(level).permute(0, 2, 3, 1).reshape(x.size(0), -1, 4))
        return torch.cat(scores, 1), torch.cat(boxes, 1)


def sigmoid_focal_loss(logits, targets, alpha=0.25, gamma=2.0):
    p = torch.sigmoid(logits)
    ce = F.binary_cross_entropy_with_logits(logits, targets, reduction="none")
    p_t = p * targets + (1 - p) * (1 - targets)
    alpha_t = alpha * targets + (1 - alpha) * (1 - targets)
    return (alpha_t * ce * (1 - p_t) ** gamma).sum()


def get_args():
    parser = argparse.ArgumentParser()
    parser.add_argument("--batch-size", type=int, default=4)
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--image-size", type=int, default=512)
    parser.add_argument("--width", type=int, default=64)
    parser.add_argument("--pyramid", type=int, default=256)
    parser.add_argument("--num-classes", type=int, default=80)
    parser.add_argument("--fp16", action="store_true")
    return parser.parse_args()


def main():
    args = get_args()
    device = "cuda" if torch.cuda.is_available() else "cpu"
    model = Detector(args.width, args.pyramid, args.num_classes, anchors=9).to(device)
    optimizer = optim.AdamW(model.parameters(), lr=1e-4, weight_decay=1e-4)
    scaler = torch.amp.GradScaler(device, enabled=args.fp16)
    images = torch.rand(args.batch_size, 3, args.image_size, args.image_size, device=device)
    targets = None
    for step in range(args.steps):
        with torch.autocast(device, torch.float16, enabled=args.fp16):
            scores, boxes = model(images)
        if targets is None:  # every hundredth anchor holds an object
            positive = torch.arange(scores.size(1), device=device) % 100 == 0
            classes = torch.zeros(scores.size(1), args.num_classes, device=device)
            classes[:, 3] = positive.float()
            targets = classes.expand_as(scores), torch.zeros_like(boxes), positive.float()[None, :, None]
        count = targets[2].sum() * args.batch_size
        cls_loss = sigmoid_focal_loss(scores.float(), targets[0]) / count
        box_loss = (F.smooth_l1_loss(boxes.float(), targets[1], beta=0.1, reduction="none") * targets[2]).sum() / count
        optimizer.zero_grad()
        scaler.scale(cls_loss + box_loss).backward()
        scaler.unscale_(optimizer)
        nn.utils.clip_grad_norm_(model.parameters(), 0.1)
        scaler.step(optimizer)
        scaler.update()
        print(f"iteration {step}: cls {cls_loss.item():.4f} box {box_loss.item():.4f}")


if __name__ == "__main__":
    main()
