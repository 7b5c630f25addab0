"""DenseNet-BC (Huang et al. 2016). Concatenations make it hungry, hence the option to recompute dense layers."""

from argparse import ArgumentParser

import torch
import torch.utils.checkpoint as cp
from torch import nn


class DenseLayer(nn.Module):
    def __init__(self, inputs, growth, recompute):
        super().__init__()
        self.recompute = recompute
        self.bottleneck = nn.Sequential(
            nn.BatchNorm2d(inputs), nn.ReLU(inplace=True), nn.Conv2d(inputs, 4 * growth, 1, bias=False)
        )
        self.conv = nn.Sequential(
            nn.BatchNorm2d(4 * growth), nn.ReLU(inplace=True), nn.Conv2d(4 * growth, growth, 3, padding=1, bias=False)
        )

    def squeeze(self, *features):
        return self.bottleneck(torch.cat(features, 1))

    def forward(self, features):
        if self.recompute and any(f.requires_grad for f in features):
            hidden = cp.checkpoint(self.squeeze, *features, use_reentrant=False)
        else:
            hidden = self.squeeze(*features)
        return self.conv(hidden)


class DenseBlock(nn.Module):
    def __init__(self, layers, inputs, growth, recompute):
        super().__init__()
        self.layers = nn.ModuleList(DenseLayer(inputs + i * growth, growth, recompute) for i in range(layers))

    def forward(self, x):
        features = [x]
        for layer in self.layers:
            features.append(layer(features))
        return torch.cat(features, 1)


class DenseNet(nn.Module):
    def __init__(self, blocks, growth, classes, recompute):
        super().__init__()
        width = 2 * growth
        self.stem = nn.Sequential(
            nn.Conv2d(3, width, 7, 2, 3, bias=False),
            nn.BatchNorm2d(width),
            nn.ReLU(inplace=True),
            nn.MaxPool2d(3, 2, 1),
        )
        body = []
        for i, layers in enumerate(blocks):
            body.append(DenseBlock(layers, width, growth, recompute))
            width += layers * growth
            if i + 1 < len(blocks):
                body.append(
                    nn.Sequential(
                        nn.BatchNorm2d(width),
                        nn.ReLU(inplace=True),
                        nn.Conv2d(width, width // 2, 1, bias=False),
                        nn.AvgPool2d(2),
                    )
                )
                width //= 2
        self.body = nn.Sequential(*body)
        self.norm = nn.BatchNorm2d(width)
        self.fc = nn.Linear(width, classes)

    def forward(self, x):
        x = torch.relu_(self.norm(self.body(self.stem(x))))
        return self.fc(nn.functional.adaptive_avg_pool2d(x, 1).flatten(1))


if __name__ == "__main__":
    parser = ArgumentParser()
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--steps", type=int, default=5)
    parser.add_argument("--blocks", default="6,12,24,16")
    parser.add_argument("--growth", type=int, default=32)
    parser.add_argument("--image-size", type=int, default=224)
    parser.add_argument("--recompute", action="store_true")
    parser.add_argument("--fp16", action="store_true")
    args = parser.parse_args()

    device = torch.device("cuda", 0)
    net = DenseNet([int(b) for b in args.blocks.split(",")], args.growth, 1000, args.recompute)
    net.to(device)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9, nesterov=True, weight_decay=1e-4)
    criterion = nn.CrossEntropyLoss().to(device)
    scaler = torch.amp.GradScaler("cuda") if args.fp16 else None

    images = torch.randn(args.batch_size, 3, args.image_size, args.image_size).pin_memory()
    labels = torch.randint(1000, (args.batch_size,)).pin_memory()
    for step in range(args.steps):
        input_var = images.to(device, non_blocking=True)
        target_var = labels.to(device, non_blocking=True)
        if scaler is None:
            output = net(input_var)
            loss = criterion(output, target_var)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        else:
            with torch.autocast("cuda", dtype=torch.float16):
                output = net(input_var)
                loss = criterion(output, target_var)
            optimizer.zero_grad()
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
        _, predicted = output.topk(5, 1)
        hits = predicted.eq(target_var.view(-1, 1)).sum()
        print(f"Iter {step} Loss {loss.item():.4f} top-5 hits {hits.item()}")
