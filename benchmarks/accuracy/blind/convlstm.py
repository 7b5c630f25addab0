"""Next-frame prediction with stacked convolutional LSTMs (Shi et al. 2015): encodes ten frames, forecasts ten."""

import argparse

import torch
from torch import nn


class ConvLSTMCell(nn.Module):
    def __init__(self, cin, hidden, kernel):
        super().__init__()
        self.hidden = hidden
        self.gates = nn.Conv2d(cin + hidden, 4 * hidden, kernel, padding=kernel // 2)
        self.norm = nn.GroupNorm(4 * hidden // 32, 4 * hidden)

    def forward(self, x, state):
        h, c = state
        i, f, o, g = torch.chunk(self.norm(self.gates(torch.cat([x, h], dim=1))), 4, dim=1)
        c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
        h = torch.sigmoid(o) * torch.tanh(c)
        return h, (h, c)

    def zero_state(self, x):
        shape = (x.size(0), self.hidden, x.size(-2), x.size(-1))
        return torch.zeros(shape, device=x.device), torch.zeros(shape, device=x.device)


class Forecaster(nn.Module):
    def __init__(self, hidden, layers, kernel):
        super().__init__()
        self.patchify = nn.PixelUnshuffle(4)
        self.cells = nn.ModuleList(ConvLSTMCell(16 if i == 0 else hidden, hidden, kernel) for i in range(layers))
        self.out = nn.Sequential(nn.Conv2d(hidden, 16, 1), nn.PixelShuffle(4))

    def step(self, frame, states):
        x = self.patchify(frame)
        if states is None:
            states = [cell.zero_state(x) for cell in self.cells]
        following = []
        for cell, state in zip(self.cells, states, strict=True):
            x, state = cell(x, state)
            following.append(state)
        return self.out(x), following

    def forward(self, frames, horizon):
        states = None
        for t in range(frames.shape[1]):
            prediction, states = self.step(frames[:, t], states)
        predictions = [prediction]
        for _ in range(horizon - 1):
            prediction, states = self.step(torch.sigmoid(predictions[-1]), states)
            predictions.append(prediction)
        return torch.stack(predictions, dim=1)


def moving_squares(count, length, size):
    """A bright square that drifts to the right in each sequence."""
    video = torch.zeros(count, length, 1, size, size)
    for n in range(count):
        for t in range(length):
            left = (3 * n + t) % (size - size // 4)
            video[n, t, 0, size // 3 : size // 2, left : left + size // 4] = 1.0
    return video


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--batch-size", type=int, default=8)
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--size", type=int, default=64)
    parser.add_argument("--observed", type=int, default=10)
    parser.add_argument("--horizon", type=int, default=10)
    parser.add_argument("--hidden", type=int, default=64)
    parser.add_argument("--layers", type=int, default=3)
    parser.add_argument("--kernel", type=int, default=5)
    parser.add_argument("--fp16", action="store_true")
    args = parser.parse_args()

    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    video = moving_squares(args.batch_size, args.observed + args.horizon, args.size)
    model = Forecaster(args.hidden, args.layers, args.kernel).to(device)
    optimizer = torch.optim.RMSprop(model.parameters(), lr=1e-3, alpha=0.9)
    scaler = torch.amp.GradScaler(device.type, enabled=args.fp16)
    criterion = nn.BCEWithLogitsLoss()
    for step in range(args.steps):
        batch = video.to(device)
        past, future = batch[:, : args.observed], batch[:, args.observed :]
        with torch.autocast(device.type, dtype=torch.float16, enabled=args.fp16):
            loss = criterion(model(past, args.horizon), future)
        optimizer.zero_grad()
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        print(f"{step} bce {loss.item():.5f}", flush=True)


if __name__ == "__main__":
    main()
