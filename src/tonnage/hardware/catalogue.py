"""The catalogue of GPU models: loaded and checked once, found by any usual spelling of a name."""

import difflib
import re
from collections.abc import Iterable
from functools import cache
from typing import TYPE_CHECKING

from tonnage.errors import NotFound
from tonnage.hardware.gpu import Gpu, PeerLink, Price, Source
from tonnage.units import KIB, MIB

if TYPE_CHECKING:
    from tonnage.hardware.catalogue_models import CatalogueFile, GpuSection

_GB = 10**9
_BRANDS = re.compile(r"\b(nvidia|amd|tesla|quadro|geforce|instinct)\b")


@cache
def all_gpus() -> tuple[Gpu, ...]:
    """Every GPU of the catalogue, in the order of the file."""
    catalogue = _load()
    sources = {key: Source(key=key, **section.model_dump()) for key, section in catalogue.sources.items()}
    return tuple(_gpu(section, sources) for section in catalogue.gpus)


def find_gpu(name: str) -> Gpu:
    """The GPU of that name or alias; case, spaces, dashes and brand words do not matter."""
    found = _index().get(normalise(name))
    if found is None:
        raise NotFound(f"unknown GPU {name!r}", _suggestion(name))
    return found


def match_gpu(driver_name: str, memory_bytes: int) -> Gpu | None:
    """The GPU that a driver calls so; memory tells models apart that share a name. `None` if there is none."""
    wanted = normalise(driver_name)
    named = [gpu for gpu in all_gpus() if wanted in _spellings(gpu)]
    close = [gpu for gpu in named if abs(gpu.memory_bytes - memory_bytes) <= 0.08 * gpu.memory_bytes]
    return min(close, key=lambda gpu: abs(gpu.memory_bytes - memory_bytes), default=None)


def normalise(name: str) -> str:
    """`NVIDIA A100-SXM4-80GB` as `a100sxm480gb`: what two spellings of one name have in common."""
    return re.sub(r"[^a-z0-9]", "", _BRANDS.sub(" ", name.lower().replace("_", " ")))


def nearest(name: str, candidates: Iterable[str]) -> str | None:
    """The candidate that the user may have meant."""
    by_spelling = {normalise(candidate): candidate for candidate in candidates}
    matches = difflib.get_close_matches(normalise(name), by_spelling, n=1, cutoff=0.6)
    return by_spelling[matches[0]] if matches else None


def _suggestion(name: str) -> str:
    listing = f"`tonnage gpus` lists all {len(all_gpus())}"
    wanted = normalise(name)
    variants = [gpu.name for gpu in all_gpus() if wanted and normalise(gpu.name).startswith(wanted)]
    if len(variants) > 1:
        return f"name one of {', '.join(variants)}; {listing}"
    meant = nearest(name, (gpu.name for gpu in all_gpus()))
    return f"did you mean {meant}? {listing}" if meant else listing


@cache
def _index() -> dict[str, Gpu]:
    index: dict[str, Gpu] = {}
    for gpu in all_gpus():
        for spelling in (gpu.name, *gpu.aliases):
            index[normalise(spelling)] = gpu
    return index


def _spellings(gpu: Gpu) -> set[str]:
    return {normalise(spelling) for spelling in (gpu.name, gpu.driver_name, *gpu.aliases)}


def _load() -> "CatalogueFile":
    # Needed for loading only, and slower to import than the file is to read.
    from importlib import resources

    import yaml

    from tonnage.hardware.catalogue_models import CatalogueFile

    text = resources.files("tonnage.hardware").joinpath("gpus.yaml").read_text("utf-8")
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    return CatalogueFile.model_validate(yaml.load(text, Loader=loader))


def _gpu(section: "GpuSection", sources: dict[str, Source]) -> Gpu:
    memory = section.memory
    return Gpu(
        name=section.name,
        aliases=section.aliases,
        driver_name=section.driver_name or (section.aliases[0] if section.aliases else section.name),
        **section.chip.model_dump(),
        base_clock_mhz=section.clock_mhz.base,
        boost_clock_mhz=section.clock_mhz.boost,
        tflops=section.tflops.model_dump(),
        memory_type=memory.type,
        memory_bytes=memory.total_mib * MIB,
        usable_bytes=memory.usable_mib * MIB,
        context_bytes=memory.context_mib * MIB,
        bandwidth_bytes_second=round(memory.bandwidth_gb_second * _GB),
        l2_bytes=memory.l2_kib * KIB,
        tdp_watts=section.tdp_watts,
        pcie_generation=section.pcie.generation,
        pcie_lanes=section.pcie.lanes,
        peer_link=_peer_link(section),
        cpu_link_bytes_second=round(section.cpu_link_gb_second * _GB) if section.cpu_link_gb_second else None,
        price=_price(section, sources),
        note=section.note,
        sources=_sources(section, sources),
    )


def _peer_link(section: "GpuSection") -> PeerLink | None:
    link = section.peer_link
    if link is None:
        return None
    return PeerLink(kind=link.kind, generation=link.generation, bytes_second=round(link.gb_second * _GB))


def _price(section: "GpuSection", sources: dict[str, Source]) -> Price | None:
    price = section.price
    if price is None:
        return None
    return Price(usd_hour=price.usd_hour, date=price.date, source=sources[price.source])


def _sources(section: "GpuSection", sources: dict[str, Source]) -> dict[str, tuple[Source, ...]]:
    from tonnage.hardware.catalogue_models import SOURCE_GROUPS

    resolved = {}
    for group in SOURCE_GROUPS:
        keys = section.source.get(group, section.source["default"])  # type: ignore[call-overload]  # a literal by table
        resolved[group] = tuple(sources[key] for key in ([keys] if isinstance(keys, str) else keys))
    return resolved
