"""Small programs, captured as a user's would be: in a process of their own."""

from pathlib import Path
from textwrap import dedent

import numpy as np

from tonnage.program.capture import CaptureOptions, capture
from tonnage.program.program import parse_program
from tonnage.program.trace import Category, Event, Trace


def write_script(folder: Path, text: str, name: str = "train.py") -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / name
    path.write_text("import torch\nfrom torch import nn\nimport torch.nn.functional as F\n" + dedent(text))
    return path


def capture_script(folder: Path, text: str, *arguments: str, steps: int = 4, batch: int | None = None) -> Trace:
    path = write_script(folder, text)
    return capture(parse_program(str(path), arguments), CaptureOptions(steps=steps, batch=batch, timeout_seconds=120))


def bytes_in_use(trace: Trace) -> list[int]:
    """Bytes after each event, as they were asked for: no rounding, no workspaces."""
    sign = np.zeros(len(trace.event_kind), dtype=np.int64)
    sign[trace.event_kind == Event.ALLOCATE] = 1
    sign[trace.event_kind == Event.FREE] = -1
    subject = np.where(sign != 0, trace.event_subject, 0)
    sizes = trace.block_bytes if len(trace.block_bytes) else np.zeros(1, dtype=np.int64)
    in_use: list[int] = np.cumsum(sign * sizes[subject]).tolist()
    return in_use


def peak_bytes(trace: Trace) -> int:
    return max(bytes_in_use(trace), default=0)


def calls(trace: Trace, name: str) -> int:
    """How often an operator was called."""
    return sum(trace.operators[index].name == name for index in trace.call_operator.tolist())


PREAMBLE = """
import torch
import torch.nn.functional as F
from torch import nn

def net():
    return nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 10))

def batches(count=6, size=8):
    for _ in range(count):
        yield torch.randn(size, 64), torch.randint(0, 10, (size,))
"""
NET_BYTES = 4 * (64 * 128 + 128 + 128 * 10 + 10)  # the parameters of net()


def capture_text(folder: Path, text: str, steps: int = 4) -> Trace:
    script = folder / "script.py"
    script.write_text(PREAMBLE + text)
    return capture(parse_program(str(script)), CaptureOptions(steps=steps, timeout_seconds=120))


def live_bytes(trace: Trace) -> dict[Category, int]:
    """What is allocated when the last step ends."""
    alive: set[int] = set()
    at_step: set[int] = set()
    for kind, subject in zip(trace.event_kind.tolist(), trace.event_subject.tolist(), strict=True):
        if kind == Event.ALLOCATE:
            alive.add(subject)
        elif kind == Event.FREE:
            alive.discard(subject)
        elif kind == Event.STEP:
            at_step = set(alive)
    totals = dict.fromkeys(Category, 0)
    for block in at_step:
        totals[Category(int(trace.block_category[block]))] += int(trace.block_bytes[block])
    return totals
