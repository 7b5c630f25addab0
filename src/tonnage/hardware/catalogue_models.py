"""The shape of gpus.yaml, checked once when it is loaded."""

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, PositiveFloat, PositiveInt

SOURCE_GROUPS = (
    "sms",
    "clocks",
    "compute",
    "total",
    "usable",
    "bandwidth",
    "cache",
    "power",
    "links",
    "context",
)
Group = Literal[
    "default", "sms", "clocks", "compute", "total", "usable", "bandwidth", "cache", "power", "links", "context"
]


class Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class SourceSection(Section):
    title: str
    vendor: str
    year: int = Field(ge=2007, le=2100)
    url: str | None = None


class ChipSection(Section):
    vendor: Literal["nvidia", "amd"]
    architecture: str
    compute_capability: str = Field(pattern=r"^(\d+\.\d|gfx[0-9a-f]+)$")
    sms: PositiveInt


class ClockSection(Section):
    base: PositiveInt
    boost: PositiveInt


class TflopsSection(Section):
    fp64: PositiveFloat | None = None
    fp32: PositiveFloat
    tf32: PositiveFloat | None
    fp16: PositiveFloat | None
    bf16: PositiveFloat | None
    fp8: PositiveFloat | None


class MemorySection(Section):
    type: Literal["GDDR5", "GDDR5X", "GDDR6", "GDDR6X", "GDDR7", "HBM2", "HBM2e", "HBM3", "HBM3e"]
    total_mib: PositiveInt
    usable_mib: PositiveInt
    context_mib: PositiveInt
    bandwidth_gb_second: PositiveFloat
    l2_kib: PositiveInt


class PcieSection(Section):
    generation: int = Field(ge=1, le=6)
    lanes: Literal[1, 2, 4, 8, 16]


class PeerLinkSection(Section):
    kind: Literal["nvlink", "infinity_fabric"]
    generation: PositiveInt
    gb_second: PositiveFloat


class PriceSection(Section):
    usd_hour: PositiveFloat
    date: str = Field(pattern=r"^\d{4}-\d{2}(-\d{2})?$")
    source: str


class GpuSection(Section):
    name: str
    aliases: tuple[str, ...]
    driver_name: str | None = None
    chip: ChipSection
    clock_mhz: ClockSection
    tflops: TflopsSection
    memory: MemorySection
    tdp_watts: PositiveInt
    pcie: PcieSection
    peer_link: PeerLinkSection | None
    cpu_link_gb_second: PositiveFloat | None = None
    price: PriceSection | None = None
    source: dict[Group, str | tuple[str, ...]]
    note: str = ""


class CatalogueFile(Section):
    sources: dict[str, SourceSection]
    gpus: tuple[GpuSection, ...]
