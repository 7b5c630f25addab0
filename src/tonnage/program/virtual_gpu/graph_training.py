"""What training adds to a graph: a loss, an optimizer, and what both keep in memory."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import torch
from torch.utils._pytree import tree_leaves

from tonnage.errors import CaptureError

Optimizer = Callable[[Iterable[torch.nn.Parameter]], torch.optim.Optimizer]


class Stash:
    """What autograd keeps of the forward pass: each tensor counts to the first node that wants it."""

    def __init__(self, running: Callable[[], str], weights: Iterable[torch.Tensor]) -> None:
        self._running = running
        self._seen = {weight.untyped_storage()._cdata for weight in weights}
        self.bytes: dict[str, int] = {}

    def watching(self) -> torch.autograd.graph.saved_tensors_hooks:
        return torch.autograd.graph.saved_tensors_hooks(self._keep, lambda tensor: tensor)

    def _keep(self, tensor: torch.Tensor) -> torch.Tensor:
        storage = tensor.untyped_storage()
        if storage._cdata not in self._seen:
            self._seen.add(storage._cdata)
            name = self._running()
            self.bytes[name] = self.bytes.get(name, 0) + storage.nbytes()
        return tensor


def state_bytes(weight: torch.Tensor, optimizer: torch.optim.Optimizer) -> int:
    kept = [weight.grad, *optimizer.state.get(weight, {}).values()]
    return sum(tensor.nbytes for tensor in kept if isinstance(tensor, torch.Tensor))


def as_on_gpu(optimizer: torch.optim.Optimizer) -> torch.optim.Optimizer:
    """Optimizers update all weights at once on GPUs, and so do ours where they can."""
    for group in optimizer.param_groups:
        if group.get("foreach", False) is None and not group.get("fused"):
            group["foreach"] = True
    return optimizer


def loss_of(output: Any) -> torch.Tensor:
    """What training descends on: the loss that a model returns, alone or by name; else the sum of all that it returns."""
    named = output.get("loss") if isinstance(output, Mapping) else getattr(output, "loss", None)
    tensors = [t for t in tree_leaves(output if named is None else named) if isinstance(t, torch.Tensor)]
    trained = [t for t in tensors if t.requires_grad]
    if not trained:
        raise CaptureError("nothing that the model returns depends on its weights", "split it for inference")
    if len(trained) == 1 and trained[0].numel() == 1:
        return trained[0].squeeze()
    return torch.stack([t.float().sum() for t in trained]).sum()
