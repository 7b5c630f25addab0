"""Point clouds: shared MLPs as 1x1 convolutions and k-nearest-neighbour edge features (after PointNet and DGCNN)."""

import argparse

import torch
import torch.nn as nn
import torch.nn.functional as F


def knn(x, k):
    inner = -2 * torch.matmul(x.transpose(2, 1), x)
    squared = torch.sum(x**2, dim=1, keepdim=True)
    return (-squared - inner - squared.transpose(2, 1)).topk(k=k, dim=-1)[1]


def edge_features(x, k):
    b, c, n = x.shape
    idx = knn(x, k) + torch.arange(b, device=x.device).view(-1, 1, 1) * n
    x = x.transpose(2, 1).contiguous()
    neighbours = x.view(b * n, c)[idx.view(-1)].view(b, n, k, c)
    centre = x.view(b, n, 1, c).repeat(1, 1, k, 1)
    return torch.cat((neighbours - centre, centre), dim=3).permute(0, 3, 1, 2).contiguous()


class EdgeConv(nn.Module):
    def __init__(self, cin, cout, k):
        super().__init__()
        self.k = k
        self.conv = nn.Sequential(nn.Conv2d(2 * cin, cout, 1, bias=False), nn.BatchNorm2d(cout), nn.LeakyReLU(0.2))

    def forward(self, x):
        return self.conv(edge_features(x, self.k)).max(dim=-1)[0]


class PointNet(nn.Module):
    def __init__(self, classes, k, widths=(64, 64, 128, 256), embed=1024):
        super().__init__()
        self.edge = k > 0
        cin, layers = 3, []
        for w in widths:
            layers.append(
                EdgeConv(cin, w, k) if k else nn.Sequential(nn.Conv1d(cin, w, 1), nn.BatchNorm1d(w), nn.ReLU())
            )
            cin = w
        self.layers = nn.ModuleList(layers)
        self.embed = nn.Sequential(
            nn.Conv1d(sum(widths), embed, 1, bias=False), nn.BatchNorm1d(embed), nn.LeakyReLU(0.2)
        )
        self.head = nn.Sequential(
            nn.Linear(2 * embed, 512), nn.BatchNorm1d(512), nn.ReLU(), nn.Dropout(0.5), nn.Linear(512, classes)
        )

    def forward(self, x):
        outs = []
        for layer in self.layers:
            x = layer(x)
            outs.append(x)
        x = self.embed(torch.cat(outs, dim=1))
        x = torch.cat((F.adaptive_max_pool1d(x, 1).squeeze(-1), F.adaptive_avg_pool1d(x, 1).squeeze(-1)), 1)
        return self.head(x)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--batch-size", type=int, default=16)
    parser.add_argument("--steps", type=int, default=5)
    parser.add_argument("--points", type=int, default=1024)
    parser.add_argument("--k", type=int, default=20, help="neighbours; 0 for plain PointNet")
    parser.add_argument("--embed", type=int, default=1024)
    args = parser.parse_args()

    device = torch.device("cuda")
    model = PointNet(40, args.k, embed=args.embed).to(device)
    opt = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=1e-4)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(opt, 250)
    clouds = torch.rand(args.batch_size, args.points, 3)
    for it in range(args.steps):
        data = (clouds * (0.8 + 0.4 * torch.rand(1, 1, 3))).to(device).permute(0, 2, 1)
        label = torch.randint(40, (args.batch_size,)).to(device)
        opt.zero_grad()
        logits = model(data)
        loss = F.cross_entropy(logits, label, label_smoothing=0.2)
        loss.backward()
        opt.step()
        preds = logits.max(dim=1)[1]
        accuracy = (preds.cpu().numpy() == label.cpu().numpy()).mean()
        print(f"Train {it}, loss: {loss.item():.6f}, train acc: {accuracy:.4f}")
    scheduler.step()
