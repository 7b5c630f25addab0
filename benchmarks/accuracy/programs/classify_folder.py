"""Batch inference: a ResNeXt-like classifier in half precision over many images, embeddings collected on the host."""

import argparse

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Images(Dataset):
    def __init__(self, count, size):
        self.count, self.raw = count, torch.randint(0, 256, (3, size, size), dtype=torch.uint8)

    def __len__(self):
        return self.count

    def __getitem__(self, i):
        return {"pixels": self.raw.float() / 255, "id": i}


class GroupedBlock(nn.Module):
    def __init__(self, cin, cout, stride, groups):
        super().__init__()
        mid = cout // 2
        self.conv1, self.bn1 = nn.Conv2d(cin, mid, 1, bias=False), nn.BatchNorm2d(mid)
        self.conv2 = nn.Conv2d(mid, mid, 3, stride, 1, groups=groups, bias=False)
        self.bn2 = nn.BatchNorm2d(mid)
        self.conv3, self.bn3 = nn.Conv2d(mid, cout, 1, bias=False), nn.BatchNorm2d(cout)
        self.down = nn.Conv2d(cin, cout, 1, stride, bias=False) if stride > 1 or cin != cout else None

    def forward(self, x):
        h = torch.relu(self.bn1(self.conv1(x)))
        h = torch.relu(self.bn2(self.conv2(h)))
        h = self.bn3(self.conv3(h))
        return torch.relu(h + (x if self.down is None else self.down(x)))


class ResNeXt(nn.Module):
    def __init__(self, width, depths, groups):
        super().__init__()
        self.stem = nn.Sequential(
            nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64), nn.ReLU(), nn.MaxPool2d(3, 2, 1)
        )
        cin, blocks = 64, []
        for stage, depth in enumerate(depths):
            for i in range(depth):
                cout = width * 2**stage
                blocks.append(GroupedBlock(cin, cout, 2 if stage and i == 0 else 1, groups))
                cin = cout
        self.blocks = nn.Sequential(*blocks)
        self.fc = nn.Linear(cin, 1000)

    def forward(self, x):
        features = self.blocks(self.stem(x)).mean((2, 3))
        return self.fc(features), features


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--steps", type=int, default=5)
    parser.add_argument("--size", type=int, default=224)
    parser.add_argument("--width", type=int, default=256)
    parser.add_argument("--depths", type=int, nargs=4, default=[3, 4, 6, 3])
    parser.add_argument("--groups", type=int, default=32)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--half", action="store_true")
    parser.add_argument("--channels-last", action="store_true")
    parser.add_argument("--keep-on-gpu", action="store_true", help="collect the embeddings on the GPU until the end")
    args = parser.parse_args()

    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    model = ResNeXt(args.width, args.depths, args.groups).eval().to(device)
    if args.half:
        model = model.half()
    if args.channels_last:
        model = model.to(memory_format=torch.channels_last)
    loader = DataLoader(
        Images(args.batch_size * args.steps, args.size), args.batch_size, num_workers=args.workers, pin_memory=True
    )
    embeddings, labels = [], []
    with torch.inference_mode():
        for batch in loader:
            pixels = batch["pixels"].to(device, non_blocking=True)
            if args.half:
                pixels = pixels.half()
            if args.channels_last:
                pixels = pixels.to(memory_format=torch.channels_last)
            logits, features = model(pixels)
            confidence, label = logits.float().softmax(-1).topk(5)
            labels += label[:, 0].tolist()
            embeddings.append(features if args.keep_on_gpu else features.cpu())
    table = torch.cat(embeddings)
    print(f"{len(labels)} images, embeddings {tuple(table.shape)}, mean confidence {confidence.mean().item():.3f}")


if __name__ == "__main__":
    main()
