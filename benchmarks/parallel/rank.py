"""One rank of `gloo.py`: measures the link, all-reduces and steps of a small network, and rank 0 writes them down."""

import argparse
import json
import statistics
import time
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import nn

SIZES = (4 << 10, 64 << 10, 1 << 20, 8 << 20)
LAYERS, WIDTH, BATCH = 4, 1024, 8
FORWARD_SECONDS, BACKWARD_SECONDS = 0.02, 0.05  # of each layer
MIB = 2**20


def main() -> None:
    parser = argparse.ArgumentParser()
    for name in ("rank", "ranks", "repeats"):
        parser.add_argument(f"--{name}", type=int, required=True)
    parser.add_argument("--meet", required=True)
    parser.add_argument("--output", type=Path, required=True)
    options = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    dist.init_process_group("gloo", init_method=options.meet, rank=options.rank, world_size=options.ranks)
    found = {
        **_link(options.rank, options.repeats),
        "all_reduce": [{"nbytes": size, "seconds": _all_reduce(size, options.repeats)} for size in SIZES],
        "single": _single(options.repeats),
        "ddp": [{"bucket_mib": mib, "seconds": _ddp(mib, options.repeats)} for mib in (None, 4)],
    }
    if options.rank == 0:
        options.output.write_text(json.dumps(found))
    dist.barrier()  # nobody leaves while another still talks to it
    dist.destroy_process_group()


def _slowest(times: list[float]) -> float:
    """The median over repeats of the slowest rank."""
    table = torch.tensor(times, dtype=torch.float64)
    dist.all_reduce(table, op=dist.ReduceOp.MAX)
    return statistics.median(table.tolist())


def _timed(work: Callable[[], object], repeats: int) -> list[float]:
    times = []
    for number in range(repeats + 2):  # two to warm up
        dist.barrier()
        start = time.perf_counter()
        work()
        if number >= 2:
            times.append(time.perf_counter() - start)
    return times


def _link(rank: int, repeats: int) -> dict[str, float]:
    """Latency and rate between ranks 0 and 1, there and back. (Sent at once in torch, both take their turns; a ring's
    directions do not, so the rate of one alone is that of a ring.)"""

    def there_and_back(tensor: torch.Tensor) -> None:
        if rank < 2:
            first, second = (dist.send, dist.recv) if rank == 0 else (dist.recv, dist.send)
            first(tensor, 1 - rank)
            second(tensor, 1 - rank)

    small, large = torch.zeros(1), torch.zeros(2 * MIB)
    latency = _slowest(_timed(lambda: there_and_back(small), 20 * repeats)) / 2
    seconds = _slowest(_timed(lambda: there_and_back(large), repeats)) / 2
    return {"hop_seconds": latency, "link_bytes_second": 8 * MIB / (seconds - latency)}


def _all_reduce(nbytes: int, repeats: int) -> float:
    tensor = torch.zeros(nbytes // 4)
    return _slowest(_timed(lambda: dist.all_reduce(tensor), repeats if nbytes > MIB else 5 * repeats))


class _Wait(torch.autograd.Function):
    """Takes its time and leaves the processors alone, as if a GPU computed."""

    @staticmethod
    def forward(_context: Any, value: torch.Tensor) -> torch.Tensor:
        time.sleep(FORWARD_SECONDS)
        return value.clone()

    @staticmethod
    def backward(_context: Any, gradient: torch.Tensor) -> torch.Tensor:
        time.sleep(BACKWARD_SECONDS)
        return gradient


class _Layer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(WIDTH, WIDTH)

    def forward(self, value: torch.Tensor) -> torch.Tensor:
        waited: torch.Tensor = _Wait.apply(self.linear(value))
        return waited.relu()


def _network() -> nn.Sequential:
    return nn.Sequential(*(_Layer() for _ in range(LAYERS)))


def _single(repeats: int) -> dict[str, Any]:
    """A step of every rank for itself: its phases, and when gradients are ready."""
    network = _network()
    optimizer = torch.optim.SGD(network.parameters(), 0.01)
    batch = torch.randn(BATCH, WIDTH)
    ready: list[tuple[float, int]] = []
    for parameter in network.parameters():
        size = parameter.numel() * parameter.element_size()
        parameter.register_post_accumulate_grad_hook(lambda _, size=size: ready.append((time.perf_counter(), size)))
    marks = []
    for _ in range(repeats + 2):
        ready.clear()
        dist.barrier()
        marks.append((*_step(network, optimizer, batch), [moment for moment, _ in ready]))
    rows = [[b - a for a, b in pairwise(row[:4])] + [m - row[1] for m in row[4]] for row in marks[2:]]
    columns = [_slowest(list(column)) for column in zip(*rows, strict=True)]
    gradients = [(seconds, size) for seconds, (_, size) in zip(columns[3:], ready, strict=True)]
    return {"forward": columns[0], "backward": columns[1], "optimizer": columns[2], "gradients": gradients}


def _step(network: nn.Module, optimizer: torch.optim.Optimizer, batch: torch.Tensor) -> tuple[Any, ...]:
    start = time.perf_counter()
    loss = network(batch).square().mean()
    forward = time.perf_counter()
    loss.backward()
    backward = time.perf_counter()
    optimizer.step()
    optimizer.zero_grad()
    return start, forward, backward, time.perf_counter()


def _ddp(bucket_mib: int | None, repeats: int) -> float:
    network = nn.parallel.DistributedDataParallel(_network(), bucket_cap_mb=bucket_mib)
    optimizer = torch.optim.SGD(network.parameters(), 0.01)
    batch = torch.randn(BATCH, WIDTH)
    return _slowest(_timed(lambda: _step(network, optimizer, batch), repeats))


if __name__ == "__main__":
    main()
