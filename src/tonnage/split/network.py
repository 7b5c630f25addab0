"""The network to split: operations with what they cost on each kind of device, and the tensors between them.

Plain data that any front end can make (an exported program, a Trace, ONNX, a file of a public format) and that needs no
torch to be read.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

ANY = "any"  # costs measured on one device, which others reach times their speed


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """One operator. It has one output, which every consumer needs as a whole.

    All seconds are by kind of device: `any`, `cpu`, or a GPU as the catalogue calls it; an operation
    cannot run on a kind that is missing there, unless `any` is given.
    """

    id: str | int
    name: str = ""
    kind: str = ""
    seconds: Mapping[str, float] = field(hash=False)
    backward_seconds: Mapping[str, float] = field(default_factory=dict, hash=False)
    update_seconds: Mapping[str, float] = field(default_factory=dict, hash=False)  # of the optimizer, once in a step
    weight_bytes: int = 0  # parameters and buffers that it reads
    state_bytes: int = 0  # training: their gradients and the optimizer's state
    stash_bytes: int = 0  # training: what it keeps of each micro-batch for its backward
    output_bytes: int = 0
    transfer_seconds: float | None = None  # of its output, where a file states the time itself
    weights: tuple[str, ...] = ()  # names of the parameters and buffers
    together: str | int | None = None  # operations of one name here share a device
    is_backward: bool = False  # of a file that lists backward operations by themselves
    pinned: str = ""  # to this device, or to those of this node; "" for any
    changes_weights: bool = False  # buffers that it reads change with each sample: one device must see them all


@dataclass(frozen=True, slots=True, kw_only=True)
class Input:
    """What comes into a network with every sample, and the operations (their positions) that read it."""

    name: str
    nbytes: int
    readers: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Network:
    """Operations in a topological order, and edges between them as pairs of their positions."""

    name: str
    operations: tuple[Operation, ...]
    edges: tuple[tuple[int, int], ...]
    is_training: bool = False
    weight_bytes: Mapping[str, int] = field(default_factory=dict, hash=False)  # by name; read by several where tied
    inputs: tuple[Input, ...] = ()
    outputs: tuple[int, ...] = ()  # operations whose results are the network's

    @property
    def consumers(self) -> tuple[tuple[int, ...], ...]:
        """Of each operation, by position; each once."""
        found: list[dict[int, None]] = [{} for _ in self.operations]
        for source, target in self.edges:
            found[source][target] = None
        return tuple(tuple(each) for each in found)
