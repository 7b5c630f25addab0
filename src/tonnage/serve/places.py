"""Where the instances of a model run: on the processor, or on GPUs of this machine."""

from __future__ import annotations

import os

from tonnage.errors import InvalidFile
from tonnage.serve.configuration import CPU, GPU, InstanceGroup, ModelConfiguration
from tonnage.serve.instance_process import InstancePlace


def places_of(configuration: ModelConfiguration, gpus: tuple[int, ...]) -> list[InstancePlace]:
    """One for each instance. Threads are shared out among those on the processor. Raises `InvalidFile` where a group
    wants a GPU that this server does not use."""
    places: list[int | None] = []
    for group in configuration.groups:
        places += [gpu for gpu in _devices(group, gpus, configuration.name) for _ in range(group.count)]
    threads = max((os.cpu_count() or 1) // len(places), 1)
    return [InstancePlace(gpu=gpu, threads=threads) for gpu in places]


def _devices(group: InstanceGroup, gpus: tuple[int, ...], name: str) -> tuple[int | None, ...]:
    if group.kind == CPU or (group.kind != GPU and not gpus):
        return (None,)
    missing = [gpu for gpu in group.gpus if gpu not in gpus]
    if missing or not gpus:
        wanted = f"GPU {missing[0]}" if missing else "a GPU"
        has = f"uses {', '.join(map(str, gpus))}" if gpus else "uses none"
        raise InvalidFile(f"an instance_group of {name} wants {wanted}, but this server {has}", "see --device")
    return group.gpus or gpus
