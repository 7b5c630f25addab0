"""What a process uses of its host, told by itself. Standard library alone: it is asked inside other people's images."""

from __future__ import annotations

import os
import resource
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

_PROC = Path("/proc")
_PARENT, _USER, _SYSTEM = 1, 11, 12  # fields of /proc/PID/stat behind the name


def usage() -> dict[str, float]:
    """CPU seconds of this process and of those it has started, such as loader workers, whether they live or have ended;
    and the time."""
    ended = os.times()
    seconds = time.process_time() + ended.children_user + ended.children_system
    seconds += sum(seconds for _, seconds in _below(os.getpid()))
    return {"cpu_seconds": seconds, "wall_seconds": time.monotonic()}


def peak_rss_bytes() -> int:
    """Of this process alone."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


def peak_bytes() -> int:
    """Of this process, with what those below it hold now."""
    return peak_rss_bytes() + sum(_own_bytes(pid) for pid, _ in _below(os.getpid()))


def _below(root: int) -> Iterator[tuple[int, float]]:
    """Processes that this one has started, or that they have, with their CPU seconds. Nothing where there is no /proc."""
    found = dict(_processes())
    tick, near = os.sysconf("SC_CLK_TCK"), {root}
    while near:
        near = {pid for pid, fields in found.items() if int(fields[_PARENT]) in near}
        for pid in near:
            fields = found[pid]
            yield pid, (int(fields[_USER]) + int(fields[_SYSTEM])) / tick


def _processes() -> Iterator[tuple[int, list[str]]]:
    with suppress(OSError):
        for entry in os.scandir(_PROC):
            if entry.name.isdigit():
                with suppress(OSError):
                    # The name is in brackets and may hold anything, brackets among it.
                    yield int(entry.name), Path(entry.path, "stat").read_text().rpartition(")")[2].split()


def _own_bytes(pid: int) -> int:
    """Pages that no other process has."""
    with suppress(OSError, ValueError, IndexError):
        _, resident, shared, *_ = map(int, Path(_PROC, str(pid), "statm").read_text().split())
        return (resident - shared) * os.sysconf("SC_PAGE_SIZE")
    return 0
