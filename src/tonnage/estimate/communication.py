"""How libraries for collectives behave: protocols, their latencies and what they leave of a link's bandwidth.

Figures of NCCL are those of its own model, by which it chooses algorithm and protocol: `src/graph/tuning.cc` (tables
`baseLat` and `hwLat`, microseconds) at commit b647562 (2.21) and `src/graph/topo.h` (GB/s of one link) at commit 069a3d4
(2026). Everything that is not from there says where it is from.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from tonnage.units import MIB

US = 1e-6


class Algorithm(StrEnum):
    """How ranks pass data on."""

    RING = "ring"
    TREE = "tree"  # two binary trees between nodes, a chain inside a node
    MULTICAST = "multicast"  # the switch adds and copies: NVLink SHARP


@dataclass(frozen=True, slots=True, kw_only=True)
class Protocol:
    """One way of handing over data. Hops are keyed by kind of link; `bandwidth` is the share that is left for data."""

    name: str
    algorithm: Algorithm
    base_seconds: float
    hop_seconds: Mapping[str, float] = field(hash=False)
    bandwidth: float
    needs: tuple[str, ...] = ()  # kinds of links inside the node on which alone it is used


@dataclass(frozen=True, slots=True, kw_only=True)
class Library:
    """What is known of one implementation of collectives. Links of unknown kind count as `network`."""

    name: str
    protocols: tuple[Protocol, ...]
    efficiency: Mapping[str, float] = field(hash=False)  # share of a link's nominal bandwidth that a collective reaches
    kernel_contention: float = 0.0

    def share(self, kind: str) -> float:
        return self.efficiency.get(kind, self.efficiency["network"])


def _hops(nvlink: float, pcie: float, network: float) -> dict[str, float]:
    # AMD's links are not in NCCL's table; RCCL is a fork of NCCL, and we take NVLink's column for them.
    return {"nvlink": nvlink * US, "infinity_fabric": nvlink * US, "pcie": pcie * US, "network": network * US}


def _protocol(
    algorithm: Algorithm, name: str, base: float, hops: tuple[float, float, float], bandwidth: float, *needs: str
) -> Protocol:
    """Times in microseconds; hops over NVLink, PCIe and the network."""
    return Protocol(
        name=name,
        algorithm=algorithm,
        base_seconds=base * US,
        hop_seconds=_hops(*hops),
        bandwidth=bandwidth,
        needs=needs,
    )


# LL sends a flag with every 4 bytes, LL128 with every 120 (NCCL issue 281); Simple sends large chunks and waits.
# Bandwidths: LL a quarter for a ring and 1/3.8 for a tree, LL128 0.92 and 0.915, trees another 0.92 (tuning.cc).
_GPU_LINKS = ("nvlink", "infinity_fabric")
NCCL_PROTOCOLS = (
    _protocol(Algorithm.RING, "LL", 6.6, (0.6, 1.0, 2.7), 1 / 4),
    _protocol(Algorithm.RING, "LL128", 14.0, (1.9, 2.5, 4.0), 0.92, *_GPU_LINKS),
    _protocol(Algorithm.RING, "Simple", 8.4, (3.4, 5.7, 14.0), 1.0),
    _protocol(Algorithm.TREE, "LL", 6.8, (0.6, 1.0, 5.0), 0.92 / 3.8),
    _protocol(Algorithm.TREE, "LL128", 14.0, (1.25, 1.9, 8.5), 0.92 * 0.915, *_GPU_LINKS),
    _protocol(Algorithm.TREE, "Simple", 0.0, (28.0, 28.0, 28.0), 0.92),
    # 275 GB/s of an all-reduce's own bytes where rings reach 370 GB/s (a maintainer in nccl-tests issue 212, 2024-05).
    _protocol(Algorithm.MULTICAST, "Simple", 0.0, (23.0, 23.0, 23.0), 275 / 370, "nvlink"),
)

# How much slower kernels run while NCCL's kernels take some of the multiprocessors and of the memory bandwidth. Our
# assumption: NCCL runs 16 to 32 blocks (its channels) on GPUs with 108 to 148 multiprocessors, and rarely fills them.
NCCL_CONTENTION = 0.10

NCCL = Library(
    name="NCCL",
    protocols=NCCL_PROTOCOLS,
    efficiency={
        "nvlink": 20.0 / 25.0,  # topo.h: SM70_NVLINK_BW, SM80_NVLINK_BW; Hopper 20.6, Blackwell 40.1 of 50
        "pcie": 12.0 / 15.75,  # topo.h: PCI_BW, third generation with 16 lanes
        "infinity_fabric": 48.0 / 64.0,  # AMD, "Understanding RCCL Bandwidth and xGMI Performance", 2025-03-02
        "network": 12.0 / 12.5,  # topo.h: NET_BW, 100 Gbit/s
        "ethernet": 0.90,  # our assumption: TCP's headers, and processors that copy
    },
    kernel_contention=NCCL_CONTENTION,
)


def gloo(hop_seconds: float, base_seconds: float = 0.0) -> Library:
    """Gloo on processors: one ring, with latencies that have to be measured. Its links are given as they were measured."""
    ring = Protocol(
        name="TCP",
        algorithm=Algorithm.RING,
        base_seconds=base_seconds,
        hop_seconds={"network": hop_seconds},
        bandwidth=1.0,
    )
    return Library(name="gloo", protocols=(ring,), efficiency={"network": 1.0})


# What a communicator takes outside PyTorch's allocator. NVLink: measured on 4 A100 by a user, 544 MiB for a group of two
# and 688 MiB for more (NCCL issue 964, 2023-08). Others: 10 MiB for each channel and direction (NCCL issue 1685, 2025-04)
# with 4 channels, which is our assumption. NVLink SHARP and large clusters take more; that is not modelled.
NCCL_PAIR_BYTES = 544 * MIB
NCCL_GROUP_BYTES = 688 * MIB
NCCL_OTHER_BYTES = 4 * 2 * 10 * MIB
