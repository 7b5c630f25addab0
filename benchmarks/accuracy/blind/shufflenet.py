"""ShuffleNet V2 units (Ma et al. 2018): channel split, depthwise convolutions, channel shuffle. Trains or classifies."""

import argparse
import time

import torch
from torch import nn


def channel_shuffle(x, groups=2):
    n, c, h, w = x.shape
    return x.view(n, groups, c // groups, h, w).transpose(1, 2).reshape(n, c, h, w)


def pointwise(cin, cout):
    return [nn.Conv2d(cin, cout, 1, bias=False), nn.BatchNorm2d(cout), nn.ReLU(inplace=True)]


def depthwise(c, stride):
    return [nn.Conv2d(c, c, 3, stride, 1, groups=c, bias=False), nn.BatchNorm2d(c)]


class Unit(nn.Module):
    def __init__(self, cin, cout, stride):
        super().__init__()
        half = cout // 2
        self.stride = stride
        start = cin if stride == 2 else half
        self.right = nn.Sequential(*pointwise(start, half), *depthwise(half, stride), *pointwise(half, half))
        self.left = nn.Sequential(*depthwise(cin, 2), *pointwise(cin, half)) if stride == 2 else nn.Identity()

    def forward(self, x):
        if self.stride == 2:
            out = torch.cat((self.left(x), self.right(x)), dim=1)
        else:
            kept, worked = x.chunk(2, dim=1)
            out = torch.cat((self.left(kept), self.right(worked)), dim=1)
        return channel_shuffle(out)


class ShuffleNetV2(nn.Module):
    def __init__(self, channels, repeats, num_classes):
        super().__init__()
        self.conv1 = nn.Sequential(nn.Conv2d(3, 24, 3, 2, 1, bias=False), nn.BatchNorm2d(24), nn.ReLU(inplace=True))
        self.maxpool = nn.MaxPool2d(3, 2, 1)
        stages, cin = [], 24
        for cout, repeat in zip(channels[:-1], repeats, strict=True):
            stages += [Unit(cin, cout, 2)] + [Unit(cout, cout, 1) for _ in range(repeat - 1)]
            cin = cout
        self.stages = nn.Sequential(*stages)
        self.conv5 = nn.Sequential(*pointwise(cin, channels[-1]))
        self.fc = nn.Linear(channels[-1], num_classes)

    def forward(self, x):
        x = self.stages(self.maxpool(self.conv1(x)))
        return self.fc(self.conv5(x).mean([2, 3]))


WIDTHS = {
    "tiny": [16, 32, 64, 64],
    "x0.5": [48, 96, 192, 1024],
    "x1.0": [116, 232, 464, 1024],
    "x2.0": [244, 488, 976, 2048],
}


def train(model, images, labels, steps, bf16):
    criterion = nn.CrossEntropyLoss(label_smoothing=0.1)
    opt = torch.optim.RMSprop(model.parameters(), lr=0.01, alpha=0.9, eps=1e-3, momentum=0.9)
    for i in range(steps):
        t0 = time.time()
        opt.zero_grad(set_to_none=True)
        with torch.autocast(images.device.type, dtype=torch.bfloat16, enabled=bf16):
            loss = criterion(model(images), labels)
        loss.backward()
        opt.step()
        print(f"[{i}] loss {loss.item():.4f} {time.time() - t0:.3f}s")


@torch.inference_mode()
def classify(model, images, steps):
    model.eval()
    for _ in range(steps):
        best = model(images).argmax(1)
    print("most frequent class", best.mode().values.item())


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--batch-size", type=int, default=32)
    p.add_argument("--steps", type=int, default=10)
    p.add_argument("--width", choices=list(WIDTHS), default="x1.0")
    p.add_argument("--res", type=int, default=224)
    p.add_argument("--bf16", action="store_true")
    p.add_argument("--inference", action="store_true")
    p.add_argument("--half", action="store_true")
    a = p.parse_args()

    device = "cuda" if torch.cuda.is_available() else "cpu"
    net = ShuffleNetV2(WIDTHS[a.width], [4, 8, 4], 1000).to(device)
    x = torch.rand(a.batch_size, 3, a.res, a.res, device=device)
    y = torch.randint(1000, (a.batch_size,), device=device)
    if a.half:
        net, x = net.half(), x.half()
    if a.inference:
        classify(net, x, a.steps)
    else:
        train(net, x, y, a.steps, a.bf16)


if __name__ == "__main__":
    main()
