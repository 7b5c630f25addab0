"""What clusters call GPUs of the catalogue, as users tell it and as it can be guessed. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

from tonnage.errors import NotFound, UsageError
from tonnage.hardware.catalogue import all_gpus, find_gpu, normalise


def parse_types(text: str) -> dict[str, str]:
    """`H200=h200,V100 SXM2 16GB=v100` as a table, by the names of the catalogue."""
    table = {}
    for pair in filter(None, (pair.strip() for pair in text.split(","))):
        gpu, equals, kind = pair.rpartition("=")
        if not equals or not re.fullmatch(r"[\w.-]*", kind):
            raise UsageError(
                f"--option gpu_types={text}: {pair!r} is not GPU=TYPE", "for example: --option gpu_types=H200=h200"
            )
        table[find_gpu(gpu).name] = kind
    return table


def models_called(name: str, given: Mapping[str, str], usual: Callable[[str], str]) -> tuple[str, ...]:
    """GPUs of the catalogue that a cluster may mean: as it was told, as the catalogue spells it, or as is usual there."""
    told = tuple(gpu for gpu, kind in given.items() if kind == name)
    if told or not name:
        return told
    try:
        return (find_gpu(name).name,)
    except NotFound:
        return tuple(gpu.name for gpu in all_gpus() if normalise(usual(gpu.name)) == normalise(name))
