"""Temporal convolutional network (Bai et al. 2018) on the adding problem: causal dilated convolutions with weight norm."""

import argparse

import torch
from torch import nn
from torch.nn.utils.parametrizations import weight_norm


class Chomp1d(nn.Module):
    def __init__(self, size):
        super().__init__()
        self.size = size

    def forward(self, x):
        return x[:, :, : -self.size].contiguous()


class TemporalBlock(nn.Module):
    def __init__(self, cin, cout, kernel, dilation, dropout):
        super().__init__()
        padding = (kernel - 1) * dilation
        self.conv1 = weight_norm(nn.Conv1d(cin, cout, kernel, padding=padding, dilation=dilation))
        self.conv2 = weight_norm(nn.Conv1d(cout, cout, kernel, padding=padding, dilation=dilation))
        self.net = nn.Sequential(
            self.conv1, Chomp1d(padding), nn.ReLU(), nn.Dropout(dropout),
            self.conv2, Chomp1d(padding), nn.ReLU(), nn.Dropout(dropout),
        )  # fmt: skip
        self.downsample = nn.Conv1d(cin, cout, 1) if cin != cout else None
        self.relu = nn.ReLU()

    def forward(self, x):
        residual = x if self.downsample is None else self.downsample(x)
        return self.relu(self.net(x) + residual)


class TCN(nn.Module):
    def __init__(self, inputs, hidden, levels, kernel, dropout):
        super().__init__()
        sizes = [inputs] + [hidden] * levels
        self.network = nn.Sequential(
            *(TemporalBlock(sizes[i], sizes[i + 1], kernel, 2**i, dropout) for i in range(levels))
        )
        self.linear = nn.Linear(hidden, 1)

    def forward(self, x):
        return self.linear(self.network(x)[:, :, -1])


def adding_problem(count, length):
    values = torch.rand(count, 1, length)
    marks = torch.zeros(count, 1, length)
    marks[:, 0, length // 4] = 1
    marks[:, 0, length // 2] = 1
    return torch.cat((values, marks), dim=1), (values * marks).sum(dim=2)


parser = argparse.ArgumentParser(description="the adding problem")
parser.add_argument("--batch-size", type=int, default=32)
parser.add_argument("--steps", type=int, default=100)
parser.add_argument("--seq-len", type=int, default=400)
parser.add_argument("--hidden", type=int, default=30)
parser.add_argument("--levels", type=int, default=8)
parser.add_argument("--ksize", type=int, default=7)
parser.add_argument("--dropout", type=float, default=0.0)
parser.add_argument("--clip", type=float, default=-1)
parser.add_argument("--optim", choices=["Adam", "SGD", "Rprop"], default="Adam")
parser.add_argument("--log-interval", type=int, default=100)
args = parser.parse_args()

torch.manual_seed(1111)
device = "cuda" if torch.cuda.is_available() else "cpu"
X_train, Y_train = adding_problem(4 * args.batch_size, args.seq_len)
X_train, Y_train = X_train.to(device), Y_train.to(device)
model = TCN(2, args.hidden, args.levels, args.ksize, args.dropout).to(device)
optimizer = getattr(torch.optim, args.optim)(model.parameters(), lr=4e-3)

model.train()
total_loss = 0
for step in range(1, args.steps + 1):
    start = (step - 1) % 4 * args.batch_size
    x, y = X_train[start : start + args.batch_size], Y_train[start : start + args.batch_size]
    optimizer.zero_grad()
    loss = nn.functional.mse_loss(model(x), y)
    loss.backward()
    if args.clip > 0:
        torch.nn.utils.clip_grad_norm_(model.parameters(), args.clip)
    optimizer.step()
    total_loss += loss.item()
    if step % args.log_interval == 0:
        print(f"step {step} loss {total_loss / args.log_interval:.6f}")
        total_loss = 0
print("done")
