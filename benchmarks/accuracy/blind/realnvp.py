"""Density estimation with affine couplings (RealNVP, Dinh et al. 2017) on tabular data; small layers, many of them."""

import argparse

import torch
from torch import nn
from torch.distributions import MultivariateNormal
from torch.utils.data import DataLoader, TensorDataset


class ActNorm(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.log_scale = nn.Parameter(torch.zeros(dim))
        self.shift = nn.Parameter(torch.zeros(dim))

    def forward(self, x):
        return (x + self.shift) * self.log_scale.exp(), self.log_scale.sum().expand(x.shape[0])


class AffineCoupling(nn.Module):
    def __init__(self, dim, hidden, parity):
        super().__init__()
        self.register_buffer("mask", (torch.arange(dim) % 2 == parity).float())
        self.scale_net = self.network(dim, hidden, nn.Tanh())
        self.shift_net = self.network(dim, hidden, nn.Identity())

    @staticmethod
    def network(dim, hidden, last):
        return nn.Sequential(
            nn.Linear(dim, hidden), nn.LeakyReLU(), nn.Linear(hidden, hidden), nn.LeakyReLU(),
            nn.Linear(hidden, dim), last,
        )  # fmt: skip

    def forward(self, x):
        kept = x * self.mask
        s = self.scale_net(kept) * (1 - self.mask)
        t = self.shift_net(kept) * (1 - self.mask)
        return kept + (1 - self.mask) * (x * torch.exp(s) + t), s.sum(dim=1)


class Flow(nn.Module):
    def __init__(self, dim, hidden, couplings):
        super().__init__()
        self.steps = nn.ModuleList()
        for i in range(couplings):
            self.steps += [ActNorm(dim), AffineCoupling(dim, hidden, i % 2)]
        self.register_buffer("loc", torch.zeros(dim))
        self.register_buffer("eye", torch.eye(dim))

    def log_prob(self, x):
        total = x.new_zeros(x.shape[0])
        for step in self.steps:
            x, log_det = step(x)
            total = total + log_det
        # the matrix is already a Cholesky factor, so nothing is checked or factorised here
        prior = MultivariateNormal(self.loc, scale_tril=self.eye, validate_args=False)
        return prior.log_prob(x) + total


def cycle(loader):
    while True:
        yield from loader


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--batch-size", type=int, default=512)
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--dim", type=int, default=32)
    parser.add_argument("--hidden", type=int, default=128)
    parser.add_argument("--couplings", type=int, default=8)
    parser.add_argument("--rows", type=int, default=65536)
    args = parser.parse_args()

    torch.manual_seed(0)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    rows = torch.randn(args.rows, args.dim) * 0.5 + torch.randn(args.rows, 1)
    loader = DataLoader(TensorDataset(rows), batch_size=args.batch_size, shuffle=True, drop_last=True)
    flow = Flow(args.dim, args.hidden, args.couplings).to(device)
    optimizer = torch.optim.Adamax(flow.parameters(), lr=1e-3)
    scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, gamma=0.9995)
    running = 0.0
    for step, (x,) in enumerate(cycle(loader)):
        if step == args.steps:
            break
        loss = -flow.log_prob(x.to(device)).mean()
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_value_(flow.parameters(), 5.0)
        optimizer.step()
        scheduler.step()
        running = 0.9 * running + 0.1 * loss.item()
    print(f"negative log-likelihood {running:.3f}")


if __name__ == "__main__":
    main()
