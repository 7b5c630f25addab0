"""How much memory there is: that of the machine or of the container around this process, and that of each GPU."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

_GROUPS = Path("/sys/fs/cgroup")


@dataclass(frozen=True, slots=True)
class GpuMemory:
    """`name` is that of the catalogue; "" where it has no such GPU."""

    name: str
    total_bytes: int
    free_bytes: int


def free_main_bytes(groups: Path = _GROUPS) -> int:
    """What processes may still take: of the machine, and of the container where that has less."""
    import psutil

    left = _container_bytes(groups)
    available = int(psutil.virtual_memory().available)
    return available if left is None else min(available, left)


def gpu_memory(index: int) -> GpuMemory:
    """Raises `Unreachable` where the driver does not answer."""
    from tonnage.hardware.probe import probe

    found = probe().gpus[index]
    name = found.gpu.name if found.gpu is not None else ""
    total = found.gpu.usable_bytes if found.gpu is not None else found.memory_bytes - (found.reserved_bytes or 0)
    return GpuMemory(name, total, max(total - found.used_bytes, 0))


def _container_bytes(groups: Path) -> int | None:
    """The limit of the control group less what is in use; files that are only cached can be dropped."""
    for limit, used, cached in (
        ("memory.max", "memory.current", "inactive_file"),
        ("memory/memory.limit_in_bytes", "memory/memory.usage_in_bytes", "total_inactive_file"),
    ):
        try:
            most, current = int((groups / limit).read_text()), int((groups / used).read_text())
            rows = (groups / limit).with_name("memory.stat").read_text().split("\n")
        except (OSError, ValueError):  # none, or `max`
            continue
        dropped = next((int(row.split()[1]) for row in rows if row.startswith(f"{cached} ")), 0)
        return max(most - current + dropped, 0)
    return None
