"""Action recognition with a 3-D residual network (R3D, Tran et al. 2018)."""

import argparse

import torch
from torch import nn


class Residual3d(nn.Module):
    def __init__(self, cin, cout, stride=1, factored=False):
        super().__init__()

        def conv(a, b, s):
            if factored:  # (2+1)D: space, then time
                return nn.Sequential(
                    nn.Conv3d(a, b, (1, 3, 3), (1, s, s), (0, 1, 1), bias=False),
                    nn.BatchNorm3d(b),
                    nn.ReLU(inplace=True),
                    nn.Conv3d(b, b, (3, 1, 1), (s, 1, 1), (1, 0, 0), bias=False),
                )
            return nn.Conv3d(a, b, 3, s, 1, bias=False)

        self.body = nn.Sequential(
            conv(cin, cout, stride),
            nn.BatchNorm3d(cout),
            nn.ReLU(inplace=True),
            conv(cout, cout, 1),
            nn.BatchNorm3d(cout),
        )
        self.down = None
        if stride != 1 or cin != cout:
            self.down = nn.Sequential(nn.Conv3d(cin, cout, 1, stride, bias=False), nn.BatchNorm3d(cout))

    def forward(self, x):
        identity = x if self.down is None else self.down(x)
        return torch.relu(self.body(x) + identity)


def r3d(width, depths, classes, factored):
    layers = [
        nn.Conv3d(3, width, (3, 7, 7), (1, 2, 2), (1, 3, 3), bias=False),
        nn.BatchNorm3d(width),
        nn.ReLU(inplace=True),
    ]
    cin = width
    for stage, depth in enumerate(depths):
        for i in range(depth):
            cout = width * 2**stage
            layers.append(Residual3d(cin, cout, 2 if stage and i == 0 else 1, factored))
            cin = cout
    return nn.Sequential(*layers, nn.AdaptiveAvgPool3d(1), nn.Flatten(), nn.Dropout(0.5), nn.Linear(cin, classes))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--batch-size", type=int, default=4)
    parser.add_argument("--steps", type=int, default=5)
    parser.add_argument("--frames", type=int, default=16)
    parser.add_argument("--size", type=int, default=112)
    parser.add_argument("--width", type=int, default=64)
    parser.add_argument("--depths", default="2-2-2-2")
    parser.add_argument("--factored", action="store_true")
    parser.add_argument("--amp", action="store_true")
    parser.add_argument("--iter-size", type=int, default=1)
    args = parser.parse_args()

    gpu = torch.device("cuda:0")
    net = r3d(args.width, [int(d) for d in args.depths.split("-")], 400, args.factored).to(gpu)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01, momentum=0.9, weight_decay=5e-4)
    criterion = nn.CrossEntropyLoss().to(gpu)
    scaler = torch.amp.GradScaler("cuda", enabled=args.amp)
    clip = torch.randint(0, 256, (args.batch_size, 3, args.frames, args.size, args.size), dtype=torch.uint8)
    for step in range(args.steps):
        for _ in range(args.iter_size):
            # bytes over the bus, floats on the device
            video = clip.to(gpu, non_blocking=True).float().div_(255).sub_(0.45).div_(0.225)
            target = torch.randint(400, (args.batch_size,), device=gpu)
            with torch.autocast("cuda", dtype=torch.float16, enabled=args.amp):
                loss = criterion(net(video), target) / args.iter_size
            scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()
        print("iter", step, "loss", loss.item() * args.iter_size)


if __name__ == "__main__":
    main()
