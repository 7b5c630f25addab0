"""The same work in this process, unsplit: what a run must be equal to."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch.fx import GraphModule
from torch.utils import _pytree as pytree

from tonnage.stages.cutting import weights_of
from tonnage.stages.training import Training


def infer(module: GraphModule, samples: Sequence[Sequence[Any]]) -> list[list[Any]]:
    """Flat outputs of each sample, one after the other, as buffers may change."""
    with _one_thread(), _unchanged(module), torch.no_grad():
        return [_call(module, sample) for sample in samples]


def train(
    module: GraphModule, loss: str, samples: Sequence[Sequence[Any]], training: Training
) -> tuple[list[float], dict[str, torch.Tensor]]:
    """Mean losses of the steps, and the weights after them: gradients of micro-batches are added up, then one update."""
    count, place = training.micro_batches, _place_of(module, loss)
    optimizer = training.make_optimizer([weight for weight in module.parameters() if weight.requires_grad])
    losses: list[float] = []
    with _one_thread(), _unchanged(module):
        for number, sample in enumerate(samples[: training.steps * count]):
            found: torch.Tensor = _call(module, sample)[place]
            found.backward(torch.full_like(found, 1.0 / count))  # type: ignore[no-untyped-call]
            losses.append(found.item())
            if number % count == count - 1:
                optimizer.step()
                optimizer.zero_grad(set_to_none=True)
        trained = {name: weight.detach().clone() for name, weight in weights_of(module).items()}
    means = [math.fsum(losses[start : start + count]) / count for start in range(0, len(losses), count)]
    return means, trained


def difference(one: Any, other: Any) -> float:
    """The largest between two values; 0 if they are equal to the last bit, infinite if they differ in kind."""
    if isinstance(one, torch.Tensor) and isinstance(other, torch.Tensor):
        one, other = one.cpu(), other.cpu()
        if one.shape != other.shape or one.dtype != other.dtype:
            return math.inf
        if torch.equal(one, other) or _same_bits(one, other):
            return 0.0
        return float((one.double() - other.double()).abs().max())
    if isinstance(one, Mapping) and isinstance(other, Mapping):
        return max((difference(one[name], other[name]) for name in one), default=0.0)
    if isinstance(one, list | tuple) and isinstance(other, list | tuple) and len(one) == len(other):
        return max((difference(*pair) for pair in zip(one, other, strict=True)), default=0.0)
    return 0.0 if one == other else math.inf


def _same_bits(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Also where there are NaN, which equal nothing."""
    return torch.equal(one.contiguous().view(torch.uint8), other.contiguous().view(torch.uint8)) if one.dim() else False


def _call(module: GraphModule, sample: Sequence[Any]) -> list[Any]:
    codegen: Any = module.graph._codegen
    arguments, keywords = pytree.tree_unflatten(
        [each.clone() if isinstance(each, torch.Tensor) else each for each in sample], codegen.pytree_info.in_spec
    )
    return pytree.tree_leaves(module(*arguments, **keywords))


def _place_of(module: GraphModule, loss: str) -> int:
    outputs: Any = next(node for node in module.graph.nodes if node.op == "output").args[0]
    return [getattr(node, "name", "") for node in outputs].index(loss)


@contextmanager
def _unchanged(module: GraphModule) -> Iterator[None]:
    """Weights and buffers are afterwards what they were."""
    before = [(tensor, tensor.detach().clone()) for tensor in weights_of(module).values()]
    try:
        yield
    finally:
        with torch.no_grad():
            for tensor, value in before:
                tensor.copy_(value)


@contextmanager
def _one_thread() -> Iterator[None]:
    """As workers compute: how a sum is divided among threads decides its last bits."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
