"""Modules compiled for a processor: oneDNN runs chains of layers as one, in its own order of weights and images.

TorchScript hands the chains to oneDNN. Measured on two cores of an EPYC, against layers one by one: SqueezeNet 2.5 times, a
small detector twice as fast (`benchmarks/serving/caffe_cpu.py`).
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

_WARM_UPS = 3  # the first two show TorchScript what it runs, and the third compiles


def compiled(module: nn.Module, examples: tuple[Tensor, ...]) -> Callable[..., tuple[Tensor, ...]] | None:
    """A function for inputs of the shapes of the examples; None where TorchScript or oneDNN are not to be had."""
    script: Any = torch.jit
    mkldnn: Any = torch.backends.mkldnn
    if not mkldnn.is_available() or not script._state._enabled.enabled:
        return None
    before = script.onednn_fusion_enabled()
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")  # of what depends on shapes, which stay as they are
        try:
            script.enable_onednn_fusion(True)
            made = script.freeze(script.trace(module.eval(), examples, check_trace=False))
            for _ in range(_WARM_UPS):
                made(*examples)
        finally:
            script.enable_onednn_fusion(before)

    def run(*inputs: Tensor) -> tuple[Tensor, ...]:
        found = made(*inputs)
        return found if isinstance(found, tuple) else (found,)

    return run
