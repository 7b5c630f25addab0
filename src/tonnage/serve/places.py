"""Where the instances of a model run: on the processor, or on GPUs of this machine."""

from __future__ import annotations

import logging
import os

from tonnage.errors import InvalidFile
from tonnage.serve.configuration import CPU, GPU, InstanceGroup, ModelConfiguration
from tonnage.serve.instance_process import InstancePlace

log = logging.getLogger("tonnage.serve")


def places_of(configuration: ModelConfiguration, gpus: tuple[int, ...]) -> list[InstancePlace]:
    """One for each instance; all on the processor where the server uses no GPU. Threads are shared out among them. Raises
    `InvalidFile` where a group names a GPU that the server does not use."""
    places: list[int | None] = []
    for group in configuration.groups:
        places += [gpu for gpu in _devices(group, gpus, configuration.name) for _ in range(group.count)]
    threads = max((os.cpu_count() or 1) // len(places), 1)
    return [InstancePlace(gpu=gpu, threads=threads) for gpu in places]


def _devices(group: InstanceGroup, gpus: tuple[int, ...], name: str) -> tuple[int | None, ...]:
    if not gpus and group.kind == GPU:
        log.warning("a model is meant for a GPU and runs on the processor: see --device", extra={"model": name})
    if not gpus or group.kind == CPU:
        return (None,)
    missing = [gpu for gpu in group.gpus if gpu not in gpus]
    if missing:
        used = ", ".join(map(str, gpus))
        raise InvalidFile(
            f"an instance_group of {name} names GPU {missing[0]}; this server uses {used}", "see --device"
        )
    return group.gpus or gpus
