"""Where measuring happens: hardware, driver and libraries. Runs in the measuring process, since it asks torch."""

from __future__ import annotations

import os
import platform
import sys
from dataclasses import dataclass

import torch

from tonnage import __version__
from tonnage.benchmark.power import PowerMeter
from tonnage.errors import NotFound, Unreachable
from tonnage.hardware.catalogue import match_gpu
from tonnage.hardware.cpu import cpu_model
from tonnage.hardware.probe import LocalGpu, LocalMachine, Nvml, import_nvml, probe
from tonnage.store.rows import Environment


@dataclass(frozen=True, slots=True)
class Place:
    """A device to measure on. `others_bytes` is what other processes held of the GPU at the beginning."""

    device: str  # "cuda" or "cpu"
    environment: Environment
    meter: PowerMeter | None = None
    others_bytes: int = 0


def find_place(device: str, gpu_index: int, nvml: Nvml | None = None) -> Place:
    """The device that was asked for, ready to measure; `auto` is a GPU where there is one."""
    if device == "auto":
        device = "cuda" if torch.cuda.is_available() else "cpu"
    if device == "cpu":
        return Place("cpu", _environment("cpu"))
    _check_gpu(gpu_index)
    return _gpu_place(gpu_index, nvml)


def _check_gpu(index: int) -> None:
    if not torch.cuda.is_available():
        raise Unreachable("torch finds no GPU on this machine", _hint())
    count = torch.cuda.device_count()
    if index >= count:
        raise NotFound(f"there is no GPU {index}: torch finds {count}, counted from 0", "see `tonnage gpus --here`")


def _hint() -> str:
    if torch.version.cuda is None:
        return f"torch {torch.__version__} is built without CUDA: install a build with it, or measure with --device cpu"
    return "does nvidia-smi show a GPU, and does CUDA_VISIBLE_DEVICES not hide it? --device cpu works without one"


def _gpu_place(index: int, nvml: Nvml | None) -> Place:
    # The driver is asked first: making torch's context would itself take memory of the GPU.
    nvml = nvml or import_nvml()
    machine = _probed(nvml)
    properties = torch.cuda.get_device_properties(index)
    found = find_local(machine, f"GPU-{getattr(properties, 'uuid', '')}")
    torch.cuda.set_device(index)
    torch.ones(1, device="cuda").sum().item()  # a GPU that cannot do this shall not be measured
    environment = _environment("cuda", properties.name, properties.total_memory, machine, found)
    return Place("cuda", environment, _meter(nvml, found), found.used_bytes if found else 0)


def _probed(nvml: Nvml) -> LocalMachine | None:
    try:
        return probe(nvml)
    except Unreachable:  # torch works without NVML, as in some containers; then nobody knows driver and power
        return None


def find_local(machine: LocalMachine | None, uuid: str) -> LocalGpu | None:
    """The driver's own view of the GPU that torch uses. A part of a GPU (MIG) is not in its list."""
    gpus = machine.gpus if machine else ()
    return next((gpu for gpu in gpus if gpu.uuid == uuid), None)


def _meter(nvml: Nvml, gpu: LocalGpu | None) -> PowerMeter | None:
    if gpu is None:
        return None
    nvml.nvmlInit()  # until this process ends
    return PowerMeter(nvml, nvml.nvmlDeviceGetHandleByIndex(gpu.index))


def _environment(
    device: str,
    gpu_name: str = "",
    memory_bytes: int | None = None,
    machine: LocalMachine | None = None,
    local: LocalGpu | None = None,
) -> Environment:
    known = local.gpu if local else match_gpu(gpu_name, memory_bytes or 0)
    cudnn = torch.backends.cudnn.version() if device == "cuda" else None  # type: ignore[no-untyped-call]
    return Environment(
        device=device,
        gpu=known.name if known else gpu_name,
        gpu_memory_bytes=local.memory_bytes if local else memory_bytes,
        power_limit_watts=local.power_limit_watts if local else None,
        driver=machine.driver_version if machine else "",
        cuda=(torch.version.cuda or "") if device == "cuda" else "",
        cudnn=str(cudnn or ""),
        torch=str(torch.__version__),
        python=".".join(map(str, sys.version_info[:3])),
        platform=f"{platform.system()} {platform.machine()}",
        cpu=cpu_model(),
        cpu_cores=os.cpu_count(),
        tonnage=__version__,
    )
