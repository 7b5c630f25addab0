"""Time of an estimate beside torch's MemTracker, on the same models in one interleaved run.

    python benchmarks/speed/estimate.py [--repeats 7] [--write]

Each measurement is a fresh process; imports are not counted on either side. MemTracker follows one training step under
FakeTensorMode, the way its documentation shows. Tonnage follows one training step ("one step") or what `tonnage estimate`
does by default ("whole": four steps), and then evaluates every GPU of the catalogue.
"""

from __future__ import annotations

import argparse
import json
import platform
import statistics
import subprocess
import sys
import time
from datetime import date
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F


class Bottleneck(nn.Module):
    def __init__(self, inputs: int, width: int, stride: int) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(inputs, width, 1, bias=False), nn.BatchNorm2d(width), nn.ReLU(True),
            nn.Conv2d(width, width, 3, stride, 1, bias=False), nn.BatchNorm2d(width), nn.ReLU(True),
            nn.Conv2d(width, 4 * width, 1, bias=False), nn.BatchNorm2d(4 * width),
        )  # fmt: skip
        same = stride == 1 and inputs == 4 * width
        self.shortcut = (
            nn.Identity()
            if same
            else nn.Sequential(nn.Conv2d(inputs, 4 * width, 1, stride, bias=False), nn.BatchNorm2d(4 * width))
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.relu(self.body(x) + self.shortcut(x), True)


def resnet50() -> nn.Module:
    layers: list[nn.Module] = [
        nn.Conv2d(3, 64, 7, 2, 3, bias=False),
        nn.BatchNorm2d(64),
        nn.ReLU(True),
        nn.MaxPool2d(3, 2, 1),
    ]
    inputs = 64
    for width, count, stride in ((64, 3, 1), (128, 4, 2), (256, 6, 2), (512, 3, 2)):
        for index in range(count):
            layers.append(Bottleneck(inputs, width, stride if index == 0 else 1))
            inputs = 4 * width
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(2048, 1000))


class Layer(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, length, width = x.shape
        q, k, v = (
            t.view(batch, length, self.heads, -1).transpose(1, 2) for t in self.qkv(self.norm1(x)).split(width, 2)
        )
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(batch, length, width)
        x = x + self.out(mixed)
        return x + self.mlp(self.norm2(x))


class Gpt2Small(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.tokens, self.positions = nn.Embedding(50257, 768), nn.Embedding(1024, 768)
        self.layers = nn.Sequential(*(Layer(768, 12) for _ in range(12)))
        self.norm, self.head = nn.LayerNorm(768), nn.Linear(768, 50257, bias=False)
        self.head.weight = self.tokens.weight

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        x = self.tokens(ids) + self.positions(torch.arange(ids.size(1), device=ids.device))
        return self.head(self.norm(self.layers(x))).flatten(0, 1)


MODELS: dict[str, Any] = {
    "resnet50": (resnet50, lambda: (torch.randn(32, 3, 224, 224), torch.randint(0, 1000, (32,)))),
    "gpt2-small": (Gpt2Small, lambda: (torch.randint(0, 50257, (4, 1024)), torch.randint(0, 50257, (4096,)))),
}


def train(model: nn.Module, optimizer: torch.optim.Optimizer, inputs: torch.Tensor, labels: torch.Tensor) -> None:
    F.cross_entropy(model(inputs), labels).backward()
    optimizer.step()
    optimizer.zero_grad()


def with_memtracker(name: str) -> float:
    from torch._subclasses.fake_tensor import FakeTensorMode
    from torch.distributed._tools.mem_tracker import MemTracker

    build, data = MODELS[name]
    begin = time.perf_counter()
    with FakeTensorMode():
        model = build()
        inputs, labels = data()
        optimizer = torch.optim.AdamW(model.parameters(), foreach=True)
        tracker = MemTracker()
        tracker.track_external(model, optimizer, inputs, labels)
        with tracker:
            train(model, optimizer, inputs, labels)
        tracker.get_tracker_snapshot("peak")
    return time.perf_counter() - begin


def with_tonnage(name: str, steps: int) -> float:
    import torch.fx.experimental.symbolic_shapes

    from tonnage.estimate.estimator import estimate_trace
    from tonnage.hardware import all_gpus, find_gpu
    from tonnage.program.capture import pretended
    from tonnage.program.virtual_gpu.child import VirtualGpu
    from tonnage.program.virtual_gpu.loop import EnoughSeen

    build, data = MODELS[name]
    gpus = all_gpus()
    gpu = pretended(find_gpu("H200"))
    begin = time.perf_counter()
    virtual = VirtualGpu(steps, gpu)
    try:
        with virtual:
            model = build().to("cuda")
            inputs, labels = (tensor.to("cuda") for tensor in data())
            optimizer = torch.optim.AdamW(model.parameters())
            for _ in range(steps):
                train(model, optimizer, inputs, labels)
    except EnoughSeen:
        pass
    trace = virtual.recorder.trace(virtual.origin({"name": name, "kind": "script", "gpu": gpu}))
    estimate_trace(trace, gpus, curve=False)
    return time.perf_counter() - begin


WAYS = {
    "MemTracker, one step": lambda name: with_memtracker(name),
    "Tonnage, one step, all GPUs": lambda name: with_tonnage(name, 1),
    "Tonnage, whole estimate, all GPUs": lambda name: with_tonnage(name, 4),
}


def measure(name: str, way: str) -> float:
    command = [sys.executable, __file__, "--child", name, way]
    result = subprocess.run(command, capture_output=True, text=True, check=True)
    return float(result.stdout.split()[-1])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--write", action="store_true", help="write the rows to results/")
    parser.add_argument("--child", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        print(WAYS[options.child[1]](options.child[0]))
        return
    rows = [{"torch": torch.__version__, "python": platform.python_version(), "machine": platform.processor() or platform.machine(),
             "date": date.today().isoformat()}]  # fmt: skip
    for name in MODELS:
        times: dict[str, list[float]] = {way: [] for way in WAYS}
        for _ in range(options.repeats):  # interleaved: whatever else the machine does hits all alike
            for way in WAYS:
                times[way].append(measure(name, way))
        reference = statistics.median(times["MemTracker, one step"])
        for way, seconds in times.items():
            median = statistics.median(seconds)
            rows.append({"model": name, "way": way, "seconds": seconds, "median": median, "share": median / reference})
            print(f"{name:12} {way:36} {median:7.3f} s   {100 * median / reference:6.1f} % of MemTracker")
    if options.write:
        target = Path(__file__).parent / "results" / f"estimate-{date.today().isoformat()}.jsonl"
        target.write_text("".join(json.dumps(row) + "\n" for row in rows))


if __name__ == "__main__":
    main()
