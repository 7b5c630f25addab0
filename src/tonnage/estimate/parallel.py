"""Training on several GPUs as plain values: what one GPU does in a step, how the work is shared, and what comes of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from tonnage.errors import UsageError
from tonnage.estimate.communication import NCCL, Library
from tonnage.estimate.lanes import Span
from tonnage.estimate.topology import Topology
from tonnage.program.trace import DTYPE_BYTES
from tonnage.units import MIB


@dataclass(frozen=True, slots=True, kw_only=True)
class Gradient:
    """A parameter's gradient: when backward has made it, counted from the start of backward."""

    ready_seconds: float
    nbytes: int
    module: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Unit:
    """Modules whose parameters are gathered together when parameters are sharded, such as one block of a transformer."""

    name: str
    parameter_bytes: int
    gradient_bytes: int
    forward_seconds: float = 0.0
    backward_seconds: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Timeline:
    """One step on one GPU. Gradients stand in the order in which backward makes them, units in that of forward.

    `forward_seconds` is everything before the backward pass that ends the step, earlier micro-batches included, and
    `optimizer_seconds` everything after it; `update_seconds` is the part of that which a sharded optimizer divides, by
    default all of it.
    """

    forward_seconds: float
    backward_seconds: float
    optimizer_seconds: float
    update_seconds: float | None = None
    gradients: tuple[Gradient, ...] = ()
    units: tuple[Unit, ...] = ()

    @property
    def seconds(self) -> float:
        return self.forward_seconds + self.backward_seconds + self.optimizer_seconds

    @property
    def gradient_bytes(self) -> int:
        return sum(gradient.nbytes for gradient in self.gradients)

    def optimizer_on(self, parts: int) -> float:
        """Seconds after backward where each of so many GPUs updates its part of the parameters."""
        update = self.optimizer_seconds if self.update_seconds is None else self.update_seconds
        return self.optimizer_seconds - update + update / parts


class Sharding(StrEnum):
    """What each GPU keeps a part of only. ZeRO's stages; stage 3 is what FSDP does by default."""

    NONE = "ddp"
    OPTIMIZER = "zero1"
    GRADIENTS = "zero2"
    PARAMETERS = "zero3"

    @property
    def stage(self) -> int:
        return list(Sharding).index(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class ParallelOptions:
    """How a program is made parallel; the defaults are those of `DistributedDataParallel`.

    `accumulation_steps` are micro-batches with one exchange (`no_sync`); with sharded gradients each one needs its own.
    `communication_dtype` is that of the gradients on the way, if it is not their own (a compression hook, `reduce_dtype`).
    `contention` is by how much kernels are slower during a collective; left out, the library's own.
    """

    sharding: Sharding = Sharding.NONE
    overlap: bool = True
    bucket_bytes: int = 25 * MIB
    first_bucket_bytes: int = 1 * MIB
    gradient_as_bucket_view: bool = False
    accumulation_steps: int = 1
    gradient_dtype: str = "float32"
    communication_dtype: str | None = None
    library: Library = NCCL
    contention: float | None = None

    def __post_init__(self) -> None:
        if self.accumulation_steps < 1 or self.bucket_bytes < 1 or self.first_bucket_bytes < 1:
            raise UsageError("buckets and accumulation steps must be positive")
        for dtype in (self.gradient_dtype, self.communication_dtype):
            if dtype is not None and dtype not in DTYPE_BYTES:
                raise UsageError(f"no dtype {dtype!r}", f"known are {', '.join(DTYPE_BYTES)}")

    @property
    def on_the_way(self) -> float:
        """Bytes sent for each byte of gradient."""
        sent = self.communication_dtype or self.gradient_dtype
        return DTYPE_BYTES[sent] / DTYPE_BYTES[self.gradient_dtype]

    @property
    def slowing(self) -> float:
        return self.library.kernel_contention if self.contention is None else self.contention


@dataclass(frozen=True, slots=True, kw_only=True)
class ParallelStep:
    """A step on several GPUs, each with the batch that one GPU had (weak scaling).

    `exposed_seconds` is what the step takes longer than its computing: `waiting_seconds`, in which the GPU does nothing,
    and what collectives slow it down by, which `slowed_seconds` has by phase. `saved_seconds` is what a sharded optimizer
    takes less. So `step = single + waiting + slowed - saved`. `sent_bytes` is what each GPU sends.
    """

    topology: Topology
    step_seconds: float
    single_seconds: float
    exposed_seconds: float
    waiting_seconds: float
    slowed_seconds: Mapping[str, float]
    saved_seconds: float
    communication_seconds: float
    sent_bytes: float
    spans: tuple[Span, ...]
    algorithms: tuple[str, ...] = ()

    @property
    def efficiency(self) -> float:
        """Share of the ideal: as many GPUs, as many times the work in the time of one."""
        return self.single_seconds / self.step_seconds if self.step_seconds else 1.0

    @property
    def speedup(self) -> float:
        return self.topology.ranks * self.efficiency

    def epoch_seconds(self, single_steps: float) -> float:
        """An epoch of so many steps on one GPU; on several, each takes its part of the samples."""
        return self.step_seconds * single_steps / self.topology.ranks

    def as_dict(self) -> dict[str, Any]:
        """For `--json`: bytes and seconds, never formatted text."""
        return {
            "gpus": self.topology.ranks,
            "nodes": self.topology.nodes,
            "links": str(self.topology),
            "note": self.topology.note,
            "step_seconds": self.step_seconds,
            "single_seconds": self.single_seconds,
            "exposed_seconds": self.exposed_seconds,
            "communication_seconds": self.communication_seconds,
            "sent_bytes": round(self.sent_bytes),
            "efficiency": self.efficiency,
            "speedup": self.speedup,
            "algorithms": list(self.algorithms),
        }
