"""What a GPU can do at best, from its catalogue entry: rates that a utilisation is a share of."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

import numpy as np

from tonnage.estimate.kernels.table import ARITHMETICS, Floats
from tonnage.hardware import Gpu

# Bytes that an SM can ask of the last-level cache in one cycle (NVIDIA's figure for Volta and later).
L2_BYTES_CYCLE = 64
_ADDRESSED = {0: 150e6, 1: 1.5e9}  # bytes whose addresses an older and a newer GPU keep translated, measured


class Library(IntEnum):
    """Generations of the vendors' kernel libraries: GPUs of one generation run the same kernels."""

    PASCAL = 0
    VOLTA = 1
    AMPERE = 2
    HOPPER = 3

    @classmethod
    def of(cls, gpu: Gpu) -> Library:
        major = compute_capability(gpu)
        if major is None:
            return cls.AMPERE  # AMD's tiles and splits are closest to these
        return cls.PASCAL if major < 7 else cls.VOLTA if major < 8 else cls.AMPERE if major < 9 else cls.HOPPER


_L1_BYTES = {Library.PASCAL: 1e3, Library.VOLTA: 64e3, Library.AMPERE: 128e3, Library.HOPPER: 128e3}


@dataclass(frozen=True, slots=True, kw_only=True)
class Rates:
    """Rates per second, at the boost clock."""

    operations: Floats  # by arithmetic
    bandwidth: float
    stream_share: float  # of the bandwidth, what a kernel that only streams can get
    l2_bandwidth: float
    l2_bytes: float  # what one SM sees of it
    sms: float
    clock: float
    library: Library = Library.HOPPER
    l1_bytes: float = 128e3  # of one SM
    page_bytes: float = 16384.0  # pieces shorter than this waste some of the bandwidth
    addressed_bytes: float = 1.5e9

    @property
    def stream(self) -> float:
        return self.bandwidth * self.stream_share

    @classmethod
    def of(cls, gpu: Gpu) -> Rates:
        clock = gpu.boost_clock_mhz * 1e6
        library = Library.of(gpu)
        stacked = gpu.memory_type.startswith("HBM")
        return cls(
            operations=np.array([max(gpu.peak_tflops(name), 0.01) * 1e12 for name in ARITHMETICS]),
            bandwidth=float(gpu.bandwidth_bytes_second),
            stream_share=stream_share(gpu),
            l2_bandwidth=gpu.sms * L2_BYTES_CYCLE * clock,
            l2_bytes=gpu.l2_bytes * (0.5 if _has_two_caches(gpu) else 1.0),
            sms=float(gpu.sms),
            clock=clock,
            library=library,
            l1_bytes=_L1_BYTES[library],
            page_bytes=16384.0 if stacked else 2048.0,  # HBM has about eight times the banks of a GDDR board
            addressed_bytes=_ADDRESSED[min(library, 1)],
        )


def stream_share(gpu: Gpu) -> float:
    """By the kind of memory. Pascal's HBM: NVIDIA's STREAM figure (Volta white paper). GDDR of boards for data centres
    pays for error correction inside the memory, less since Ampere; GeForce has none. Others measured."""
    if gpu.memory_type.startswith("HBM"):
        return 0.76 if gpu.architecture == "Pascal" else 0.90
    if "GeForce" in gpu.driver_name or "TITAN" in gpu.driver_name:
        return 0.91
    return 0.84 if (compute_capability(gpu) or 8.0) >= 8 else 0.76


def compute_capability(gpu: Gpu) -> float | None:
    """As a number, or None for a GPU that is not NVIDIA's."""
    try:
        return float(gpu.compute_capability)
    except ValueError:
        return None


def _has_two_caches(gpu: Gpu) -> bool:
    """GA100, GH100 and GB100 have two halves, each of which keeps a copy of what its SMs read."""
    number = compute_capability(gpu)
    return number is not None and number >= 8 and number % 1 == 0 and gpu.memory_type.startswith("HBM")
