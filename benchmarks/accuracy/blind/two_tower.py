"""Retrieval with two towers: bags of history items against candidate items, in-batch sampled softmax, sparse gradients."""

import argparse

import torch
import torch.nn.functional as F
from torch import nn


class UserTower(nn.Module):
    def __init__(self, items, countries, dim, hidden, sparse):
        super().__init__()
        self.history = nn.EmbeddingBag(items, dim, mode="mean", sparse=sparse)
        self.country = nn.Embedding(countries, 16)
        self.mlp = nn.Sequential(nn.Linear(dim + 16 + 4, hidden), nn.ReLU(), nn.Linear(hidden, dim))

    def forward(self, history, country, dense):
        features = torch.cat([self.history(history), self.country(country), dense], dim=1)
        return F.normalize(self.mlp(features), dim=1)


class ItemTower(nn.Module):
    def __init__(self, items, tags, dim, hidden, sparse):
        super().__init__()
        self.item = nn.Embedding(items, dim, sparse=sparse)
        self.tags = nn.EmbeddingBag(tags, dim, mode="sum")
        self.mlp = nn.Sequential(nn.Linear(2 * dim, hidden), nn.ReLU(), nn.Linear(hidden, dim))

    def forward(self, item, tags, offsets):
        return F.normalize(self.mlp(torch.cat([self.item(item), self.tags(tags, offsets)], dim=1)), dim=1)


def make_batch(args, generator):
    def integers(high, *shape):
        return torch.randint(high, shape, generator=generator)

    tags_each = 3
    user = (
        integers(args.items, args.batch_size, args.history),
        integers(200, args.batch_size),
        torch.rand(args.batch_size, 4, generator=generator),
    )
    item = (
        integers(args.items, args.batch_size),
        integers(args.tags, args.batch_size * tags_each),
        torch.arange(0, args.batch_size * tags_each, tags_each),
    )
    return user, item


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--batch-size", type=int, default=4096)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--items", type=int, default=500000)
    parser.add_argument("--tags", type=int, default=20000)
    parser.add_argument("--history", type=int, default=20)
    parser.add_argument("--dim", type=int, default=64)
    parser.add_argument("--hidden", type=int, default=256)
    parser.add_argument("--temperature", type=float, default=0.05)
    parser.add_argument("--sparse", action="store_true")
    args = parser.parse_args()

    device = "cuda" if torch.cuda.is_available() else "cpu"
    generator = torch.Generator().manual_seed(7)
    users = UserTower(args.items, 200, args.dim, args.hidden, args.sparse).to(device)
    items = ItemTower(args.items, args.tags, args.dim, args.hidden, args.sparse).to(device)
    everything = [*users.parameters(), *items.parameters()]
    if args.sparse:
        large = [users.history.weight, items.item.weight]
        names = {id(p) for p in large}
        optimizers = [
            torch.optim.SparseAdam(large, lr=1e-3),
            torch.optim.Adam([p for p in everything if id(p) not in names], lr=1e-3),
        ]
    else:
        optimizers = [torch.optim.Adagrad(everything, lr=0.05)]

    batches = [make_batch(args, generator) for _ in range(2)]
    for step in range(args.steps):
        user, item = batches[step % 2]
        user, item = [t.to(device) for t in user], [t.to(device) for t in item]
        scores = users(*user) @ items(*item).T / args.temperature
        # the same item twice in a batch is not a negative of itself
        same = item[0][:, None] == item[0][None, :]
        same.fill_diagonal_(False)
        scores = scores.masked_fill(same, -1e4)
        loss = F.cross_entropy(scores, torch.arange(args.batch_size, device=device))
        for optimizer in optimizers:
            optimizer.zero_grad()
        loss.backward()
        for optimizer in optimizers:
            optimizer.step()
        if step % 10 == 0:
            hits = (scores.argmax(1) == torch.arange(args.batch_size, device=device)).float().mean()
            print(f"{step}: loss {loss.item():.4f}, recall@1 {hits.item():.4f}")


if __name__ == "__main__":
    main()
