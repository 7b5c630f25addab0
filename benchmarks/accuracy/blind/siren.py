"""Solves a Poisson equation with a sine network (SIREN, Sitzmann et al. 2020); the Laplacian comes from autograd."""

import argparse
import math

import torch
from torch import nn


class Sine(nn.Module):
    def __init__(self, cin, cout, omega=30.0, first=False):
        super().__init__()
        self.omega = omega
        self.linear = nn.Linear(cin, cout)
        bound = 1 / cin if first else math.sqrt(6 / cin) / omega
        nn.init.uniform_(self.linear.weight, -bound, bound)

    def forward(self, x):
        return torch.sin(self.omega * self.linear(x))


def siren(width, depth):
    return nn.Sequential(Sine(2, width, first=True), *[Sine(width, width) for _ in range(depth)], nn.Linear(width, 1))


def gradient(y, x):
    return torch.autograd.grad(y, x, torch.ones_like(y), create_graph=True)[0]


def laplacian(y, x):
    g = gradient(y, x)
    return sum(gradient(g[..., i], x)[..., i] for i in range(x.shape[-1]))


def source(x):
    return -8 * math.pi**2 * torch.sin(2 * math.pi * x[..., 0]) * torch.sin(2 * math.pi * x[..., 1])


def boundary(count, device):
    side = torch.rand(count, 2, device=device)
    side[: count // 2, 0] = side[: count // 2, 0].round()
    side[count // 2 :, 1] = side[count // 2 :, 1].round()
    return side


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--batch-size", type=int, default=4096, help="points inside")
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--width", type=int, default=256)
    parser.add_argument("--depth", type=int, default=3)
    parser.add_argument("--sgd", action="store_true", help="momentum instead of Adam")
    args = parser.parse_args()
    device = "cuda" if torch.cuda.is_available() else "cpu"
    net = siren(args.width, args.depth).to(device)
    if args.sgd:
        opt = torch.optim.SGD(net.parameters(), lr=1e-6, momentum=0.9)
    else:
        opt = torch.optim.Adam(net.parameters(), lr=1e-4)
    for i in range(args.steps):
        x = torch.rand(args.batch_size, 2, device=device, requires_grad=True)
        residual = (laplacian(net(x), x) - source(x)).square().mean()
        edge = net(boundary(args.batch_size // 8, device)).square().mean()
        loss = 1e-3 * residual + edge
        opt.zero_grad()
        loss.backward()
        opt.step()
        if i % 100 == 0:
            print(f"{i:6d} residual {residual.item():.4g} edge {edge.item():.4g}")
