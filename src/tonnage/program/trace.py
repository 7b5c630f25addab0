"""The Trace: what a program did in its first steps, as plain data.

A Trace is captured once on a machine without a GPU and evaluated for any GPU. It holds the operators with their shapes,
and, in the order in which things happened, every allocation, release, operator call and finished step. Nothing in it
depends on a GPU model and nothing in it needs torch to be read.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from functools import cached_property
from math import prod
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

IntArray: TypeAlias = npt.NDArray[np.int64]
Attribute: TypeAlias = bool | int | float | str | Sequence["Attribute"] | None

DTYPE_BYTES: Mapping[str, int] = {
    "float64": 8, "float32": 4, "float16": 2, "bfloat16": 2, "float8_e4m3fn": 1, "float8_e5m2": 1,
    "complex64": 8, "complex128": 16, "int64": 8, "int32": 4, "int16": 2, "int8": 1, "uint8": 1, "bool": 1,
    "uint16": 2, "uint32": 4, "uint64": 8, "float8_e4m3fnuz": 1, "float8_e5m2fnuz": 1, "complex32": 4,
}  # fmt: skip


class Event(IntEnum):
    """What one entry of the event list says; `subject` is a block, a call or a step number."""

    ALLOCATE = 0
    FREE = 1
    CALL = 2
    STEP = 3
    EMPTY_CACHE = 4
    RESET_PEAK = 5


class Phase(IntEnum):
    """Which part of a training or inference step an operator belongs to."""

    SETUP = 0
    FORWARD = 1
    BACKWARD = 2
    OPTIMIZER = 3
    COPY = 4


class Category(IntEnum):
    """What a block of memory is for."""

    PARAMETERS = 0
    GRADIENTS = 1
    OPTIMIZER_STATE = 2
    ACTIVATIONS = 3
    INPUTS = 4
    TEMPORARIES = 5
    WORKSPACE = 6
    CONTEXT = 7

    @property
    def label(self) -> str:
        return self.name.lower()


@dataclass(frozen=True, slots=True)
class TensorSpec:
    """Shape, dtype and layout (`contiguous`, `channels_last` or `strided`) of a tensor; strides where it is strided."""

    shape: tuple[int, ...]
    dtype: str
    layout: str = "contiguous"
    strides: tuple[int, ...] = ()

    @property
    def numel(self) -> int:
        return prod(self.shape)

    @property
    def nbytes(self) -> int:
        return self.numel * DTYPE_BYTES.get(self.dtype, 4)


@dataclass(frozen=True, slots=True)
class Operator:
    """One operator with the shapes it was called with; equal calls share one Operator."""

    name: str
    inputs: tuple[TensorSpec | None, ...]
    outputs: tuple[TensorSpec, ...]
    attributes: Mapping[str, Attribute] = field(default_factory=dict, hash=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    """Where a Trace comes from and under which circumstances it was captured."""

    program: str
    kind: str = "script"
    mode: str = "training"
    steps: int = 0
    batch: int | None = None
    torch_version: str = ""
    captured_on: str = ""
    allocator_settings: str = ""
    cudnn_benchmark: bool = False
    cudnn_allow_tf32: bool = True
    matmul_allow_tf32: bool = False
    deterministic: bool = False
    storage_bytes: int = 0
    checkpoints: int = 0
    parameter_count: int = 0
    epoch_steps: int = 0  # batches in the data loader that drives the loop; 0 if there is none
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True, eq=False)
class Trace:
    """Everything needed to evaluate a program on a GPU. Columns are parallel arrays; see `Event` for the event list."""

    origin: Origin
    operators: tuple[Operator, ...]
    modules: tuple[str, ...]
    # One entry per event, in order.
    event_kind: npt.NDArray[np.int8]
    event_subject: npt.NDArray[np.int32]
    # One entry per block of memory that was ever allocated.
    block_bytes: IntArray
    block_category: npt.NDArray[np.int8]
    block_module: npt.NDArray[np.int32]
    block_call: npt.NDArray[np.int32]
    # One entry per operator call.
    call_operator: npt.NDArray[np.int32]
    call_phase: npt.NDArray[np.int8]
    call_module: npt.NDArray[np.int32]
    # What the host did since the call before: operators that only look at tensors (views), calls of modules, operators on
    # tensors of its own with the bytes that these wrote, and random numbers that it drew.
    call_views: npt.NDArray[np.int32]
    call_entered: npt.NDArray[np.int32]
    call_host_operators: npt.NDArray[np.int32]
    call_host_bytes: IntArray
    call_host_random: IntArray

    @cached_property
    def steps(self) -> int:
        return int(np.count_nonzero(self.event_kind == Event.STEP))

    def bytes_per_step(self, name: str) -> int:
        """Bytes moved by the copy operator `name` in the last complete step (all of them if no step was complete)."""
        moved = np.array([_moved_bytes(op) if op.name == name else 0 for op in self.operators], dtype=np.int64)
        called = self.last_step_calls()
        return int(moved[self.call_operator[called]].sum()) if len(moved) and len(called) else 0

    def last_step_calls(self) -> npt.NDArray[np.int32]:
        """The calls of the last complete step (all of them if no step was complete)."""
        ends = np.flatnonzero(self.event_kind == Event.STEP)
        first = int(ends[-2]) if len(ends) > 1 else 0
        last = int(ends[-1]) if len(ends) else len(self.event_kind)
        called: npt.NDArray[np.int32] = self.event_subject[first:last][self.event_kind[first:last] == Event.CALL]
        return called


def _moved_bytes(operator: Operator) -> int:
    return sum(spec.nbytes for spec in operator.inputs if spec is not None)


H2D = "tonnage::h2d"
D2H = "tonnage::d2h"
