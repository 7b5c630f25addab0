"""One GPU model as the catalogue knows it. Plain frozen values; every figure carries its source."""

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """Where a figure comes from: a data sheet, a public log, or our own estimate."""

    key: str
    title: str
    vendor: str
    year: int
    url: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PeerLink:
    """The direct link between GPUs of one kind: all its lanes together, both directions added."""

    kind: str
    generation: int
    bytes_second: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Price:
    """What an hour of this GPU cost at one provider on one date."""

    usd_hour: float
    date: str
    source: Source


@dataclass(frozen=True, slots=True, kw_only=True)
class Gpu:
    """One GPU model. Rates are dense; `tflops` maps a dtype to `None` where the chip has no such arithmetic."""

    name: str
    aliases: tuple[str, ...]
    driver_name: str
    vendor: str
    architecture: str
    compute_capability: str
    sms: int
    base_clock_mhz: int
    boost_clock_mhz: int
    tflops: Mapping[str, float | None] = field(hash=False)
    memory_type: str
    memory_bytes: int
    usable_bytes: int
    context_bytes: int
    bandwidth_bytes_second: int
    l2_bytes: int
    tdp_watts: int
    pcie_generation: int
    pcie_lanes: int
    peer_link: PeerLink | None = None
    cpu_link_bytes_second: int | None = None
    price: Price | None = None
    note: str = ""
    sources: Mapping[str, tuple[Source, ...]] = field(hash=False, repr=False)

    def peak_tflops(self, dtype: str) -> float:
        """The best rate in a library: where `dtype` is missing or slower than fp32, libraries compute in fp32."""
        fp32 = self.tflops["fp32"] or 0.0
        return max(self.tflops.get(dtype) or 0.0, 0.0 if dtype == "fp64" else fp32)

    @property
    def pcie_bytes_second(self) -> int:
        """One direction of the PCIe link, after line coding, before protocol overhead."""
        return pcie_bytes_second(self.pcie_generation, self.pcie_lanes)

    @property
    def nvlink_bytes_second(self) -> int | None:
        """NVLink, both directions added, or `None` for a GPU without it."""
        return self.peer_link.bytes_second if self.peer_link and self.peer_link.kind == "nvlink" else None

    @property
    def price_usd_hour(self) -> float | None:
        return self.price.usd_hour if self.price else None


# Transfers per second of a lane and the share left by line coding: 8b/10b up to 2.0, 128b/130b up to 5.0,
# 242 of 256 bytes of a flit in 6.0 (PCI Express base specification).
_PCIE_LANE_BYTES_SECOND = {1: 250e6, 2: 500e6, 3: 8e9 / 8 * 128 / 130, 4: 16e9 / 8 * 128 / 130, 5: 32e9 / 8 * 128 / 130}
_PCIE_LANE_BYTES_SECOND[6] = 64e9 / 8 * 242 / 256


def pcie_bytes_second(generation: int, lanes: int) -> int:
    """One direction of a PCIe link, after line coding: 15.8 GB/s for generation 3 with 16 lanes."""
    return round(_PCIE_LANE_BYTES_SECOND[generation] * lanes)
