"""Records what PyTorch's allocator does on a real GPU, for `check_snapshot.py` to compare the simulation with.

    python record_snapshot.py DIRECTORY             each program in a process of its own; under a minute
    python record_snapshot.py DIRECTORY --dry-run   the same without a GPU: random streams go through the simulation

Needs only PyTorch (2.11 or newer) and `recording.py` beside it. Each program leaves `NAME.json.gz`: the settings, the
allocator's history as rows of [action, address, size, stream], and the peaks from `torch.cuda.memory_stats`.
"""

import argparse
import concurrent.futures
import gzip
import json
import os
import random
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

from recording import ACTIONS, MARKER_BYTES, Gpu, OutOfGpuMemory

MIB = 1 << 20
DEADLINE_SECONDS = 55.0


class RealGpu:
    """PyTorch on CUDA, with its history switched on before the first allocation."""

    device = "cuda"

    def __init__(self) -> None:
        import torch

        self.torch = torch
        self.streams = [torch.cuda.default_stream(), torch.cuda.Stream()]  # type: ignore[no-untyped-call]
        self.total_bytes: int = torch.cuda.get_device_properties(0).total_memory
        self.allowed_bytes: int | None = None

    def start(self, allowed_bytes: int | None) -> None:
        if allowed_bytes is not None:
            fraction = allowed_bytes / self.total_bytes
            self.torch.cuda.set_per_process_memory_fraction(fraction)
            self.allowed_bytes = round(fraction * self.total_bytes)
        assert self.torch.cuda.memory_reserved() == 0, "something was allocated before the history began"
        self.torch.cuda.memory._record_memory_history("all", context=None, max_entries=2_000_000)

    def empty(self, size: int, stream: int) -> object:
        try:
            with self.torch.cuda.stream(self.streams[stream]):
                return self.torch.empty(size, dtype=self.torch.uint8, device="cuda")
        except self.torch.cuda.OutOfMemoryError as error:
            raise OutOfGpuMemory from error

    def empty_cache(self) -> None:
        marker = self.torch.empty(MARKER_BYTES, dtype=self.torch.uint8, device="cuda")
        del marker
        self.torch.cuda.empty_cache()

    def finish(self) -> dict[str, Any]:
        self.torch.cuda.synchronize()
        stats = self.torch.cuda.memory_stats()
        entries = self.torch.cuda.memory._snapshot()["device_traces"][0]
        rows = [
            [ACTIONS.index(entry["action"]), entry.get("addr", 0), entry["size"], entry.get("stream", 0)]
            for entry in entries
            if entry["action"] in ACTIONS
        ]
        pools = {tuple(entry.get("pool_id", (0, 0))) for entry in entries}
        return {
            "torch": self.torch.__version__,
            "gpu": self.torch.cuda.get_device_name(0),
            "device_bytes": self.total_bytes,
            "allowed_bytes": self.allowed_bytes,
            "private_pools": len(pools - {(0, 0)}),
            "peak_allocated_bytes": stats["allocated_bytes.all.peak"],
            "peak_reserved_bytes": stats["reserved_bytes.all.peak"],
            "allocated_bytes": stats["allocated_bytes.all.current"],
            "reserved_bytes": stats["reserved_bytes.all.current"],
            "num_retries": stats["num_alloc_retries"],
            "num_ooms": stats["num_ooms"],
            "events": rows,
        }


# Programs


def random_stream(gpu: Gpu, low: int, high: int, live_bytes: int, *, streams: int = 1, events: int = 4000) -> None:
    """Allocates and frees at random, sizes spread evenly over their logarithm, about `live_bytes` at a time. Half of
    the sizes come again and again, as in a training loop. When memory runs out, half of the blocks go."""
    choose = random.Random(low + high)
    usual = [int(low * (high / low) ** choose.random()) for _ in range(24)]
    living: list[tuple[int, object]] = []
    used = 0
    for number in range(events):
        if living and (used > live_bytes or choose.random() < 0.42):
            size, _ = living.pop(choose.randrange(len(living)))
            used -= size
            continue
        size = choose.choice(usual) if choose.random() < 0.5 else int(low * (high / low) ** choose.random())
        size += size == MARKER_BYTES
        try:
            living.append((size, gpu.empty(size, number % streams)))
            used += size
        except OutOfGpuMemory:
            choose.shuffle(living)
            del living[len(living) // 2 :]
            used = sum(size for size, _ in living)
        if number % 1500 == 1499:
            gpu.empty_cache()


def train(gpu: Gpu, model: Any, batch: Any, optimizer: Any, steps: int) -> None:
    import torch

    for _ in range(steps):
        with torch.autocast(gpu.device, torch.bfloat16):
            loss = model(batch).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        del loss


def train_convolutions(gpu: Gpu) -> None:
    import torch
    from torch import nn

    tiny = gpu.device == "cpu"
    channels = [3, 8, 16] if tiny else [3, 64, 128, 256, 256, 512, 512]
    layers: list[nn.Module] = []
    for before, after in pairwise(channels):
        layers += [nn.Conv2d(before, after, 3, padding=1), nn.BatchNorm2d(after), nn.ReLU(), nn.MaxPool2d(2)]
    model = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels[-1], 100)).to(gpu.device)
    batch = torch.randn(2 if tiny else 48, 3, 16 if tiny else 160, 16 if tiny else 160, device=gpu.device)
    train(gpu, model, batch, torch.optim.SGD(model.parameters(), 0.01, momentum=0.9), 1 if tiny else 6)


def train_transformer(gpu: Gpu) -> None:
    import torch
    from torch import nn

    tiny = gpu.device == "cpu"
    width = 16 if tiny else 512
    layer = nn.TransformerEncoderLayer(width, 4, 4 * width, batch_first=True, norm_first=True)
    model = nn.TransformerEncoder(layer, 1 if tiny else 6, enable_nested_tensor=False).to(gpu.device)
    batch = torch.randn(2 if tiny else 16, 8 if tiny else 256, width, device=gpu.device)
    train(gpu, model, batch, torch.optim.AdamW(model.parameters()), 1 if tiny else 6)


@dataclass(frozen=True)
class Program:
    run: Callable[[Gpu], None]
    settings: str = ""
    allowed_bytes: int | None = None


def _programs() -> dict[str, Program]:
    streams: dict[str, Callable[[Gpu], None]] = {
        "small": lambda gpu: random_stream(gpu, 16, 1 * MIB, 200 * MIB),
        "medium": lambda gpu: random_stream(gpu, MIB // 2, 12 * MIB, 2000 * MIB),
        "large": lambda gpu: random_stream(gpu, 8 * MIB, 300 * MIB, 8000 * MIB),
        "mixed": lambda gpu: random_stream(gpu, 512, 400 * MIB, 6000 * MIB),
        "convolutions": train_convolutions,
        "transformer": train_transformer,
    }
    found: dict[str, Program] = {}
    for name, run in streams.items():
        found[name] = Program(run)
        found[f"{name}-expandable"] = Program(run, "expandable_segments:True")

    def tight(gpu: Gpu) -> None:
        random_stream(gpu, 64 * 1024, 300 * MIB, 3500 * MIB)

    limit = 3001 * MIB
    found["tight"] = Program(tight, "", limit)
    found["tight-expandable"] = Program(tight, "expandable_segments:True", limit)
    found["tight-split-limit"] = Program(tight, "max_split_size_mb:64", limit)
    found["tight-garbage-collection"] = Program(tight, "garbage_collection_threshold:0.6", limit)
    found["mixed-divisions"] = Program(streams["mixed"], "roundup_power2_divisions:[1:8,64:4,>:2]")
    found["two-streams"] = Program(lambda gpu: random_stream(gpu, 512, 60 * MIB, 2000 * MIB, streams=2))
    return found


PROGRAMS = _programs()


def record(name: str, directory: Path, dry_run: bool) -> None:
    """Runs one program in this process and writes its file."""
    program = PROGRAMS[name]
    gpu: Gpu
    if dry_run:
        from simulated_gpu import SimulatedGpu

        gpu = SimulatedGpu(program.settings)
    else:
        gpu = RealGpu()
    gpu.start(program.allowed_bytes)
    program.run(gpu)
    result = {"program": name, "settings": program.settings, "actions": ACTIONS, "marker_bytes": MARKER_BYTES}
    result |= gpu.finish()
    with gzip.open(directory / f"{name}.json.gz", "wt", encoding="utf-8") as file:
        json.dump(result, file, separators=(",", ":"))


def record_apart(name: str, directory: Path, dry_run: bool, deadline: float) -> str:
    """Runs one program in a new process, since settings are read once and the history must begin at nothing."""
    left = deadline - time.monotonic()
    if left < 5:
        return "skipped, no time left"
    environment = {**os.environ, "PYTORCH_CUDA_ALLOC_CONF": PROGRAMS[name].settings}
    if not PROGRAMS[name].settings:
        del environment["PYTORCH_CUDA_ALLOC_CONF"]
    environment.pop("PYTORCH_ALLOC_CONF", None)
    command = [sys.executable, __file__, str(directory), "--program", name] + ["--dry-run"] * dry_run
    start = time.monotonic()
    try:
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=left, check=False)
    except subprocess.TimeoutExpired:
        return "stopped, no time left"
    if done.returncode != 0:
        return f"failed: {done.stderr.strip()[-2000:]}"
    return f"ok, {time.monotonic() - start:.1f} s"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("directory", type=Path)
    parser.add_argument("--dry-run", action="store_true", help="use the simulation instead of a GPU")
    parser.add_argument("--program", choices=sorted(PROGRAMS), help="run only this one, in this process")
    parser.add_argument("--parallel", type=int, default=min(6, os.cpu_count() or 1))
    options = parser.parse_args()
    options.directory.mkdir(parents=True, exist_ok=True)
    if options.program:
        record(options.program, options.directory, options.dry_run)
        return 0
    deadline = time.monotonic() + DEADLINE_SECONDS
    failures = 0
    with concurrent.futures.ThreadPoolExecutor(options.parallel) as pool:
        jobs = {
            name: pool.submit(record_apart, name, options.directory, options.dry_run, deadline) for name in PROGRAMS
        }
        for name, job in jobs.items():
            outcome = job.result()
            failures += not outcome.startswith("ok")
            print(f"{name:28} {outcome}", flush=True)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
