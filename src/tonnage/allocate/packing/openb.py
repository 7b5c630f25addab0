"""Nodes and pods from the text of openb files (Alibaba, 2023): comma-separated, with a header line."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from tonnage.allocate.packing.pods import WHOLE_GPU_MILLI, Node, Pod
from tonnage.errors import InvalidFile

_NODE_COLUMNS = ("sn", "cpu_milli", "memory_mib", "gpu", "model")
_POD_COLUMNS = ("name", "cpu_milli", "memory_mib", "num_gpu", "gpu_milli")
_MOST = 2**40  # of any number: sums stay exact in double precision
_MOST_GPUS = 1024  # of a node


def parse_nodes(lines: Iterable[str], source: str) -> tuple[Node, ...]:
    """Raises `InvalidFile` with the file's name and the line. Nodes without GPUs are allowed, but not nothing else."""
    nodes = tuple(_node(row) for row in _rows(lines, source, _NODE_COLUMNS))
    if not any(node.gpu_count for node in nodes):
        raise InvalidFile(f"{source}: no node has a GPU", "the column gpu tells how many GPUs a node has")
    return nodes


def parse_pods(lines: Iterable[str], source: str) -> tuple[Pod, ...]:
    """Raises `InvalidFile`. The column gpu_spec may be missing; columns that are not needed are not read."""
    pods = tuple(_pod(row) for row in _rows(lines, source, _POD_COLUMNS))
    if not any(pod.demand_milli for pod in pods):
        raise InvalidFile(f"{source}: no pod asks for a GPU", "the column num_gpu tells how many GPUs a pod needs")
    return pods


@dataclass(frozen=True, slots=True)
class _Row:
    cells: dict[str, str]
    place: str  # file and line

    def text(self, column: str) -> str:
        value = self.cells.get(column, "").strip()
        return "" if value.lower() == "nan" else value

    def number(self, column: str) -> int:
        text = self.text(column)
        if not text.isascii() or not text.lstrip("-").isdigit():
            raise InvalidFile(f"{self.place}: {column} must be a whole number, not {text!r}")
        if not 0 <= int(text) <= _MOST:
            raise InvalidFile(f"{self.place}: {column} must be from 0 to 2^40, not {text}")
        return int(text)


def _node(row: _Row) -> Node:
    if row.number("gpu") > _MOST_GPUS:
        raise InvalidFile(f"{row.place}: gpu must be at most {_MOST_GPUS}, not {row.text('gpu')}")
    return Node(
        name=row.text("sn"), cpu_milli=row.number("cpu_milli"), memory_mib=row.number("memory_mib"),
        gpu_count=row.number("gpu"), model=row.text("model"),
    )  # fmt: skip


def _pod(row: _Row) -> Pod:
    count, milli = row.number("num_gpu"), row.number("gpu_milli")
    if count == 1 and not 1 <= milli <= WHOLE_GPU_MILLI:
        raise InvalidFile(f"{row.place}: gpu_milli must be from 1 to 1000 for a pod with one GPU, not {milli}")
    if count > 1 and milli != WHOLE_GPU_MILLI:
        raise InvalidFile(f"{row.place}: gpu_milli must be 1000 for a pod with {count} GPUs, not {milli}")
    models = frozenset(model.strip() for model in row.text("gpu_spec").split("|") if model.strip())
    return Pod(
        name=row.text("name"), cpu_milli=row.number("cpu_milli"), memory_mib=row.number("memory_mib"),
        gpu_count=count, gpu_milli=milli if count else 0, models=models if count else frozenset(),
    )  # fmt: skip


def _rows(lines: Iterable[str], source: str, needed: tuple[str, ...]) -> Iterator[_Row]:
    reader = csv.reader(lines)
    try:
        header = [name.strip() for name in next(reader, [])]
        if not header:
            raise InvalidFile(f"{source} is empty", f"its first line names the columns: {','.join(needed)}")
        missing = [name for name in needed if name not in header]
        if missing:
            raise InvalidFile(f"{source}: there is no column {missing[0]}", f"needed are {', '.join(needed)}")
        for cells in reader:
            place = f"{source}, line {reader.line_num}"
            if cells and len(cells) != len(header):
                raise InvalidFile(f"{place}: {len(cells)} values, but {len(header)} columns")
            if cells:
                yield _Row(dict(zip(header, cells, strict=True)), place)
    except csv.Error as error:
        raise InvalidFile(f"{source}, line {reader.line_num}: {error}") from None
