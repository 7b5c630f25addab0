"""Semantic segmentation: dilated residual backbone, atrous spatial pyramid pooling and a decoder (DeepLab V3+)."""

import argparse

import torch
import torch.nn as nn
import torch.nn.functional as F


class Bottleneck(nn.Module):
    expansion = 4

    def __init__(self, inplanes, planes, stride=1, dilation=1):
        super().__init__()
        self.conv1 = nn.Conv2d(inplanes, planes, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(planes)
        self.conv2 = nn.Conv2d(planes, planes, 3, stride, padding=dilation, dilation=dilation, bias=False)
        self.bn2 = nn.BatchNorm2d(planes)
        self.conv3 = nn.Conv2d(planes, planes * 4, 1, bias=False)
        self.bn3 = nn.BatchNorm2d(planes * 4)
        self.relu = nn.ReLU(inplace=True)
        self.downsample = None
        if stride != 1 or inplanes != planes * 4:
            self.downsample = nn.Sequential(
                nn.Conv2d(inplanes, planes * 4, 1, stride, bias=False), nn.BatchNorm2d(planes * 4)
            )

    def forward(self, x):
        identity = x if self.downsample is None else self.downsample(x)
        out = self.relu(self.bn1(self.conv1(x)))
        out = self.relu(self.bn2(self.conv2(out)))
        return self.relu(self.bn3(self.conv3(out)) + identity)


class ASPP(nn.Module):
    def __init__(self, cin, cout, rates):
        super().__init__()
        self.branches = nn.ModuleList([self.branch(cin, cout, 1, 0, 1)])
        for r in rates:
            self.branches.append(self.branch(cin, cout, 3, r, r))
        self.pool = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Conv2d(cin, cout, 1), nn.ReLU())
        self.project = nn.Sequential(
            nn.Conv2d(cout * (len(rates) + 2), cout, 1, bias=False), nn.BatchNorm2d(cout), nn.ReLU(), nn.Dropout(0.5)
        )

    @staticmethod
    def branch(cin, cout, kernel, padding, dilation):
        conv = nn.Conv2d(cin, cout, kernel, padding=padding, dilation=dilation, bias=False)
        return nn.Sequential(conv, nn.BatchNorm2d(cout), nn.ReLU())

    def forward(self, x):
        outs = [branch(x) for branch in self.branches]
        outs.append(F.interpolate(self.pool(x), size=x.shape[-2:], mode="bilinear", align_corners=False))
        return self.project(torch.cat(outs, dim=1))


class DeepLab(nn.Module):
    def __init__(self, width, depths, num_classes):
        super().__init__()
        self.inplanes = width
        self.stem = nn.Sequential(
            nn.Conv2d(3, width, 7, 2, 3, bias=False), nn.BatchNorm2d(width), nn.ReLU(True), nn.MaxPool2d(3, 2, 1)
        )
        self.layer1 = self._layer(width, depths[0], 1, 1)
        self.layer2 = self._layer(width * 2, depths[1], 2, 1)
        self.layer3 = self._layer(width * 4, depths[2], 2, 1)
        self.layer4 = self._layer(width * 8, depths[3], 1, 2)
        self.aspp = ASPP(self.inplanes, width * 4, (6, 12, 18))
        self.low = nn.Sequential(nn.Conv2d(width * 4, 48, 1, bias=False), nn.BatchNorm2d(48), nn.ReLU())
        self.classifier = nn.Sequential(
            nn.Conv2d(48 + width * 4, width * 4, 3, padding=1, bias=False), nn.BatchNorm2d(width * 4), nn.ReLU(),
            nn.Conv2d(width * 4, num_classes, 1),
        )  # fmt: skip

    def _layer(self, planes, blocks, stride, dilation):
        layers = [Bottleneck(self.inplanes, planes, stride, dilation)]
        self.inplanes = planes * 4
        layers += [Bottleneck(self.inplanes, planes, 1, dilation) for _ in range(1, blocks)]
        return nn.Sequential(*layers)

    def forward(self, x):
        low = self.layer1(self.stem(x))
        high = self.aspp(self.layer4(self.layer3(self.layer2(low))))
        high = F.interpolate(high, size=low.shape[-2:], mode="bilinear", align_corners=False)
        out = self.classifier(torch.cat([high, self.low(low)], dim=1))
        return F.interpolate(out, size=x.shape[-2:], mode="bilinear", align_corners=False)


def main(args):
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    model = DeepLab(args.width, args.depths, args.num_classes).to(device).train()
    head = [p for n, p in model.named_parameters() if n.startswith(("aspp", "low", "classifier"))]
    backbone = [p for n, p in model.named_parameters() if not n.startswith(("aspp", "low", "classifier"))]
    optimizer = torch.optim.SGD(
        [{"params": backbone, "lr": args.lr}, {"params": head, "lr": 10 * args.lr}], momentum=0.9, weight_decay=5e-4
    )
    poly = torch.optim.lr_scheduler.PolynomialLR(optimizer, total_iters=30000, power=0.9)
    criterion = nn.CrossEntropyLoss(ignore_index=255)
    generator = torch.Generator().manual_seed(1)
    shape = (args.batch_size, args.crop, args.crop)
    images = torch.rand(args.batch_size, 3, args.crop, args.crop, generator=generator)
    masks = torch.randint(0, args.num_classes, shape, generator=generator)
    for step in range(args.steps):
        image, mask = images.to(device), masks.to(device)
        with torch.autocast(device.type, dtype=torch.bfloat16, enabled=args.bf16):
            loss = criterion(model(image), mask)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        poly.step()
        if step % 10 == 0:
            print(f"step {step:5d} loss {loss.item():.3f} lr {poly.get_last_lr()[0]:.5f}")


if __name__ == "__main__":
    ap = argparse.ArgumentParser()
    ap.add_argument("--batch-size", type=int, default=8)
    ap.add_argument("--steps", type=int, default=20)
    ap.add_argument("--crop", type=int, default=513)
    ap.add_argument("--num-classes", type=int, default=21)
    ap.add_argument("--width", type=int, default=64)
    ap.add_argument("--depths", type=int, nargs=4, default=[3, 4, 6, 3])
    ap.add_argument("--lr", type=float, default=0.007)
    ap.add_argument("--bf16", action="store_true")
    main(ap.parse_args())
