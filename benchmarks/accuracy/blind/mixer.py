"""MLP-Mixer (Tolstikhin et al. 2021) with stochastic depth and mixup."""

import argparse

import torch
import torch.nn.functional as F
from torch import nn

MODELS = {  # patch, depth, dimension, token MLP, channel MLP
    "nano": (16, 2, 32, 16, 64),
    "s16": (16, 8, 512, 256, 2048),
    "b16": (16, 12, 768, 384, 3072),
    "l16": (16, 24, 1024, 512, 4096),
}


class DropPath(nn.Module):
    def __init__(self, p):
        super().__init__()
        self.p = p

    def forward(self, x):
        if not self.training or self.p == 0.0:
            return x
        keep = x.new_empty(x.shape[0], 1, 1).bernoulli_(1 - self.p)
        return x * keep / (1 - self.p)


class Mlp(nn.Module):
    def __init__(self, dim, hidden):
        super().__init__()
        self.fc1, self.fc2 = nn.Linear(dim, hidden), nn.Linear(hidden, dim)

    def forward(self, x):
        return self.fc2(F.gelu(self.fc1(x)))


class MixerBlock(nn.Module):
    def __init__(self, dim, tokens, token_mlp, channel_mlp, drop_path):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(dim, eps=1e-6), nn.LayerNorm(dim, eps=1e-6)
        self.mlp_tokens, self.mlp_channels = Mlp(tokens, token_mlp), Mlp(dim, channel_mlp)
        self.drop_path = DropPath(drop_path)

    def forward(self, x):
        x = x + self.drop_path(self.mlp_tokens(self.norm1(x).transpose(1, 2)).transpose(1, 2))
        return x + self.drop_path(self.mlp_channels(self.norm2(x)))


class Mixer(nn.Module):
    def __init__(self, name, image_size, num_classes, drop_path=0.1):
        super().__init__()
        patch, depth, dim, token_mlp, channel_mlp = MODELS[name]
        tokens = (image_size // patch) ** 2
        self.stem = nn.Conv2d(3, dim, kernel_size=patch, stride=patch)
        self.blocks = nn.Sequential(
            *[MixerBlock(dim, tokens, token_mlp, channel_mlp, drop_path * i / depth) for i in range(depth)]
        )
        self.norm, self.head = nn.LayerNorm(dim, eps=1e-6), nn.Linear(dim, num_classes)

    def forward(self, x):
        x = self.stem(x).flatten(2).transpose(1, 2)
        return self.head(self.norm(self.blocks(x)).mean(dim=1))


def soft_cross_entropy(logits, target):
    return torch.sum(-target * F.log_softmax(logits, dim=-1), dim=-1).mean()


def mixup(images, labels, num_classes, lam):
    target = F.one_hot(labels, num_classes).float()
    return images * lam + images.flip(0) * (1 - lam), target * lam + target.flip(0) * (1 - lam)


def parse():
    parser = argparse.ArgumentParser("mixer")
    parser.add_argument("--model", choices=list(MODELS), default="s16")
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--img-size", type=int, default=224)
    parser.add_argument("--num-classes", type=int, default=1000)
    parser.add_argument("--opt", choices=["adamw", "nadam", "radam"], default="adamw")
    parser.add_argument("--amp", action="store_true", help="bfloat16")
    return parser.parse_args()


def run(args):
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    torch.set_float32_matmul_precision("high")
    model = Mixer(args.model, args.img_size, args.num_classes).to(device)
    print(f"{sum(p.numel() for p in model.parameters()) / 1e6:.1f} M parameters")
    factory = {"adamw": torch.optim.AdamW, "nadam": torch.optim.NAdam, "radam": torch.optim.RAdam}[args.opt]
    optimizer = factory(model.parameters(), lr=1e-3, weight_decay=0.05)
    images = torch.randn(args.batch_size, 3, args.img_size, args.img_size, device=device)
    labels = torch.randint(args.num_classes, (args.batch_size,), device=device)
    for step in range(args.steps):
        mixed, target = mixup(images, labels, args.num_classes, 0.7)
        with torch.autocast(device.type, torch.bfloat16, enabled=args.amp):
            loss = soft_cross_entropy(model(mixed), target)
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), max_norm=1.0)
        optimizer.step()
        if step % 20 == 0:
            print(step, f"{loss.item():.4f}")


if __name__ == "__main__":
    run(parse())
