"""What a program is given to run on: the answer of the configuration server, as plain values."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Literal, get_args

Communication = Literal["nvlink", "infinity_fabric", "pcie", "none"]
COMMUNICATIONS: tuple[Communication, ...] = get_args(Communication)


@dataclass(frozen=True, slots=True, kw_only=True)
class HardwareConfiguration:
    """Part of a node. `communication` is the link among several GPUs, or of a single one with its host.

    `loader_workers` are those of each GPU's own process, `cpu_cores` and `memory_bytes` of all together.
    """

    node_type: str
    gpu: str  # as the catalogue names it; "" for none
    gpu_count: int
    communication: Communication
    pcie_generation: int | None  # None where no standard one has the bandwidth that the cluster file states
    pcie_lanes: int | None
    cpu_cores: int
    sockets: int
    memory_bytes: int
    loader_workers: int
    pinned_memory: bool

    @property
    def name(self) -> str:
        """Short, for tables: `hopper: 4 x H200, nvlink`."""
        gpus = "no GPU" if not self.gpu else self.gpu if self.gpu_count == 1 else f"{self.gpu_count} x {self.gpu}"
        return f"{self.node_type}: {gpus}, {self.communication}" if self.gpu else f"{self.node_type}: {gpus}"

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)
