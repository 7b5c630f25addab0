"""The process in which a user's program runs against the virtual GPU. Started by `tonnage.program.capture`."""

from __future__ import annotations

import json
import os
import runpy
import sys
from typing import Any

import torch

from tonnage.program.virtual_gpu import autocast, composites, cuda_api, data_dependent, patches, recurrent
from tonnage.program.virtual_gpu.device import DeviceMode
from tonnage.program.virtual_gpu.loop import EnoughSeen, Loop
from tonnage.program.virtual_gpu.modules import ModuleStack
from tonnage.program.virtual_gpu.operators import OperatorMode
from tonnage.program.virtual_gpu.recorder import Recorder

_ = data_dependent  # its rules register themselves


class VirtualGpu:
    """Everything that must be in place before the user's first line runs."""

    def __init__(self, steps: int, gpu: dict[str, Any]) -> None:
        patches.without_compiler()
        self.recorder = Recorder()
        self.modules = ModuleStack(self.recorder)
        self.operators = OperatorMode(self.recorder, self.modules)
        self.device = DeviceMode(self.operators)
        self.loop = Loop(self.operators, self.modules, steps)
        self.autocast = autocast.Autocast(self.operators.is_virtual)
        self._libraries = composites.install()
        self.autocast.install()
        cuda_api.CudaApi(self.recorder, gpu).install()
        self.modules.install()
        self.loop.install()
        recurrent.install()
        patches.install(self.device, self.loop, self.recorder)


def main() -> None:
    script, *arguments = sys.argv[1:]
    gpu = {"name": "NVIDIA H200", "compute_capability": (9, 0), "memory_bytes": 150754820096, "sms": 132, "l2_bytes": 62914560}
    virtual = VirtualGpu(4, gpu)
    sys.argv = [script, *arguments]
    sys.path[0] = os.path.dirname(os.path.abspath(script))
    try:
        with virtual.operators, virtual.device:
            runpy.run_path(script, run_name="__main__")
    except EnoughSeen:
        print("enough")
    r = virtual.recorder
    print(r.steps, len(r.event_kind), len(r.call_operator), len(r.operators), max_live(r), r.warnings, r.storage_bytes)


def max_live(r):
    cur = peak = 0
    for k, s in zip(r.event_kind, r.event_subject):
        if k == 0:
            cur += -(-r.block_bytes[s] // 512) * 512
        elif k == 1:
            cur -= -(-r.block_bytes[s] // 512) * 512
        peak = max(peak, cur)
    return peak / 2**20


if __name__ == "__main__":
    main()
