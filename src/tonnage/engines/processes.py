"""Processes that are told from later ones with the same number."""

from __future__ import annotations

import os
import signal
import subprocess
from functools import cache
from pathlib import Path

_PROC = Path("/proc")


def birth(pid: int) -> str:
    """What a process has and no other with its number ever had; "" if it is gone or a zombie."""
    if not _PROC.joinpath("self").exists():
        return _birth_by_ps(pid)
    try:
        text = (_PROC / str(pid) / "stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return ""
    # The second field is the program's name in brackets and may hold spaces and brackets itself.
    fields = text.rpartition(")")[2].split()
    return "" if fields[0] in "ZX" else f"{_boot()}/{fields[19]}"


def is_same(pid: int, born: str) -> bool:
    """Whether it still is the process that was born so."""
    return bool(born) and birth(pid) == born


def kill_group(pid: int, born: str, number: int = signal.SIGKILL) -> bool:
    """A signal for a process and its group, if it still is that process."""
    if not is_same(pid, born):
        return False
    try:
        os.killpg(pid, number)
    except ProcessLookupError:
        return False
    return True


@cache
def _boot() -> str:
    """Start times count from the boot of the machine."""
    path = _PROC / "sys/kernel/random/boot_id"
    return path.read_text().strip() if path.exists() else ""


def _birth_by_ps(pid: int) -> str:
    """Where there is no /proc, as on macOS."""
    command = ["ps", "-o", "lstart=", "-p", str(pid)]
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()
