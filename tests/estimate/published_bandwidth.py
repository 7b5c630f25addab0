"""All-reduce bus bandwidths that others have published, for messages of gigabytes."""

from typing import NamedTuple


class Published(NamedTuple):
    gpu: str
    count: int
    low_bytes_second: float
    high_bytes_second: float
    source: str
    date: str


PUBLISHED = (
    Published("A100 SXM 80GB", 8, 230e9, 250e9, "docs.alayanew.com: NCCL-tests in practice", "2026-05-06"),
    Published("H100 SXM", 8, 460e9, 480e9, "NCCL maintainer in NVIDIA/nccl-tests issue 212: about 480", "2024-05-06"),
    Published("H200", 8, 460e9, 480e9, "NVIDIA/nccl-tests issue 272: 475 measured", "2024-11-27"),
    Published("A100 PCIe 80GB", 3, 15e9, 25e9, "NVIDIA/nccl-tests issue 178: 20 where pairs have bridges", "2023-11-17"),
    Published("A100 PCIe 80GB", 2, 200e9, 245e9, "NVIDIA/nccl-tests issue 178: 208 over one bridge", "2023-11-17"),
    Published("MI300X", 8, 300e9, 345e9, "AMD, RCCL and xGMI bandwidth: 48 of 64 GB/s on each of 7 links", "2025-03-02"),
)  # fmt: skip
