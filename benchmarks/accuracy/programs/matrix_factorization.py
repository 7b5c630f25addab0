"""Rating prediction by matrix factorisation with biases: two big embeddings and an Adam that loops over parameters."""

import argparse

import torch
from torch import nn


class MF(nn.Module):
    def __init__(self, users, items, rank):
        super().__init__()
        self.u, self.i = nn.Embedding(users, rank), nn.Embedding(items, rank)
        self.bu, self.bi = nn.Embedding(users, 1), nn.Embedding(items, 1)
        self.mean = nn.Parameter(torch.tensor(3.5))
        for table in (self.u, self.i):
            nn.init.normal_(table.weight, std=0.05)

    def forward(self, user, item):
        return (self.u(user) * self.i(item)).sum(-1) + self.bu(user).squeeze(-1) + self.bi(item).squeeze(-1) + self.mean


ap = argparse.ArgumentParser()
ap.add_argument("--users", type=int, default=200_000)
ap.add_argument("--items", type=int, default=50_000)
ap.add_argument("--rank", type=int, default=128)
ap.add_argument("--batch-size", type=int, default=65536)
ap.add_argument("--steps", type=int, default=5)
ap.add_argument("--ratings", type=int, default=1_000_000)
ap.add_argument("--foreach", action="store_true")
args = ap.parse_args()

dev = torch.device("cuda")
# all ratings live on the device; a batch is a gather
user = torch.randint(args.users, (args.ratings,), device=dev)
item = torch.randint(args.items, (args.ratings,), device=dev)
rating = torch.randint(1, 6, (args.ratings,), device=dev).float()

model = MF(args.users, args.items, args.rank).to(dev)
opt = torch.optim.Adam(model.parameters(), lr=1e-3, foreach=args.foreach)
order = torch.randperm(args.ratings, device=dev)
for step in range(args.steps):
    pick = order[(step * args.batch_size) % args.ratings :][: args.batch_size]
    error = model(user[pick], item[pick]) - rating[pick]
    loss = error.pow(2).mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
    if step % 2 == 0:
        print(step, "rmse", loss.sqrt().item())
with torch.no_grad():
    sample = slice(0, min(args.ratings, 4 * args.batch_size))
    mae = (model(user[sample], item[sample]) - rating[sample]).abs().mean()
print(f"MAE {mae:.3f}")
