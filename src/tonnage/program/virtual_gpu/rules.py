"""What CUDA's operators return, where torch's meta kernels are missing, slow or different; and values that can be known."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

aten = torch.ops.aten
Rule = Callable[..., Any]
_RULES: dict[Any, Rule] = {}
_SPLITS: set[Any] = set()


def rule(*overloads: Any, splits: bool = False) -> Callable[[Rule], Rule]:
    """Register what these overloads return. A rule that `splits` an operator accounts for the parts itself."""

    def register(function: Rule) -> Rule:
        for overload in overloads:
            _RULES[overload] = function
            if splits:
                _SPLITS.add(overload)
        return function

    return register


def splits(func: torch._ops.OpOverload) -> bool:
    return func in _SPLITS


def find(func: torch._ops.OpOverload) -> Rule | None:
    return _RULES.get(func)


# -- normalisation: the meta kernels are Python decompositions that take a millisecond each -------------------------------


def _statistics(tensor: torch.Tensor, count: int) -> torch.Tensor:
    dtype = torch.float32 if tensor.dtype in (torch.float16, torch.bfloat16) else tensor.dtype
    return torch.empty(count, dtype=dtype, device="meta")


@rule(aten.native_batch_norm.default)
def _batch_norm(mode: Any, func: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:  # noqa: ARG001
    tensor, training = args[0], args[5]
    channels = tensor.shape[1] if training else 0
    return torch.empty_like(tensor), _statistics(tensor, channels), _statistics(tensor, channels)


@rule(aten.native_batch_norm_backward.default)
def _batch_norm_backward(mode: Any, func: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:  # noqa: ARG001
    tensor, weight, mask = args[1], args[2], args[9]
    gradient = weight if weight is not None else _statistics(tensor, tensor.shape[1])
    return (
        torch.empty_like(tensor) if mask[0] else None,
        torch.empty_like(gradient) if mask[1] else None,
        torch.empty_like(gradient) if mask[2] else None,
    )


@rule(aten.threshold_backward.default)
def _threshold_backward(mode: Any, func: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:  # noqa: ARG001
    return torch.empty_like(args[1])


# -- convolutions: cuDNN computes the gradients one after the other, each with a workspace of its own ----------------------


def _channels_last(*tensors: torch.Tensor) -> bool:
    """cuDNN works in channels-last as soon as one of its operands is stored that way."""
    layouts = {4: torch.channels_last, 5: torch.channels_last_3d}
    return any(
        t.dim() in layouts and not t.is_contiguous() and t.is_contiguous(memory_format=layouts[t.dim()])
        for t in tensors
    )


def _stored(tensor: torch.Tensor, channels_last: bool) -> torch.Tensor:
    """The tensor in the layout that cuDNN returns; the meta kernels know nothing of cuDNN."""
    if not channels_last:
        return tensor if tensor.is_contiguous() else torch.empty(tensor.shape, dtype=tensor.dtype, device="meta")
    layout = torch.channels_last if tensor.dim() == 4 else torch.channels_last_3d
    return torch.empty(tensor.shape, dtype=tensor.dtype, device="meta", memory_format=layout)


@rule(aten.convolution.default)
def _convolution(mode: Any, func: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> torch.Tensor:  # noqa: ARG001
    return _stored(func(*args, **kwargs), _channels_last(args[0], args[1]))


@rule(aten.convolution_backward.default, splits=True)
def _convolution_backward(mode: Any, func: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    *operands, mask = args
    gradient, tensor, weight = args[:3]
    channels_last = _channels_last(tensor, weight)
    results: list[torch.Tensor | None] = [None, None, None]
    for part, like in ((0, tensor), (1, weight)):
        if mask[part]:
            only = [i == part for i in range(3)]
            results[part] = _stored(torch.empty_like(like), channels_last)
            mode.account(func, (*operands, only), kwargs, results[part])
    if mask[2]:
        dims = [0, *range(2, gradient.dim())]
        results[2] = torch.empty(gradient.shape[1], dtype=gradient.dtype, device="meta")
        mode.account(aten.sum.dim_IntList, (gradient, dims), {}, results[2])
    return tuple(results)


# -- matrix products of several sizes: the meta kernel knows the fused one for bfloat16 only, CUDA also one by one ---------


@rule(aten._grouped_mm.default)
def _grouped_mm(mode: Any, func: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> torch.Tensor:  # noqa: ARG001
    left, right = args[0], args[1]
    offsets = args[2] if len(args) > 2 else kwargs.get("offs")
    dtype = (args[4] if len(args) > 4 else kwargs.get("out_dtype")) or left.dtype
    shape: tuple[int, ...]
    if left.dim() == 2:
        rows = (offsets.shape[0], left.shape[0]) if right.dim() == 2 else (left.shape[0],)
        shape = (*rows, right.shape[-1])
    elif right.dim() == 2:
        shape = (left.shape[1], right.shape[1])
    else:
        shape = (*left.shape[:2], right.shape[-1])
    return torch.empty(shape, dtype=dtype, device="meta")


# -- known values ---------------------------------------------------------------------------------------------------------

_NEVER = {"aten::isnan", "aten::isinf", "aten::isposinf", "aten::isneginf"}
# Integers that a program derives from unknown numbers; a draw from random numbers is as good as any.
_CHOICES = {
    "aten::argmax",
    "aten::argmin",
    "aten::topk",
    "aten::sort",
    "aten::argsort",
    "aten::multinomial",
    "aten::max",
    "aten::min",
}
_MOST_SAMPLED = 1 << 22


def constant(name: str, outputs: list[torch.Tensor]) -> torch.Tensor | None:
    """Values that hold for every sane run: nothing is NaN, everything is finite."""
    if name in _NEVER:
        return torch.zeros(outputs[0].shape, dtype=torch.bool)
    if name == "aten::isfinite":
        return torch.ones(outputs[0].shape, dtype=torch.bool)
    return None


def sample(name: str, func: torch._ops.OpOverload, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    """A plausible choice (routing, sampled token) where the operator chooses among numbers that nobody knows."""
    if name not in _CHOICES or args[0].numel() > _MOST_SAMPLED or not args[0].is_floating_point():
        return None
    return compute(func, (torch.rand(args[0].shape, dtype=torch.float32), *args[1:]), kwargs)


def compute(func: torch._ops.OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Run an operator on known values. What the host cannot compute stays unknown."""
    try:
        return func(*args, **kwargs)
    except (RuntimeError, NotImplementedError, TypeError):
        return None
