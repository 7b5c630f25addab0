"""Control groups of the kernel, versions 1 and 2: limits for a process with its children, and kills for memory."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

_CONTROLLERS = ("memory", "pids")


@dataclass(frozen=True, slots=True)
class Group:
    """Folders of one group by controller; version 2 has the same one for all."""

    folders: dict[str, Path]

    def join(self, pid: int) -> None:
        for folder in set(self.folders.values()):
            (folder / "cgroup.procs").write_text(str(pid))

    def members(self) -> set[int]:
        found: set[int] = set()
        for folder in self.folders.values():
            with suppress(OSError):
                found |= {int(line) for line in (folder / "cgroup.procs").read_text().split()}
        return found

    def memory_kills(self) -> int:
        return memory_kills(self.folders["memory"]) if "memory" in self.folders else 0

    def remove(self) -> None:
        for folder in set(self.folders.values()):
            with suppress(OSError):
                folder.rmdir()


def create_group(name: str, *, memory_bytes: int, pids: int) -> Group:
    """A group with as many of the limits as this machine lets us set; look at its folders."""
    limits, folders = {"memory": memory_bytes, "pids": pids}, {}
    for controller in _CONTROLLERS:
        folder = _make(controller, name)
        if folder is not None and _limit(folder, controller, limits[controller]):
            folders[controller] = folder
    return Group(folders)


def memory_kills(folder: Path) -> int:
    """How many processes of the group the kernel has killed for memory."""
    for file in ("memory.events", "memory.oom_control"):  # version 2, version 1
        with suppress(OSError, ValueError):
            for line in (folder / file).read_text().splitlines():
                if line.startswith("oom_kill "):
                    return int(line.split()[1])
    return 0


def memory_folder_of(pid: int) -> Path | None:
    """The folder of the group that limits a running process's memory."""
    with suppress(OSError):
        for line in Path(f"/proc/{pid}/cgroup").read_text().splitlines():
            _, controllers, path = line.split(":", 2)
            mount = _mount("memory")
            if mount is not None and controllers == ("memory" if mount[1] == 1 else ""):
                return mount[0] / path.lstrip("/")
    return None


def _make(controller: str, name: str) -> Path | None:
    for parent in _parents(controller):
        folder = parent / f"tonnage-{name}"
        with suppress(OSError):
            folder.mkdir(exist_ok=True)
            return folder
    return None


def _parents(controller: str) -> list[Path]:
    """Where a group can be made: at the top in version 1, else in the nearest one above us that hands the controller on."""
    mount = _mount(controller)
    if mount is None:
        return []
    root, version = mount
    if version == 1:
        return [root]
    own = root / Path("/proc/self/cgroup").read_text().rpartition("0::")[2].strip().lstrip("/")
    above = [folder for folder in (own, *own.parents) if folder.is_relative_to(root)]
    return [folder for folder in above if controller in _words(folder / "cgroup.subtree_control")]


def _mount(controller: str) -> tuple[Path, int] | None:
    """Where the controller is mounted, and in which version: many machines have both."""
    second: tuple[Path, int] | None = None
    with suppress(OSError):
        for line in Path("/proc/self/mounts").read_text().splitlines():
            _, point, kind, options, *_ = line.split()
            if kind == "cgroup" and controller in options.split(","):
                return Path(point), 1
            if kind == "cgroup2":
                second = Path(point), 2
    return second


def _limit(folder: Path, controller: str, value: int) -> bool:
    files = {"memory": ("memory.max", "memory.limit_in_bytes"), "pids": ("pids.max",)}[controller]
    for file in files:
        if (folder / file).exists():
            with suppress(OSError):
                (folder / file).write_text(str(value))
                _forbid_swap(folder, value)
                return True
    with suppress(OSError):
        folder.rmdir()
    return False


def _forbid_swap(folder: Path, memory_bytes: int) -> None:
    """Memory that is swapped out would not count against the limit."""
    for file, value in (("memory.swap.max", 0), ("memory.memsw.limit_in_bytes", memory_bytes)):
        if (folder / file).exists():
            with suppress(OSError):
                (folder / file).write_text(str(value))


def _words(path: Path) -> list[str]:
    try:
        return path.read_text().split()
    except OSError:
        return []
