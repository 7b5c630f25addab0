"""A small training program for a look at the benchmark on a machine without a GPU."""

import argparse

import torch
from torch import nn

if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--width", type=int, default=256)
    parser.add_argument("--steps", type=int, default=100)
    options = parser.parse_args()
    torch.set_num_threads(1)
    model = nn.Sequential(*(nn.Linear(options.width, options.width) for _ in range(4)))
    optimizer = torch.optim.Adam(model.parameters())
    for _ in range(options.steps):
        optimizer.zero_grad()
        model(torch.randn(256, options.width)).square().mean().backward()
        optimizer.step()
