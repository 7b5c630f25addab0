"""Modules compiled for a processor: oneDNN runs chains of layers as one, in its own order of weights and images.

TorchScript hands the chains to oneDNN. Where that turns out slower than the layers one by one, these run.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable
from typing import Any, TypeAlias

import torch
from torch import Tensor, nn

Run: TypeAlias = Callable[..., tuple[Tensor, ...]]
_WARM_UPS = 3  # the first two show TorchScript what it runs, and the third compiles
_TRIES = 5


def fastest(module: nn.Module, examples: tuple[Tensor, ...]) -> Run:
    """The fastest way to run a module on inputs of the shapes of the examples: compiled, layer by layer, or layer by layer
    with the channels of images together."""
    made = _compiled(module, examples)
    ways: list[Run] = [module, _together(module), *([made] if made is not None else [])]
    with torch.no_grad():
        best = [min(_seconds(way, examples) for _ in range(_TRIES)) for way in ways]
    return ways[best.index(min(best))]


def _seconds(run: Run, examples: tuple[Tensor, ...]) -> float:
    start = time.perf_counter()
    run(*examples)
    return time.perf_counter() - start


def _together(module: nn.Module) -> Run:
    def run(*inputs: Tensor) -> tuple[Tensor, ...]:
        images = (each.contiguous(memory_format=torch.channels_last) if each.dim() == 4 else each for each in inputs)
        made: tuple[Tensor, ...] = module(*images)
        return made

    return run


def _compiled(module: nn.Module, examples: tuple[Tensor, ...]) -> Run | None:
    """None where TorchScript or oneDNN are not to be had."""
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
