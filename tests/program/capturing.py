"""Small programs, captured as a user's would be: in a process of their own."""

from pathlib import Path
from textwrap import dedent

import numpy as np

from tonnage.program.capture import CaptureOptions, capture
from tonnage.program.program import parse_program
from tonnage.program.trace import Event, Trace


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
