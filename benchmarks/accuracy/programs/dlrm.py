"""Click prediction with embedding bags and pairwise interactions (Naumov et al. 2019), Adagrad."""

import argparse
from itertools import pairwise

import numpy as np
import torch
import torch.nn as nn


def mlp(sizes, last_relu=True):
    layers = []
    for i, (a, b) in enumerate(pairwise(sizes)):
        layers.append(nn.Linear(a, b))
        if last_relu or i < len(sizes) - 2:
            layers.append(nn.ReLU())
    return nn.Sequential(*layers)


class DLRM(nn.Module):
    def __init__(self, dense, tables, rows, dim, bottom, top):
        super().__init__()
        self.bottom = mlp([dense, *bottom, dim])
        self.bags = nn.ModuleList(nn.EmbeddingBag(rows, dim, mode="sum") for _ in range(tables))
        pairs = (tables + 1) * tables // 2
        self.top = mlp([pairs + dim, *top, 1], last_relu=False)
        i, j = np.tril_indices(tables + 1, k=-1)
        self.register_buffer("pairs", torch.from_numpy(np.stack([i, j])))

    def forward(self, dense, indices, offsets):
        x = self.bottom(dense)
        vectors = [x] + [bag(idx, off) for bag, idx, off in zip(self.bags, indices, offsets, strict=True)]
        stacked = torch.stack(vectors, dim=1)
        interactions = torch.bmm(stacked, stacked.transpose(1, 2))
        flat = interactions[:, self.pairs[0], self.pairs[1]]
        return self.top(torch.cat([x, flat], dim=1)).squeeze(1)


def batch(rng, args):
    dense = torch.from_numpy(rng.random((args.batch_size, args.dense), dtype=np.float32))
    indices, offsets = [], []
    for _ in range(args.tables):
        indices.append(torch.from_numpy(rng.integers(0, args.rows, args.batch_size * args.lookups)))
        offsets.append(torch.arange(0, args.batch_size * args.lookups, args.lookups))
    click = torch.from_numpy((rng.random(args.batch_size) < 0.25).astype(np.float32))
    return dense, indices, offsets, click


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--batch-size", type=int, default=2048)
    parser.add_argument("--steps", type=int, default=5)
    parser.add_argument("--tables", type=int, default=8)
    parser.add_argument("--rows", type=int, default=100000)
    parser.add_argument("--dim", type=int, default=64)
    parser.add_argument("--dense", type=int, default=13)
    parser.add_argument("--lookups", type=int, default=10)
    parser.add_argument("--bottom", default="512,256")
    parser.add_argument("--top", default="512,256")
    parser.add_argument("--optimizer", choices=["adagrad", "sgd"], default="adagrad")
    args = parser.parse_args()

    rng = np.random.default_rng(0)
    device = "cuda"
    sizes = [[int(n) for n in text.split(",")] for text in (args.bottom, args.top)]
    model = DLRM(args.dense, args.tables, args.rows, args.dim, *sizes).to(device)
    optimizer = {"adagrad": torch.optim.Adagrad, "sgd": torch.optim.SGD}[args.optimizer](model.parameters(), lr=0.01)
    loss_fn = nn.BCEWithLogitsLoss()
    for step in range(args.steps):
        dense, indices, offsets, click = batch(rng, args)
        dense, click = dense.to(device), click.to(device)
        indices, offsets = [i.to(device) for i in indices], [o.to(device) for o in offsets]
        loss = loss_fn(model(dense, indices, offsets), click)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(f"it {step}/{args.steps} loss {loss.detach().cpu().numpy():.6f}")


if __name__ == "__main__":
    main()
