"""MobileNetV2 (Sandler et al. 2018): inverted residuals with depthwise convolutions, RMSprop, EMA."""

import argparse

import torch
import torch.nn.functional as F
from torch import nn
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn
from torch.utils.data import DataLoader, IterableDataset

# expansion, channels, repeats, stride
STAGES = ((1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1))


class ConvBN(nn.Sequential):
    def __init__(self, cin, cout, kernel=1, stride=1, groups=1, act=True):
        layers = [nn.Conv2d(cin, cout, kernel, stride, kernel // 2, groups=groups, bias=False), nn.BatchNorm2d(cout)]
        if act:
            layers.append(nn.ReLU6(inplace=True))
        super().__init__(*layers)


class InvertedResidual(nn.Module):
    def __init__(self, cin, cout, stride, expansion):
        super().__init__()
        hidden = cin * expansion
        self.residual = stride == 1 and cin == cout
        layers = [ConvBN(cin, hidden)] if expansion != 1 else []
        layers += [ConvBN(hidden, hidden, 3, stride, groups=hidden), ConvBN(hidden, cout, act=False)]
        self.conv = nn.Sequential(*layers)

    def forward(self, x):
        return x + self.conv(x) if self.residual else self.conv(x)


def scaled(channels, width):
    return max(8, int(channels * width + 4) // 8 * 8)


class MobileNetV2(nn.Module):
    def __init__(self, classes=1000, width=1.0):
        super().__init__()
        cin = scaled(32, width)
        layers = [ConvBN(3, cin, 3, 2)]
        for t, c, n, s in STAGES:
            for i in range(n):
                layers.append(InvertedResidual(cin, scaled(c, width), s if i == 0 else 1, t))
                cin = scaled(c, width)
        layers.append(ConvBN(cin, 1280))
        self.features = nn.Sequential(*layers)
        self.classifier = nn.Sequential(nn.Dropout(0.2), nn.Linear(1280, classes))

    def forward(self, x):
        return self.classifier(self.features(x).mean([2, 3]))


class Stream(IterableDataset):
    def __init__(self, count, size, classes):
        self.count, self.classes, self.image = count, classes, torch.rand(3, size, size)

    def __iter__(self):
        for i in range(self.count):
            yield self.image, i % self.classes


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--batch-size", type=int, default=64)
    p.add_argument("--steps", type=int, default=5)
    p.add_argument("--size", type=int, default=224)
    p.add_argument("--width", type=float, default=1.0)
    p.add_argument("--classes", type=int, default=1000)
    p.add_argument("--amp", choices=["none", "fp16", "bf16"], default="none")
    p.add_argument("--channels-last", action="store_true")
    p.add_argument("--ema", action="store_true")
    args = p.parse_args()

    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    memory_format = torch.channels_last if args.channels_last else torch.contiguous_format
    model = MobileNetV2(args.classes, args.width).to(device=device, memory_format=memory_format)
    ema = AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(0.999)) if args.ema else None
    optimizer = torch.optim.RMSprop(model.parameters(), lr=0.045, alpha=0.9, momentum=0.9, eps=1.0, weight_decay=4e-5)
    scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, gamma=0.98)
    scaler = torch.amp.GradScaler(enabled=args.amp == "fp16")
    dtype = torch.float16 if args.amp == "fp16" else torch.bfloat16
    loader = DataLoader(Stream(args.steps * args.batch_size, args.size, args.classes), args.batch_size, pin_memory=True)

    for step, (images, targets) in enumerate(loader):
        images = images.to(device, non_blocking=True, memory_format=memory_format)
        targets = targets.to(device, non_blocking=True)
        optimizer.zero_grad(set_to_none=False)
        with torch.autocast(device_type=device.type, dtype=dtype, enabled=args.amp != "none"):
            logits = model(images)
            loss = F.cross_entropy(logits, targets, label_smoothing=0.1)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        if ema is not None:
            ema.update_parameters(model)
        top1 = (logits.argmax(-1) == targets).float().mean()
        print(f"{step}: loss {loss.item():.3f} top-1 {top1.item():.3f}")
    scheduler.step()


if __name__ == "__main__":
    main()
