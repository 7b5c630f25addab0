"""EfficientNet-style network (Tan & Le 2019): MBConv blocks with squeeze-and-excitation and SiLU."""

import argparse
import math

import torch
import torch.nn as nn
import torch.nn.functional as F

# expansion, channels, layers, stride, kernel
BASE = [
    (1, 16, 1, 1, 3), (6, 24, 2, 2, 3), (6, 40, 2, 2, 5), (6, 80, 3, 2, 3), (6, 112, 3, 1, 5), (6, 192, 4, 2, 5),
    (6, 320, 1, 1, 3),
]  # fmt: skip


class SqueezeExcite(nn.Module):
    def __init__(self, channels, reduced):
        super().__init__()
        self.fc1, self.fc2 = nn.Conv2d(channels, reduced, 1), nn.Conv2d(reduced, channels, 1)

    def forward(self, x):
        s = F.adaptive_avg_pool2d(x, 1)
        return x * torch.sigmoid(self.fc2(F.silu(self.fc1(s), inplace=True)))


class MBConv(nn.Module):
    def __init__(self, cin, cout, kernel, stride, expansion, survival):
        super().__init__()
        mid = cin * expansion
        self.skip = stride == 1 and cin == cout
        self.survival = survival
        layers = []
        if expansion != 1:
            layers += [nn.Conv2d(cin, mid, 1, bias=False), nn.BatchNorm2d(mid, eps=1e-3), nn.SiLU(inplace=True)]
        layers += [
            nn.Conv2d(mid, mid, kernel, stride, kernel // 2, groups=mid, bias=False),
            nn.BatchNorm2d(mid, eps=1e-3),
            nn.SiLU(inplace=True),
            SqueezeExcite(mid, max(1, cin // 4)),
            nn.Conv2d(mid, cout, 1, bias=False),
            nn.BatchNorm2d(cout, eps=1e-3),
        ]
        self.body = nn.Sequential(*layers)

    def forward(self, x):
        out = self.body(x)
        if not self.skip:
            return out
        if self.training:
            keep = (torch.rand(x.shape[0], 1, 1, 1, device=x.device) < self.survival).to(x.dtype)
            out = out * keep / self.survival
        return out + x


class EfficientNet(nn.Module):
    def __init__(self, width, depth, dropout, classes):
        super().__init__()

        def channels(c):
            return max(8, int(c * width + 4) // 8 * 8)

        cin = channels(32)
        layers = [nn.Conv2d(3, cin, 3, 2, 1, bias=False), nn.BatchNorm2d(cin, eps=1e-3), nn.SiLU(inplace=True)]
        for expansion, c, n, stride, kernel in BASE:
            for i in range(math.ceil(n * depth)):
                layers.append(MBConv(cin, channels(c), kernel, stride if i == 0 else 1, expansion, 0.9))
                cin = channels(c)
        last = channels(1280)
        layers += [nn.Conv2d(cin, last, 1, bias=False), nn.BatchNorm2d(last, eps=1e-3), nn.SiLU(inplace=True)]
        self.features = nn.Sequential(*layers)
        self.classifier = nn.Sequential(nn.Dropout(dropout), nn.Linear(last, classes))

    def forward(self, x):
        return self.classifier(self.features(x).mean((2, 3)))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--width", type=float, default=1.0)
    parser.add_argument("--depth", type=float, default=1.0)
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--steps", type=int, default=5)
    parser.add_argument("--image-size", type=int, default=224)
    parser.add_argument("--classes", type=int, default=1000)
    parser.add_argument("--mixed", choices=["no", "fp16", "bf16"], default="no")
    parser.add_argument("--inference", action="store_true")
    args = parser.parse_args()
    device = "cuda" if torch.cuda.is_available() else "cpu"
    net = EfficientNet(args.width, args.depth, 0.2, args.classes).to(device)
    x = torch.rand(args.batch_size, 3, args.image_size, args.image_size)
    y = torch.randint(args.classes, (args.batch_size,))

    if args.inference:
        net.eval()
        if args.mixed == "fp16":
            net, x = net.half(), x.half()
        with torch.inference_mode():
            for _ in range(args.steps):
                classes = net(x.to(device)).argmax(1)
        print(classes[:4].cpu().tolist())
        return

    optimizer = torch.optim.RMSprop(net.parameters(), lr=1e-3, momentum=0.9, weight_decay=1e-5)
    scaler = torch.amp.GradScaler("cuda", enabled=args.mixed == "fp16")
    dtype = {"no": None, "fp16": torch.float16, "bf16": torch.bfloat16}[args.mixed]
    net.train()
    for step in range(args.steps):
        images, labels = x.to(device), y.to(device)
        with torch.autocast(device, dtype=dtype, enabled=dtype is not None):
            loss = F.cross_entropy(net(images), labels)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()
        print(step, f"{loss.item():.4f}")


if __name__ == "__main__":
    main()
