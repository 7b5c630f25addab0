"""What the machine that runs containers and processes has: cores, memory, NUMA nodes, GPUs, CDI devices."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from tonnage.engines.base import Resources
from tonnage.errors import DoesNotFit, Unreachable
from tonnage.units import format_bytes

NODES, PCI_DEVICES = Path("/sys/devices/system/node"), Path("/sys/bus/pci/devices")
CDI_FOLDERS = (Path("/etc/cdi"), Path("/var/run/cdi"))


@dataclass(frozen=True, slots=True, kw_only=True)
class NumaNode:
    """Cores and memory that are near each other."""

    index: int
    cores: tuple[int, ...]
    memory_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class HostGpu:
    """A GPU by the number that the driver gives it."""

    index: int
    name: str
    model: str = ""  # in the catalogue, where it is there
    numa_node: int | None = None  # whose cores are near it; None where the machine does not say


@dataclass(frozen=True, slots=True, kw_only=True)
class Host:
    """The machine that engines without a cluster run on."""

    cores: tuple[int, ...]
    memory_bytes: int
    nodes: tuple[NumaNode, ...] = ()
    gpus: tuple[HostGpu, ...] = ()

    def node(self, index: int) -> NumaNode:
        for node in self.nodes:
            if node.index == index:
                return node
        known = ", ".join(str(node.index) for node in self.nodes) or "none that it tells of"
        raise DoesNotFit(f"this machine has no NUMA node {index}", f"it has {known}")

    def matching_gpus(self, model: str) -> tuple[HostGpu, ...]:
        return tuple(gpu for gpu in self.gpus if not model or _same_model(model, gpu))


def read_host() -> Host:
    """Asks the operating system, and the driver where there is one."""
    return Host(
        cores=tuple(sorted(os.sched_getaffinity(0))),
        memory_bytes=os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        nodes=read_numa_nodes(),
        gpus=tuple(_read_gpus()),
    )


def check_fits(resources: Resources, host: Host) -> None:
    """Raises `DoesNotFit` with what is missing, and how much of it."""
    if resources.numa_node is not None:
        node = host.node(resources.numa_node)
        _check(resources, len(node.cores), node.memory_bytes, f"NUMA node {node.index}")
    _check(resources, len(host.cores), host.memory_bytes, "this machine")
    found = len(host.matching_gpus(resources.gpu))
    if resources.gpu_count > found:
        kind = f"{resources.gpu} GPUs" if resources.gpu else "GPUs"
        has = f"this machine has {found}" if found else "this machine has none"
        raise DoesNotFit(f"{resources.gpu_count} {kind} are wanted, {has}", _other_gpus(host))


def node_for(resources: Resources, host: Host, gpus: Sequence[str]) -> int | None:
    """The NUMA node of a job that has these GPUs, called as CDI does. A job of one socket gets, of the nodes that hold it,
    the one that most of its GPUs are at; none where there is but one node, or none holds it."""
    if resources.numa_node is not None or not resources.one_numa_node or len(host.nodes) < 2:
        return resources.numa_node
    numbers = {gpu.rpartition("=")[2] for gpu in gpus}
    near = [gpu.numa_node for gpu in host.gpus if str(gpu.index) in numbers]
    large = (
        node.index
        for node in host.nodes
        if len(node.cores) >= resources.cpu_cores and node.memory_bytes >= resources.memory_bytes
    )
    return max(large, key=near.count, default=None)


def _check(resources: Resources, cores: int, memory_bytes: int, place: str) -> None:
    if resources.cpu_cores > cores:
        missing = resources.cpu_cores - cores
        raise DoesNotFit(
            f"{resources.cpu_cores:g} CPU cores are wanted, {place} has {cores}: {missing:g} too few",
            f"try --cpus {cores}",
        )
    if resources.memory_bytes > memory_bytes:
        missing_bytes = resources.memory_bytes - memory_bytes
        raise DoesNotFit(
            f"{format_bytes(resources.memory_bytes)} of memory are wanted, {place} has {format_bytes(memory_bytes)}: "
            f"{format_bytes(missing_bytes)} too little"
        )


def _other_gpus(host: Host) -> str:
    names = sorted({gpu.name for gpu in host.gpus})
    return f"it has {', '.join(names)}" if names else "`tonnage doctor` tells what the driver says"


def read_numa_nodes(folder: Path = NODES) -> tuple[NumaNode, ...]:
    """As the kernel lists them; empty where it does not."""
    found = [path for path in folder.glob("node[0-9]*") if (path / "cpulist").is_file()]
    return tuple(_read_node(path) for path in sorted(found, key=lambda path: int(path.name[4:])))


def _read_node(path: Path) -> NumaNode:
    total = (path / "meminfo").read_text().partition("MemTotal:")[2].split()
    return NumaNode(
        index=int(path.name[4:]),
        cores=parse_cores((path / "cpulist").read_text()),
        memory_bytes=int(total[0]) * 1024 if total else 0,
    )


def parse_cores(text: str) -> tuple[int, ...]:
    """`0-3,8` as the kernel writes it."""
    cores: list[int] = []
    for part in filter(None, text.strip().split(",")):
        first, _, last = part.partition("-")
        cores += range(int(first), int(last or first) + 1)
    return tuple(cores)


def format_cores(cores: Sequence[int]) -> str:
    """The other way round: `(0, 1, 2, 8)` as `0-2,8`."""
    runs: list[list[int]] = []
    for core in sorted(cores):
        if runs and core == runs[-1][-1] + 1:
            runs[-1].append(core)
        else:
            runs.append([core])
    return ",".join(str(run[0]) if len(run) == 1 else f"{run[0]}-{run[-1]}" for run in runs)


def _read_gpus() -> Iterator[HostGpu]:
    from tonnage.hardware.probe import probe

    try:
        machine = probe()
    except Unreachable:
        return
    for gpu in machine.gpus:
        model = gpu.gpu.name if gpu.gpu else ""
        yield HostGpu(index=gpu.index, name=gpu.name, model=model, numa_node=read_device_node(gpu.pci_address))


def read_device_node(address: str | None, folder: Path = PCI_DEVICES) -> int | None:
    """Of a device by its PCI address, as the driver or as the kernel writes it; -1 is the kernel's word for not known."""
    domain, _, rest = (address or "").lower().partition(":")
    try:
        node = int((folder / f"{int(domain, 16):04x}:{rest}" / "numa_node").read_text())
    except (OSError, ValueError):
        return None
    return node if node >= 0 else None


def _same_model(wanted: str, gpu: HostGpu) -> bool:
    from tonnage.hardware.catalogue import normalise

    return normalise(wanted) in (normalise(gpu.model), normalise(gpu.name))


# -- the Container Device Interface ---------------------------------------------------------------------------------------


def cdi_devices(kind: str, folders: Sequence[Path] = CDI_FOLDERS) -> tuple[str, ...]:
    """Single devices of a kind, such as `nvidia.com/gpu`, that the files of these folders name."""
    names: dict[str, None] = {}
    for folder in folders:
        for path in sorted(folder.glob("*")) if folder.is_dir() else ():
            names |= dict.fromkeys(_devices_of(path, kind))
    return tuple(
        sorted((name for name in names if name != "all"), key=lambda name: (not name.isdigit(), len(name), name))
    )


def _devices_of(path: Path, kind: str) -> list[str]:
    """A file that cannot be read is the container engine's to complain about."""
    try:
        if path.suffix == ".json":
            document = json.loads(path.read_text())
        elif path.suffix in (".yaml", ".yml"):
            import yaml

            document = yaml.safe_load(path.read_text())
        else:
            return []
        return [str(device["name"]) for device in document["devices"]] if document.get("kind") == kind else []
    except (OSError, ValueError, LookupError, TypeError, AttributeError):
        return []
