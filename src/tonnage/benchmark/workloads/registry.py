"""The families by name."""

from tonnage.benchmark.workloads.convolutional import Convolutional
from tonnage.benchmark.workloads.family import Family
from tonnage.benchmark.workloads.mlp import Mlp
from tonnage.benchmark.workloads.rnn import Rnn
from tonnage.benchmark.workloads.transformer import Transformer
from tonnage.benchmark.workloads.unet import Unet
from tonnage.errors import NotFound
from tonnage.hardware.catalogue import nearest

FAMILIES: dict[str, Family] = {family.name: family for family in (Convolutional(), Mlp(), Rnn(), Transformer(), Unet())}


def find_family(name: str) -> Family:
    """The family of that name; raises `NotFound` with the nearest one."""
    if name in FAMILIES:
        return FAMILIES[name]
    meant = nearest(name, FAMILIES)
    listing = f"families are {', '.join(FAMILIES)}"
    raise NotFound(f"unknown family {name!r}", f"did you mean {meant}? {listing}" if meant else listing)
