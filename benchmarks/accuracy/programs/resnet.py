"""ResNet image classification (He et al. 2015), SGD with momentum, evaluation after every epoch."""

import argparse

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset

LAYERS = {"resnet18": (2, 2, 2, 2), "resnet34": (3, 4, 6, 3), "resnet50": (3, 4, 6, 3), "resnet101": (3, 4, 23, 3)}


class FakeImages(Dataset):
    """One image, many labels: reading from disk is not what is being tried here."""

    def __init__(self, length, size, classes):
        self.length, self.classes = length, classes
        self.image = torch.randn(3, size, size)

    def __len__(self):
        return self.length

    def __getitem__(self, index):
        return self.image, index % self.classes


def conv_bn(inputs, outputs, kernel, stride=1):
    return nn.Sequential(nn.Conv2d(inputs, outputs, kernel, stride, kernel // 2, bias=False), nn.BatchNorm2d(outputs))


class Basic(nn.Module):
    expansion = 1

    def __init__(self, inputs, width, stride):
        super().__init__()
        self.first = conv_bn(inputs, width, 3, stride)
        self.second = conv_bn(width, width, 3)
        self.shortcut = conv_bn(inputs, width, 1, stride) if stride != 1 or inputs != width else nn.Identity()
        self.relu = nn.ReLU(inplace=True)

    def forward(self, x):
        return self.relu(self.second(self.relu(self.first(x))) + self.shortcut(x))


class Bottleneck(nn.Module):
    expansion = 4

    def __init__(self, inputs, width, stride):
        super().__init__()
        outputs = width * 4
        self.reduce = conv_bn(inputs, width, 1)
        self.spatial = conv_bn(width, width, 3, stride)
        self.expand = conv_bn(width, outputs, 1)
        self.shortcut = conv_bn(inputs, outputs, 1, stride) if stride != 1 or inputs != outputs else nn.Identity()
        self.relu = nn.ReLU(inplace=True)

    def forward(self, x):
        out = self.relu(self.reduce(x))
        out = self.relu(self.spatial(out))
        out = self.expand(out)
        out += self.shortcut(x)
        return self.relu(out)


class ResNet(nn.Module):
    def __init__(self, arch, classes, base=64):
        super().__init__()
        block = Basic if arch in ("resnet18", "resnet34") else Bottleneck
        self.stem = nn.Sequential(conv_bn(3, base, 7, 2), nn.ReLU(inplace=True), nn.MaxPool2d(3, 2, 1))
        channels, stages = base, []
        for number, depth in enumerate(LAYERS[arch]):
            for layer in range(depth):
                width = base * 2**number
                stages.append(block(channels, width, 2 if layer == 0 and number > 0 else 1))
                channels = width * block.expansion
        self.stages = nn.Sequential(*stages)
        self.pool = nn.AdaptiveAvgPool2d(1)
        self.fc = nn.Linear(channels, classes)

    def forward(self, x):
        return self.fc(self.pool(self.stages(self.stem(x))).flatten(1))


@torch.no_grad()
def evaluate(model, loader, device, batches):
    model.eval()
    correct = total = 0
    for number, (images, labels) in enumerate(loader):
        if number == batches:
            break
        predicted = model(images.to(device)).argmax(1)
        correct += (predicted == labels.to(device)).sum().item()
        total += labels.size(0)
    model.train()
    return correct / total


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--arch", choices=LAYERS, default="resnet18")
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--steps", type=int, default=5)
    parser.add_argument("--image-size", type=int, default=224)
    parser.add_argument("--classes", type=int, default=1000)
    parser.add_argument("--base-width", type=int, default=64)
    parser.add_argument("--lr", type=float, default=0.1)
    parser.add_argument("--momentum", type=float, default=0.9)
    parser.add_argument("--amp", action="store_true", help="float16 autocast with a gradient scaler")
    parser.add_argument("--channels-last", action="store_true")
    parser.add_argument("--benchmark", action="store_true", help="let cuDNN try its algorithms")
    parser.add_argument("--workers", type=int, default=0)
    parser.add_argument("--eval-batches", type=int, default=1)
    parser.add_argument("--out", default=None)
    args = parser.parse_args()

    torch.manual_seed(0)
    torch.backends.cudnn.benchmark = args.benchmark
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    model = ResNet(args.arch, args.classes, args.base_width).to(device)
    if args.channels_last:
        model = model.to(memory_format=torch.channels_last)
    optimizer = torch.optim.SGD(model.parameters(), args.lr, momentum=args.momentum, weight_decay=1e-4)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, step_size=30)
    scaler = torch.amp.GradScaler("cuda", enabled=args.amp)
    images = FakeImages(args.batch_size * args.steps, args.image_size, args.classes)
    loader = DataLoader(
        images, args.batch_size, shuffle=True, num_workers=args.workers, pin_memory=True, drop_last=True
    )

    for step, (x, y) in enumerate(loader):
        x, y = x.to(device, non_blocking=True), y.to(device, non_blocking=True)
        if args.channels_last:
            x = x.contiguous(memory_format=torch.channels_last)
        with torch.autocast("cuda", dtype=torch.float16, enabled=args.amp):
            loss = F.cross_entropy(model(x), y)
        optimizer.zero_grad()
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        print(f"step {step} loss {loss.item():.4f}")
    scheduler.step()
    if args.eval_batches:
        print("accuracy", evaluate(model, loader, device, args.eval_batches))
    if args.out:
        torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, args.out)


if __name__ == "__main__":
    main()
