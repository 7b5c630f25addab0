"""How fast two programs are on one GPU at the same time, beside what `joint_speeds` says.

    python benchmarks/allocation/pairs.py --out DIR [--seconds 1.5]
    python benchmarks/allocation/pairs.py --show benchmarks/allocation/results/pairs-h200-DATE.jsonl

Every program is a process that stays, with its context and its memory, and trains when it is told to: alone first, then in
every pair. Rows: of each program its speed and the part of the time in which kernels run (by the profiler); of each pair the
speed of both as a part of their speed alone. What the model says of them is computed when they are shown.
"""

import argparse
import datetime
import itertools
import json
import platform
import subprocess
import sys
import time
from pathlib import Path
from statistics import median
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2] / "src"))

PROGRAMS = ("mlp-large", "mlp-small", "conv-large", "conv-small", "transformer", "elementwise", "lstm")
Row = dict[str, Any]


def make_step(name: str, device: str) -> Any:
    """A training step of its own kind."""
    import torch
    from torch import nn

    shrink = 1 if device == "cuda" else 16
    precision = {"transformer": torch.bfloat16}.get(name, torch.float32)
    if name.startswith("mlp"):
        width = (8192 if name == "mlp-large" else 1024) // shrink
        model: nn.Module = nn.Sequential(*(m for _ in range(4) for m in (nn.Linear(width, width), nn.ReLU())))
        inputs = torch.randn(2048 // shrink if name == "mlp-large" else 64, width)
    elif name.startswith("conv"):
        channels = 128 // shrink
        blocks = [
            m
            for _ in range(8)
            for m in (nn.Conv2d(channels, channels, 3, padding=1), nn.BatchNorm2d(channels), nn.ReLU())
        ]
        model, size = nn.Sequential(*blocks), 64 if name == "conv-large" else 16
        inputs = torch.randn(64 // shrink if name == "conv-large" else 4, channels, size, size)
    elif name == "transformer":
        layer = nn.TransformerEncoderLayer(1024 // shrink, 8, 4096 // shrink, batch_first=True, dropout=0.0)
        model, inputs = (
            nn.TransformerEncoder(layer, 6, enable_nested_tensor=False),
            torch.randn(8, 512 // shrink, 1024 // shrink),
        )
    elif name == "elementwise":
        model, inputs = (
            nn.Sequential(*(nn.GELU() for _ in range(8)), nn.Linear(64, 64)),
            torch.randn(1 << 20 if shrink == 1 else 1024, 64),
        )
    else:
        model, inputs = nn.LSTM(512 // shrink, 512 // shrink, 2), torch.randn(64, 32, 512 // shrink)
    model = model.to(device=device, dtype=precision)
    inputs = inputs.to(device=device, dtype=precision)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)

    def step() -> None:
        output = model(inputs)
        loss = (output[0] if isinstance(output, tuple) else output).float().square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

    return step


def work(name: str, device: str) -> None:
    """Obeys lines: seconds to train for from a moment on; answers with the steps made and the seconds they took."""
    import torch

    wait = torch.cuda.synchronize if device == "cuda" else lambda: None
    step = make_step(name, device)
    for _ in range(10):
        step()
    wait()
    print(json.dumps({"busy": busy_part(step, wait, device), "reserved": reserved(device)}), flush=True)
    for line in sys.stdin:
        begin, seconds = json.loads(line)
        while time.time() < begin:
            time.sleep(0.001)
        count, since = 0, time.perf_counter()
        while time.perf_counter() - since < seconds:
            step()
            count += 1
            if count % 4 == 0:
                wait()  # else the host runs far ahead of the GPU
        wait()
        print(json.dumps([count, time.perf_counter() - since]), flush=True)


def reserved(device: str) -> int:
    import torch

    return torch.cuda.memory_reserved() if device == "cuda" else 0


def busy_part(step: Any, wait: Any, device: str) -> float:
    """Kernels' own time beside the step's, both without and with the profiler's help."""
    if device != "cuda":
        return 1.0
    import torch
    from torch.profiler import ProfilerActivity, profile

    wait()
    since = time.perf_counter()
    for _ in range(20):
        step()
    wait()
    seconds = (time.perf_counter() - since) / 20
    with profile(activities=[ProfilerActivity.CUDA]) as seen:
        for _ in range(5):
            step()
        wait()
    kernels = sum(event.self_device_time_total for event in seen.key_averages()) / 1e6 / 5
    del torch
    return min(1.0, kernels / seconds)


class Worker:
    def __init__(self, name: str, device: str) -> None:
        command = [sys.executable, __file__, "--work", name, "--device", device, "--out", "."]
        self.name = name
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.facts: Row = json.loads(self._line())

    def order(self, begin: float, seconds: float) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps([begin, seconds]) + "\n")
        self.process.stdin.flush()

    def speed(self) -> float:
        count, seconds = json.loads(self._line())
        return float(count / seconds)

    def _line(self) -> str:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            raise SystemExit(f"{self.name} has ended by itself")
        return line

    def close(self) -> None:
        self.process.kill()
        self.process.wait()


def together(workers: list[Worker], seconds: float) -> list[float]:
    begin = time.time() + 0.1
    for worker in workers:
        worker.order(begin, seconds)
    return [worker.speed() for worker in workers]


def predicted(busy: list[float]) -> list[float]:
    from tonnage.allocate.problem import Problem, Profile
    from tonnage.allocate.sharing import joint_speeds

    return joint_speeds(Problem(devices=(), tasks=()), [Profile(step_seconds=1.0, busy=part) for part in busy])


def measure(options: argparse.Namespace) -> None:
    options.out.mkdir(parents=True, exist_ok=True)
    workers = [Worker(name, options.device) for name in options.programs.split(",")]
    with (options.out / "pairs.jsonl").open("w") as file:
        file.write(json.dumps(machine(options.device)) + "\n")
        alone = {w.name: median(together([w], options.seconds)[0] for _ in range(3)) for w in workers}
        for worker in workers:
            row = {"program": worker.name, "steps_second": alone[worker.name], **worker.facts}
            file.write(json.dumps(row) + "\n")
            print(f"{worker.name:14} {1e3 / alone[worker.name]:9.3f} ms  busy {worker.facts['busy']:.0%}", flush=True)
        for one, other in itertools.combinations_with_replacement(workers, 2):
            if one is other:
                continue
            speeds = together([one, other], options.seconds)
            parts = [speed / alone[w.name] for speed, w in zip(speeds, (one, other), strict=True)]
            file.write(json.dumps({"pair": [one.name, other.name], "parts": parts}) + "\n")
            file.flush()
    for worker in workers:
        worker.close()
    show(options.out / "pairs.jsonl")


def show(path: Path) -> None:
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    busy = {row["program"]: row["busy"] for row in rows if "program" in row}
    errors, sums = [], []
    for row in (row for row in rows if "pair" in row):
        said, parts = predicted([busy[name] for name in row["pair"]]), row["parts"]
        errors += [abs(a / b - 1) for a, b in zip(said, parts, strict=True)]
        sums.append(abs(sum(said) / sum(parts) - 1))
        one, other = row["pair"]
        print(
            f"{one:14} {other:14} {parts[0]:.2f} {parts[1]:.2f} (sum {sum(parts):.2f})  "
            f"predicted {said[0]:.2f} {said[1]:.2f} (sum {sum(said):.2f})"
        )
    print(
        f"speed beside another: median error {median(errors):.1%}, worst {max(errors):.1%}; of the sum {median(sums):.1%}, {max(sums):.1%}"
    )


def machine(device: str) -> Row:
    import torch

    return {
        "gpu": torch.cuda.get_device_name(0) if device == "cuda" else "", "torch": torch.__version__,
        "cuda": torch.version.cuda, "python": platform.python_version(),
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
    }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", default=Path(), type=Path)
    parser.add_argument("--show", type=Path, help="only print what was measured before, beside the model of today")
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--seconds", type=float, default=1.5)
    parser.add_argument("--programs", default=",".join(PROGRAMS))
    parser.add_argument("--work", default="", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.show:
        show(options.show)
    elif options.work:
        work(options.work, options.device)
    else:
        measure(options)


if __name__ == "__main__":
    main()
