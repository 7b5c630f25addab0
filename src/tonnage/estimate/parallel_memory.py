"""What one of several GPUs needs, told by what changes against a single one: copies of gradients in buckets, NCCL's
buffers, and the shares of what ZeRO and FSDP divide."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from tonnage.estimate.communication import NCCL_GROUP_BYTES, NCCL_OTHER_BYTES, NCCL_PAIR_BYTES
from tonnage.estimate.parallel import ParallelOptions, Unit
from tonnage.estimate.topology import Topology
from tonnage.program.trace import Category

# Units whose gathered parameters, or whole gradients, exist at a time: the one in work and the one on its way.
UNITS_HELD = 2
Ints = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """What becomes of one category: its part, at least `floor_bytes`, and something on top."""

    parts: int = 1
    floor_bytes: int = 0
    extra_bytes: int = 0

    def apply(self, held: Ints) -> Ints:
        return np.maximum(-(-held // self.parts), self.floor_bytes) + self.extra_bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Division:
    """The changes of all categories; those that are not named stay as they are."""

    changes: Mapping[Category, Change]

    def categories(self, single: Mapping[str, int]) -> dict[str, int]:
        """The categories of one of several GPUs from those of an estimate for one GPU, both at the single one's peak."""
        table = np.array([[single.get(category.label, 0) for category in Category]], dtype=np.int64)
        row = self.table(table)[0]
        return {category.label: int(row[category]) for category in Category}

    def table(self, held: Ints) -> Ints:
        """The same for a whole run: rows are moments, columns categories (`Requests.bytes_by_category`)."""
        columns = [self.changes.get(category, Change()).apply(held[:, category]) for category in Category]
        return np.stack(columns, axis=1)

    def peak(self, held: Ints) -> dict[str, int]:
        """The categories at the moment of the new peak, which may be another one than the peak of a single GPU."""
        table = self.table(held)
        row = table[int(table.sum(axis=1).argmax())]
        return {category.label: int(row[category]) for category in Category}


def divide(units: tuple[Unit, ...], topology: Topology, options: ParallelOptions | None = None) -> Division:
    """How memory changes when a network of these units is trained on all GPUs of `topology`."""
    options = options or ParallelOptions()
    if topology.ranks == 1:
        return Division(changes={})
    stage, parts = options.sharding.stage, topology.ranks
    changes = {
        Category.CONTEXT: Change(extra_bytes=library_bytes(topology)),
        Category.OPTIMIZER_STATE: Change(parts=parts if stage >= 1 else 1),
        Category.GRADIENTS: _gradients(units, parts, options),
    }
    if stage == 3:
        changes[Category.PARAMETERS] = Change(parts=parts, extra_bytes=_held(unit.parameter_bytes for unit in units))
    return Division(changes=changes)


def _gradients(units: tuple[Unit, ...], parts: int, options: ParallelOptions) -> Change:
    """PyTorch (2.13) keeps gradients a second time, in buckets, unless `gradient_as_bucket_view` makes them one; then
    they exist throughout, since `zero_grad` frees only the views."""
    total, stage = sum(unit.gradient_bytes for unit in units), options.sharding.stage
    if stage == 3:
        return Change(parts=parts, extra_bytes=_held(unit.gradient_bytes for unit in units))
    if stage == 2:  # one bucket fills while another is on its way; the parts of others are given up after it
        return Change(parts=parts, extra_bytes=min(2 * options.bucket_bytes, total - total // parts))
    if options.gradient_as_bucket_view:
        return Change(floor_bytes=total)
    return Change(extra_bytes=total)


def _held(sizes: Iterable[int]) -> int:
    return sum(sorted(sizes)[-UNITS_HELD:])


def library_bytes(topology: Topology) -> int:
    """NCCL's buffers, outside PyTorch's allocator."""
    if topology.ranks == 1:
        return 0
    inside = 0
    if topology.inside is not None:
        by_nvlink = NCCL_PAIR_BYTES if topology.ranks == 2 else NCCL_GROUP_BYTES
        inside = by_nvlink if topology.inside.kind in ("nvlink", "infinity_fabric") else NCCL_OTHER_BYTES
    return inside + (NCCL_OTHER_BYTES if topology.between is not None else 0)
