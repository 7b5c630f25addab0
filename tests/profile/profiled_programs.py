"""Programs of a second for tests of the profiler, and the command to profile them."""

import os
import subprocess
import sys
from pathlib import Path
from textwrap import dedent

TRAINING = """
import sys
import torch
from torch import nn
torch.set_num_threads(1)
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body, self.head = nn.Linear(64, 64), nn.Linear(64, 4)
    def forward(self, x):
        return self.head(self.body(x).relu())
model = Net()
optimizer = torch.optim.Adam(model.parameters())
data = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(torch.randn(32 * 40, 64)), batch_size=32)
for (batch,) in data:
    optimizer.zero_grad()
    model(batch).sum().backward()
    optimizer.step()
print("finished", *sys.argv[1:])
"""
INFERENCE = """
import torch
from torch import nn
torch.set_num_threads(1)
encoder, decoder = nn.Linear(8, 8), nn.Linear(8, 8)
with torch.no_grad():
    for text in range(40):
        hidden = encoder(torch.ones(4, 8))
        for token in range(3):
            hidden = decoder(hidden)
"""
MAIN = [sys.executable, "-m", "tonnage.cli.main", "profile"]
SHORT = ["--warmup", "2", "--steps", "3"]


def write(folder: Path, text: str, name: str = "train.py") -> Path:
    path = folder / name
    path.write_text(dedent(text))
    return path


def run(folder: Path, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*MAIN, *arguments], cwd=folder, capture_output=True, text=True, timeout=120, check=False,
        env={**os.environ, "NO_COLOR": "1", **environment},
    )  # fmt: skip


TWO_OPTIMIZERS = """
import torch
torch.set_num_threads(1)
maker, judge = torch.nn.Linear(8, 8), torch.nn.Linear(8, 1)
first, second = (torch.optim.Adam(part.parameters()) for part in (judge, maker))
for _ in range(40):
    judge(maker(torch.ones(4, 8)).detach()).sum().backward()
    first.step()
    judge(maker(torch.ones(4, 8))).sum().backward()
    second.step()
"""
BY_HAND = """
import torch
torch.set_num_threads(1)
model = torch.nn.Linear(8, 8)
for _ in range(40):
    model(torch.ones(4, 8)).sum().backward()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter -= 0.1 * parameter.grad
            parameter.grad = None
"""
CLOSURE = """
import torch
torch.set_num_threads(1)
model = torch.nn.Linear(8, 1)
optimizer = torch.optim.LBFGS(model.parameters(), lr=0.01, max_iter=2, max_eval=2, tolerance_change=0, tolerance_grad=0)
def closure():
    optimizer.zero_grad()
    loss = model(torch.ones(4, 8)).square().sum()
    loss.backward()
    return loss
for _ in range(40):
    optimizer.step(closure)
"""
WORKERS = TRAINING.replace("batch_size=32)", "batch_size=32, num_workers=1)")
