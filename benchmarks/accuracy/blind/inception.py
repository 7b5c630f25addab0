"""GoogLeNet-like classifier (Szegedy et al. 2015) with batch norm and two auxiliary heads."""

import argparse

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, Dataset

# input, 1x1, 3x3 reduce, 3x3, 5x5 reduce, 5x5, pool projection
PLAN = [
    (192, 64, 96, 128, 16, 32, 32),
    (256, 128, 128, 192, 32, 96, 64),
    "pool",
    (480, 192, 96, 208, 16, 48, 64),
    "aux",
    (512, 160, 112, 224, 24, 64, 64),
    (512, 128, 128, 256, 24, 64, 64),
    (512, 112, 144, 288, 32, 64, 64),
    "aux",
    (528, 256, 160, 320, 32, 128, 128),
    "pool",
    (832, 256, 160, 320, 32, 128, 128),
    (832, 384, 192, 384, 48, 128, 128),
]


class FakeImageNet(Dataset):
    def __init__(self, length, size, classes):
        self.length, self.classes = length, classes
        self.image = torch.randn(3, size, size)

    def __len__(self):
        return self.length

    def __getitem__(self, index):
        return self.image, index % self.classes


class BasicConv2d(nn.Module):
    def __init__(self, in_channels, out_channels, **kwargs):
        super().__init__()
        self.conv = nn.Conv2d(in_channels, out_channels, bias=False, **kwargs)
        self.bn = nn.BatchNorm2d(out_channels, eps=0.001)

    def forward(self, x):
        return F.relu(self.bn(self.conv(x)), inplace=True)


class Inception(nn.Module):
    def __init__(self, cin, one, reduce3, three, reduce5, five, pool):
        super().__init__()
        self.branch1 = BasicConv2d(cin, one, kernel_size=1)
        self.branch2 = nn.Sequential(
            BasicConv2d(cin, reduce3, kernel_size=1), BasicConv2d(reduce3, three, kernel_size=3, padding=1)
        )
        self.branch3 = nn.Sequential(
            BasicConv2d(cin, reduce5, kernel_size=1), BasicConv2d(reduce5, five, kernel_size=5, padding=2)
        )
        self.branch4 = nn.Sequential(nn.MaxPool2d(3, 1, 1, ceil_mode=True), BasicConv2d(cin, pool, kernel_size=1))

    def forward(self, x):
        return torch.cat([self.branch1(x), self.branch2(x), self.branch3(x), self.branch4(x)], 1)


class AuxiliaryHead(nn.Module):
    def __init__(self, channels, classes):
        super().__init__()
        self.conv = BasicConv2d(channels, 128, kernel_size=1)
        self.fc1 = nn.Linear(2048, 1024)
        self.fc2 = nn.Linear(1024, classes)

    def forward(self, x):
        x = self.conv(F.adaptive_avg_pool2d(x, (4, 4)))
        x = F.relu(self.fc1(torch.flatten(x, 1)), inplace=True)
        return self.fc2(F.dropout(x, 0.7, training=self.training))


class GoogLeNet(nn.Module):
    def __init__(self, classes):
        super().__init__()
        self.stem = nn.Sequential(
            BasicConv2d(3, 64, kernel_size=7, stride=2, padding=3),
            nn.MaxPool2d(3, stride=2, ceil_mode=True),
            BasicConv2d(64, 64, kernel_size=1),
            BasicConv2d(64, 192, kernel_size=3, padding=1),
            nn.MaxPool2d(3, stride=2, ceil_mode=True),
        )
        self.layers, channels = nn.ModuleList(), 192
        for item in PLAN:
            if item == "pool":
                self.layers.append(nn.MaxPool2d(3, stride=2, ceil_mode=True))
            elif item == "aux":
                self.layers.append(AuxiliaryHead(channels, classes))
            else:
                self.layers.append(Inception(*item))
                channels = item[1] + item[3] + item[5] + item[6]
        self.head = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Dropout(0.2), nn.Linear(channels, classes))

    def forward(self, x):
        x, auxiliary = self.stem(x), []
        for layer in self.layers:
            if isinstance(layer, AuxiliaryHead):
                auxiliary.append(layer(x))
            else:
                x = layer(x)
        return self.head(x), auxiliary


parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("-b", "--batch-size", default=64, type=int)
parser.add_argument("--steps", default=5, type=int)
parser.add_argument("--size", default=224, type=int)
parser.add_argument("--classes", default=1000, type=int)
parser.add_argument("--amp", action="store_true")
parser.add_argument("--channels-last", action="store_true")


if __name__ == "__main__":
    args = parser.parse_args()
    device = "cuda" if torch.cuda.is_available() else "cpu"
    layout = torch.channels_last if args.channels_last else torch.contiguous_format
    model = GoogLeNet(args.classes).to(device, memory_format=layout)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9, nesterov=True, weight_decay=1e-4)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, step_size=8, gamma=0.96)
    scaler = torch.amp.GradScaler(device, enabled=args.amp)
    dataset = FakeImageNet(args.batch_size * args.steps, args.size, args.classes)
    for images, target in DataLoader(dataset, args.batch_size, num_workers=2, pin_memory=device == "cuda"):
        images = images.to(device, memory_format=layout, non_blocking=True)
        target = target.to(device, non_blocking=True)
        optimizer.zero_grad()
        with torch.autocast(device, dtype=torch.float16, enabled=args.amp):
            logits, auxiliary = model(images)
            loss = F.cross_entropy(logits, target) + 0.3 * sum(F.cross_entropy(a, target) for a in auxiliary)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
    scheduler.step()
    print("last loss", loss.item())
