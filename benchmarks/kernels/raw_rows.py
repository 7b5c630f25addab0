"""Reads what collect.py and collect_points.py wrote, as samples for the kernel model."""

from collections.abc import Iterator
from pathlib import Path

from load import kernels, measurement_of, rows

from tonnage.benchmark.kernel_samples import Sample, Source, samples_of

RESULTS = Path(__file__).parent / "results"


def read_samples(gpu: str = "H200", folder: Path = RESULTS) -> Iterator[Sample]:
    """Samples of all layers and points in a folder of results."""
    for path in sorted(folder.glob("*.jsonl.gz")):
        for row in rows(path):
            yield from samples_of(Source.of(gpu, measurement_of(row)), kernels(row))
