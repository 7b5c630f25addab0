"""Stacks of a running Python process, sampled by py-spy, which is another program: it may be missing or not allowed."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from tonnage.profile.report import Stack

SECONDS = 3
_RATE = 100  # samples a second
_START_SECONDS = 30


def find_py_spy() -> str | None:
    """Beside this Python, as pip installs it, or anywhere else."""
    beside = Path(sys.executable).with_name("py-spy")
    return str(beside) if beside.is_file() else shutil.which("py-spy")


def sample(pid: int, output: Path, seconds: int = SECONDS) -> tuple[Sequence[Stack], str]:
    """Stacks, or none and the reason."""
    command = find_py_spy()
    if command is None:
        return (), "py-spy is not installed (pip install 'tonnage[profile]'): stacks are those of modules and operators"
    asked = [command, "record", "--format", "raw", "--rate", str(_RATE), "--duration", str(seconds),
             "--output", str(output), "--pid", str(pid)]  # fmt: skip
    try:
        done = subprocess.run(asked, capture_output=True, text=True, timeout=seconds + _START_SECONDS, check=False)
    except subprocess.TimeoutExpired:
        return (), "py-spy did not answer: stacks are those of modules and operators"
    if done.returncode or not output.is_file():
        reason = next((line for line in done.stderr.splitlines() if line.strip()), "no reason given").strip()
        return (), f"py-spy failed ({reason[:200]}): stacks are those of modules and operators"
    return parse_raw(output.read_text(errors="replace")), ""


def parse_raw(text: str, rate: int = _RATE) -> tuple[Stack, ...]:
    """From `outer;inner 12` a line; frames of ours, and our thread that waits for orders, are left out."""
    seconds: dict[tuple[str, ...], float] = {}
    for line in text.splitlines():
        frames, _, count = line.rpartition(" ")
        if frames and count.isdigit() and "Tracker._listen" not in frames:
            kept = tuple(frame for frame in frames.split(";") if not _is_ours(frame)) or ("python",)
            seconds[kept] = seconds.get(kept, 0.0) + int(count) / rate
    return tuple(Stack(frames=frames, seconds=total) for frames, total in seconds.items())


def _is_ours(frame: str) -> bool:
    return "tonnage/profile/" in frame or "<frozen runpy>" in frame or frame.startswith("_run_module_as_main")
