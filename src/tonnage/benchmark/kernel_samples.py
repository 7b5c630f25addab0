"""From kernels in the benchmark database to samples for the kernel model: one work and what it took."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import TYPE_CHECKING

from tonnage.benchmark.backward_parts import split_backward
from tonnage.estimate.kernels.operators import works_of
from tonnage.estimate.kernels.work import Rules, Work
from tonnage.program.trace import Attribute, Operator
from tonnage.store.rows import KernelRow, Measurement

if TYPE_CHECKING:
    from tonnage.store.database import Database

# Single layers are measured with emptied caches: as if the program touched this much between two uses of a byte.
FLUSHED_BYTES = 1e12
_HOST_COPIES = ("HtoD", "DtoH")


def is_host_copy(kernel: str) -> bool:
    """Is this launch a copy between host and GPU, as the profiler names them?"""
    return any(word in kernel for word in _HOST_COPIES)


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """A work of one measurement and its seconds on the device."""

    key: str
    family: str
    gpu: str
    work: Work
    seconds: float
    footprint: float = FLUSHED_BYTES


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """What is known about the rows of one measurement."""

    key: str
    family: str
    gpu: str
    rules: Rules = field(default_factory=Rules)
    footprint: float = FLUSHED_BYTES

    @classmethod
    def of(cls, gpu: str, measurement: Measurement) -> Source:
        single = measurement.family.startswith("layer:")
        known = measurement.allocated_bytes
        return cls(
            key=measurement.key, family=measurement.family, gpu=gpu,
            rules=_rules(measurement.settings, measurement.structure),
            footprint=FLUSHED_BYTES if single or not known else float(known),
        )  # fmt: skip


def _rules(*settings: Mapping[str, Attribute]) -> Rules:
    return Rules(matmul_tf32=any(group.get("tf32") is True for group in settings))


@dataclass(frozen=True, slots=True)
class Kernel:
    """One kernel of an operator: its name and mean seconds."""

    name: str
    seconds: float


def database_samples(database: Database) -> Iterator[Sample]:
    """Samples of all measurements that have kernels."""
    measured = {(environment, m.key): m for environment, m in database.measurements()}
    of_measurement = groupby(database.kernels(), key=lambda entry: entry[:2])
    for (environment, key), entries in of_measurement:
        source = Source.of(environment.gpu, measured[environment, key])
        yield from samples_of(source, (row for _, _, row in entries))


def samples_of(source: Source, rows: Iterable[KernelRow]) -> Iterator[Sample]:
    """Samples of the rows of one measurement. Rows of one operator and phase follow each other."""
    for (operator, _), group in groupby(rows, key=lambda row: (row.operator, row.phase)):
        sequences = _sequences(list(group))
        if not sequences or any(is_host_copy(row.kernel) for row in sequences[0]):
            continue
        for work, seconds in _parts(operator, source.rules, sequences):
            if seconds > 0:
                yield Sample(
                    key=source.key, family=source.family, gpu=source.gpu, work=work, seconds=seconds,
                    footprint=source.footprint,
                )  # fmt: skip


def _sequences(rows: Sequence[KernelRow]) -> list[list[KernelRow]]:
    """Equal calls may launch different kernels: each sequence starts at position 0, the most frequent comes first."""
    found: list[list[KernelRow]] = []
    for row in rows:
        if row.position == 0:
            found.append([])
        if found:
            found[-1].append(row)
    return sorted(found, key=lambda sequence: -sequence[0].calls)


def _parts(operator: Operator, rules: Rules, sequences: Sequence[Sequence[KernelRow]]) -> Iterator[tuple[Work, float]]:
    """Each work of an operator with its seconds; works whose kernels cannot be told apart are left out."""
    works = works_of(operator, rules)
    main = [Kernel(row.kernel, row.seconds.mean) for row in sequences[0]]
    if operator.name == "aten::convolution_backward":
        seconds = split_backward([(kernel.name, kernel.seconds) for kernel in main], operator.attributes)
        yield from ((work, seconds[part]) for work in works if (part := _PART_OF_KIND[work.kind]) in seconds)
    elif works:
        added = _bias_seconds(main) if len(works) == 2 else 0.0
        yield works[0], _mean_seconds(sequences) - added


_PART_OF_KIND = {
    "convolution_data": "data",
    "convolution": "data",
    "convolution_weight": "weight",
    "reduction": "bias",
}


def _mean_seconds(sequences: Sequence[Sequence[KernelRow]]) -> float:
    calls = sum(sequence[0].calls for sequence in sequences)
    return sum(sequence[0].calls * sum(row.seconds.mean for row in sequence) for sequence in sequences) / calls


def _bias_seconds(kernels: Sequence[Kernel]) -> float:
    added = [kernel.seconds for kernel in kernels if "elementwise" in kernel.name]
    return added[-1] if added and len(kernels) > 1 else 0.0
