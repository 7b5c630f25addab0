"""GraphSAGE node classification (Hamilton et al. 2017) on a full random graph, neighbours averaged with scatters."""

import argparse

import torch
import torch.nn.functional as F
from torch.nn import BatchNorm1d, Linear, Module, ModuleList


class SAGEConv(Module):
    def __init__(self, cin, cout, aggregate):
        super().__init__()
        self.self_linear = Linear(cin, cout)
        self.neighbour_linear = Linear(cin, cout, bias=False)
        self.aggregate = aggregate

    def forward(self, x, edges, degree):
        source, target = edges
        messages = x[source]
        if self.aggregate == "mean":
            pooled = torch.zeros_like(x).index_add_(0, target, messages) / degree[:, None]
        else:
            index = target[:, None].expand_as(messages)
            pooled = torch.zeros_like(x).scatter_reduce(0, index, messages, reduce="amax", include_self=False)
        return F.normalize(self.self_linear(x) + self.neighbour_linear(pooled), dim=-1)


class GraphSAGE(Module):
    def __init__(self, features, hidden, classes, layers, aggregate):
        super().__init__()
        sizes = [features] + [hidden] * (layers - 1) + [classes]
        self.convs = ModuleList(SAGEConv(sizes[i], sizes[i + 1], aggregate) for i in range(layers))
        self.norms = ModuleList(BatchNorm1d(hidden) for _ in range(layers - 1))

    def forward(self, x, edges, degree):
        for conv, norm in zip(self.convs[:-1], self.norms, strict=True):
            x = F.dropout(F.relu(norm(conv(x, edges, degree))), 0.5, self.training)
        return self.convs[-1](x, edges, degree)


def random_graph(nodes, degree, features, classes):
    generator = torch.Generator().manual_seed(3)
    target = torch.arange(nodes).repeat_interleave(degree)
    source = torch.randint(nodes, (nodes * degree,), generator=generator)
    x = torch.randn(nodes, features, generator=generator)
    y = torch.randint(classes, (nodes,), generator=generator)
    return x, torch.stack([source, target]), y


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--batch-size", type=int, default=2048, help="labelled nodes that count in the loss")
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--nodes", type=int, default=20000)
    parser.add_argument("--degree", type=int, default=15)
    parser.add_argument("--features", type=int, default=128)
    parser.add_argument("--hidden", type=int, default=256)
    parser.add_argument("--layers", type=int, default=3)
    parser.add_argument("--aggregate", choices=["mean", "max"], default="mean")
    args = parser.parse_args()

    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    x, edges, y = (t.to(device) for t in random_graph(args.nodes, args.degree, args.features, 47))
    degree = torch.zeros(args.nodes, device=device)
    degree.scatter_add_(0, edges[1], torch.ones(edges.shape[1], device=device))
    model = GraphSAGE(args.features, args.hidden, 47, args.layers, args.aggregate).to(device)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.003, weight_decay=5e-4)
    labelled = torch.arange(args.batch_size, device=device)
    for epoch in range(args.steps):
        model.train()
        optimizer.zero_grad()
        out = model(x, edges, degree)
        loss = F.cross_entropy(out[labelled], y[labelled])
        loss.backward()
        optimizer.step()
        print(f"Epoch {epoch:03d}, loss {loss.item():.4f}")


if __name__ == "__main__":
    main()
