"""Raw audio with dilated causal 1-D convolutions (van den Oord et al. 2016), mu-law classes."""

import argparse

import torch
import torch.nn.functional as F
from torch import nn


class ResidualLayer(nn.Module):
    def __init__(self, channels, skip, dilation):
        super().__init__()
        self.dilation = dilation
        self.filter_gate = nn.Conv1d(channels, 2 * channels, 2, dilation=dilation)
        self.residual = nn.Conv1d(channels, channels, 1)
        self.skip = nn.Conv1d(channels, skip, 1)

    def forward(self, x):
        h = self.filter_gate(F.pad(x, (self.dilation, 0)))
        a, b = h.chunk(2, dim=1)
        h = torch.tanh(a) * torch.sigmoid(b)
        return x + self.residual(h), self.skip(h)


class WaveNet(nn.Module):
    def __init__(self, classes=256, channels=64, skip=256, cycles=3, layers=10):
        super().__init__()
        self.embed = nn.Embedding(classes, channels)
        self.layers = nn.ModuleList(
            ResidualLayer(channels, skip, 2**layer) for _ in range(cycles) for layer in range(layers)
        )
        self.out1, self.out2 = nn.Conv1d(skip, skip, 1), nn.Conv1d(skip, classes, 1)

    def forward(self, codes):
        x = self.embed(codes).transpose(1, 2)
        total = 0
        for layer in self.layers:
            x, skip = layer(x)
            total = total + skip
        return self.out2(F.relu(self.out1(F.relu(total))))


def mu_law(audio, classes=256):
    mu = classes - 1
    squeezed = torch.sign(audio) * torch.log1p(mu * audio.abs()) / torch.log1p(torch.tensor(float(mu)))
    return ((squeezed + 1) / 2 * mu + 0.5).long()


def run(args):
    device = "cuda" if torch.cuda.is_available() else "cpu"
    net = WaveNet(channels=args.channels, skip=args.skip, cycles=args.cycles, layers=args.layers).to(device)
    opt = torch.optim.Adam(net.parameters(), 1e-3, amsgrad=True)
    time = torch.arange(args.samples + 1) / 16000
    for step in range(args.steps):
        pitch = 100 + 400 * torch.rand(args.batch_size, 1)
        codes = mu_law(torch.sin(2 * torch.pi * pitch * time)).to(device)
        with torch.autocast(device, dtype=torch.bfloat16, enabled=args.bf16):
            logits = net(codes[:, :-1])
        loss = F.cross_entropy(logits.float(), codes[:, 1:])
        for p in net.parameters():
            p.grad = None
        loss.backward()
        torch.nn.utils.clip_grad_value_(net.parameters(), 1.0)
        opt.step()
        print(f"{step:4d} {loss:.4f}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--batch-size", type=int, default=4)
    parser.add_argument("--steps", type=int, default=5)
    parser.add_argument("--samples", type=int, default=8000)
    parser.add_argument("--channels", type=int, default=64)
    parser.add_argument("--skip", type=int, default=256)
    parser.add_argument("--cycles", type=int, default=3)
    parser.add_argument("--layers", type=int, default=10)
    parser.add_argument("--bf16", action="store_true")
    run(parser.parse_args())
