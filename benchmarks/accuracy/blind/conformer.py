"""Conformer acoustic model (Gulati et al. 2020): relative-free attention, convolution modules, frame labels."""

import argparse

import torch
import torch.nn as nn


class FeedForwardModule(nn.Sequential):
    def __init__(self, dim, expansion=4, p=0.1):
        super().__init__(
            nn.LayerNorm(dim),
            nn.Linear(dim, dim * expansion),
            nn.SiLU(),
            nn.Dropout(p),
            nn.Linear(dim * expansion, dim),
            nn.Dropout(p),
        )


class ConvolutionModule(nn.Module):
    def __init__(self, dim, kernel, p=0.1):
        super().__init__()
        self.layer_norm = nn.LayerNorm(dim)
        self.pointwise_in = nn.Conv1d(dim, 2 * dim, 1)
        self.glu = nn.GLU(dim=1)
        self.depthwise = nn.Conv1d(dim, dim, kernel, padding=(kernel - 1) // 2, groups=dim)
        self.batch_norm = nn.BatchNorm1d(dim)
        self.swish = nn.SiLU()
        self.pointwise_out = nn.Conv1d(dim, dim, 1)
        self.dropout = nn.Dropout(p)

    def forward(self, x):
        x = self.layer_norm(x).transpose(1, 2)
        x = self.glu(self.pointwise_in(x))
        x = self.swish(self.batch_norm(self.depthwise(x)))
        return self.dropout(self.pointwise_out(x)).transpose(1, 2)


class ConformerBlock(nn.Module):
    def __init__(self, dim, heads, kernel):
        super().__init__()
        self.ff1, self.ff2 = FeedForwardModule(dim), FeedForwardModule(dim)
        self.attention_norm = nn.LayerNorm(dim)
        self.attention = nn.MultiheadAttention(dim, heads, dropout=0.1, batch_first=True)
        self.conv = ConvolutionModule(dim, kernel)
        self.final_norm = nn.LayerNorm(dim)

    def forward(self, x, padding):
        x = x + 0.5 * self.ff1(x)
        normed = self.attention_norm(x)
        x = x + self.attention(normed, normed, normed, key_padding_mask=padding, need_weights=False)[0]
        x = x + self.conv(x)
        return self.final_norm(x + 0.5 * self.ff2(x))


class Conformer(nn.Module):
    def __init__(self, mels, dim, heads, layers, kernel, targets):
        super().__init__()
        self.subsample = nn.Sequential(nn.Conv2d(1, dim, 3, 2), nn.ReLU(), nn.Conv2d(dim, dim, 3, 2), nn.ReLU())
        frequencies = ((mels - 1) // 2 - 1) // 2
        self.input = nn.Sequential(nn.Linear(dim * frequencies, dim), nn.Dropout(0.1))
        self.blocks = nn.ModuleList([ConformerBlock(dim, heads, kernel) for _ in range(layers)])
        self.output = nn.Linear(dim, targets)

    def forward(self, features, lengths):
        x = self.subsample(features.unsqueeze(1))
        b, c, t, f = x.shape
        x = self.input(x.permute(0, 2, 1, 3).reshape(b, t, c * f))
        lengths = ((lengths - 1) // 2 - 1) // 2
        padding = torch.arange(t, device=x.device)[None, :] >= lengths[:, None]
        for block in self.blocks:
            x = block(x, padding)
        return self.output(x)


def noam(step, dim, warmup=10000):
    step = max(step, 1)
    return dim**-0.5 * min(step**-0.5, step * warmup**-1.5)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--batch-size", type=int, default=8)
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--frames", type=int, default=800)
    parser.add_argument("--mels", type=int, default=80)
    parser.add_argument("--dim", type=int, default=256)
    parser.add_argument("--heads", type=int, default=4)
    parser.add_argument("--layers", type=int, default=12)
    parser.add_argument("--kernel", type=int, default=31)
    parser.add_argument("--targets", type=int, default=1000)
    parser.add_argument("--accum", type=int, default=1)
    parser.add_argument("--amp", action="store_true")
    args = parser.parse_args()

    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    model = Conformer(args.mels, args.dim, args.heads, args.layers, args.kernel, args.targets).to(device)
    model.train()
    optimizer = torch.optim.Adam(model.parameters(), lr=5.0, betas=(0.9, 0.98), eps=1e-9, weight_decay=1e-6)
    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda s: noam(s, args.dim))
    criterion = nn.CrossEntropyLoss(ignore_index=-100)
    features = torch.randn(args.batch_size, args.frames, args.mels)
    lengths = torch.linspace(args.frames * 0.7, args.frames, args.batch_size).long()
    out = ((args.frames - 1) // 2 - 1) // 2
    labels = torch.randint(0, args.targets, (args.batch_size, out))
    for step in range(args.steps):
        for _ in range(args.accum):
            x, n, y = features.to(device), lengths.to(device), labels.to(device)
            with torch.autocast(device.type, dtype=torch.bfloat16, enabled=args.amp):
                logits = model(x, n)
                loss = criterion(logits.transpose(1, 2), y) / args.accum
            loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 5.0)
        optimizer.step()
        optimizer.zero_grad()
        scheduler.step()
        if step % 5 == 0:
            print(f"step {step} | loss {args.accum * loss.item():.3f} | lr {scheduler.get_last_lr()[0]:.2e}")


if __name__ == "__main__":
    main()
