"""Node classification on a random graph: messages by index, summed with index_add or scatter_reduce."""

import argparse

import torch
import torch.nn.functional as F
from torch import nn


class GraphConv(nn.Module):
    def __init__(self, cin, cout):
        super().__init__()
        self.own, self.neighbours = nn.Linear(cin, cout), nn.Linear(cin, cout, bias=False)

    def forward(self, x, edges, degree):
        source, target = edges
        summed = torch.zeros_like(x).index_add_(0, target, x[source])
        return self.own(x) + self.neighbours(summed / degree.clamp(min=1).unsqueeze(-1))


class GraphAttention(nn.Module):
    """Velickovic et al. 2017, with the softmax over incoming edges written as scatters."""

    def __init__(self, cin, cout, heads=4):
        super().__init__()
        self.heads, self.out = heads, cout // heads
        self.lin = nn.Linear(cin, cout, bias=False)
        self.a_source, self.a_target = (nn.Parameter(torch.randn(heads, cout // heads) * 0.1) for _ in range(2))

    def forward(self, x, edges, degree):  # noqa: ARG002 # same call as GraphConv
        source, target = edges
        h = self.lin(x).view(-1, self.heads, self.out)
        score = F.leaky_relu((h * self.a_source).sum(-1)[source] + (h * self.a_target).sum(-1)[target], 0.2)
        index = target.unsqueeze(-1).expand_as(score)
        largest = torch.full((x.size(0), self.heads), -1e9, device=x.device)
        largest = largest.scatter_reduce(0, index, score, reduce="amax").detach()
        weight = torch.exp(score - largest[target])
        total = torch.zeros_like(largest).scatter_add(0, index, weight)
        weight = weight / (total[target] + 1e-16)
        out = torch.zeros_like(h).index_add(0, target, h[source] * weight.unsqueeze(-1))
        return out.flatten(1)


class GNN(nn.Module):
    def __init__(self, layer, features, hidden, classes, layers):
        super().__init__()
        self.encode = nn.Linear(features, hidden)
        self.layers = nn.ModuleList(layer(hidden, hidden) for _ in range(layers))
        self.norms = nn.ModuleList(nn.BatchNorm1d(hidden) for _ in range(layers))
        self.decode = nn.Linear(hidden, classes)

    def forward(self, x, edges, degree):
        x = self.encode(x)
        for layer, norm in zip(self.layers, self.norms, strict=True):
            x = x + F.dropout(F.relu(norm(layer(x, edges, degree))), 0.5, self.training)
        return self.decode(x)


parser = argparse.ArgumentParser()
parser.add_argument("--batch-size", type=int, default=4, help="graphs joined into one")
parser.add_argument("--steps", type=int, default=5)
parser.add_argument("--nodes", type=int, default=10000)
parser.add_argument("--degree", type=int, default=15)
parser.add_argument("--features", type=int, default=128)
parser.add_argument("--hidden", type=int, default=256)
parser.add_argument("--layers", type=int, default=3)
parser.add_argument("--layer", choices=["conv", "attention"], default="conv")
args = parser.parse_args()

device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
nodes = args.nodes * args.batch_size
edges = torch.randint(nodes, (2, nodes * args.degree)).to(device)
x = torch.randn(nodes, args.features).to(device)
y = torch.randint(40, (nodes,)).to(device)
train_mask = (torch.rand(nodes) < 0.5).to(device)
degree = torch.zeros(nodes, device=device).index_add_(0, edges[1], torch.ones(edges.size(1), device=device))

model = GNN({"conv": GraphConv, "attention": GraphAttention}[args.layer], args.features, args.hidden, 40, args.layers)
model = model.to(device)
optimizer = torch.optim.Adam(model.parameters(), lr=0.01, weight_decay=5e-4)
for epoch in range(args.steps):
    model.train()
    optimizer.zero_grad()
    out = model(x, edges, degree)
    loss = F.cross_entropy(out[train_mask], y[train_mask])  # how many nodes that is, only the device knows
    loss.backward()
    optimizer.step()
    print(f"Epoch: {epoch:03d}, Loss: {loss.item():.4f}")
model.eval()
with torch.no_grad():
    correct = (model(x, edges, degree).argmax(-1) == y)[~train_mask].float().mean()
print("Test:", float(correct))
