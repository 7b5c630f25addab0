"""Captures the text of a script, as a user's file would be captured, and adds up what a Trace says."""

from pathlib import Path

from tonnage.program.capture import CaptureOptions, capture
from tonnage.program.program import parse_program
from tonnage.program.trace import Category, Event, Trace

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


def peak_bytes(trace: Trace) -> int:
    live = peak = 0
    for kind, subject in zip(trace.event_kind.tolist(), trace.event_subject.tolist(), strict=True):
        if kind == Event.ALLOCATE:
            live += int(trace.block_bytes[subject])
            peak = max(peak, live)
        elif kind == Event.FREE:
            live -= int(trace.block_bytes[subject])
    return peak
