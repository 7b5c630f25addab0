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


def like(tensor: torch.Tensor) -> torch.Tensor:
    """`torch.empty_like`, which for meta tensors runs in Python and takes thirty times as long as this."""
    if tensor.is_contiguous():
        return torch.empty(tensor.shape, dtype=tensor.dtype, device="meta")
    if torch.ops.aten.is_non_overlapping_and_dense(tensor):
        return torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device="meta")
    return torch.empty_like(tensor)


# -- the most frequent operators, whose meta kernels are slow -------------------------------------------------------------


@rule(aten.add.Tensor, aten.sub.Tensor, aten.mul.Tensor, aten.div.Tensor)
@rule(aten.add.Scalar, aten.sub.Scalar, aten.mul.Scalar, aten.div.Scalar)
def _pointwise(mode: Any, func: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> torch.Tensor:  # noqa: ARG001
    left, right = args[0], args[1]
    if isinstance(left, torch.Tensor) and left.is_meta and left.dtype.is_floating_point and _adds_no_type(left, right):
        return like(left)
    return func(*args, **kwargs)  # type: ignore[no-any-return]


def _adds_no_type(left: torch.Tensor, right: Any) -> bool:
    """Does the result look like the left operand?"""
    if not isinstance(right, torch.Tensor):
        return isinstance(right, int | float)
    if right.dim() == 0 and left.dim() > 0:
        return not right.is_complex()
    if not right.is_meta or left.dtype != right.dtype:
        return False
    if left.shape == right.shape:
        return left.stride() == right.stride()
    spreads = right.dim() <= left.dim() and all(
        size in (1, whole) for size, whole in zip(reversed(right.shape), reversed(left.shape), strict=False)
    )
    return spreads and left.is_contiguous()


@rule(
    *(getattr(aten, name).default for name in ("_foreach_sqrt", "_foreach_neg", "_foreach_abs", "_foreach_reciprocal"))
)
@rule(
    *(
        getattr(getattr(aten, f"_foreach_{n}"), o)
        for n in ("add", "sub", "mul", "div")
        for o in ("List", "Scalar", "ScalarList")
    )
)
def _foreach(mode: Any, func: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    if not all(t.is_meta and t.dtype.is_floating_point for t in args[0]):
        return func(*args, **kwargs)
    _ = mode
    return [like(tensor) for tensor in args[0]]


def find(func: torch._ops.OpOverload) -> Rule | None:
    return _RULES.get(func)


# Operators whose result looks like one of their arguments: name and the argument's position.
_LIKE_ARGUMENT = {
    "gelu": 0, "gelu_backward": 1, "silu": 0, "relu": 0, "tanh": 0, "tanh_backward": 0, "sigmoid": 0, "sigmoid_backward": 0,
    "threshold_backward": 1, "leaky_relu": 0, "elu": 0, "hardswish": 0, "hardtanh": 0, "mish": 0,
    "native_dropout_backward": 0,
    "exp": 0, "log": 0, "sqrt": 0, "rsqrt": 0, "abs": 0, "neg": 0, "hardswish_backward": 1, "leaky_relu_backward": 1,
}  # fmt: skip


def _like_argument(position: int) -> Rule:
    def unary(mode: Any, func: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:  # noqa: ARG001
        tensor = args[position]
        alike = all(t.shape == tensor.shape and t.layout is torch.strided for t in args if isinstance(t, torch.Tensor))
        return like(tensor) if alike and tensor.is_meta and tensor.dtype.is_floating_point else func(*args, **kwargs)

    return unary


for _name, _position in _LIKE_ARGUMENT.items():
    rule(getattr(aten, _name).default)(_like_argument(_position))


@rule(aten.addmm.default)
def _addmm(mode: Any, func: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:  # noqa: ARG001
    bias, left, right = args[:3]
    plain = (
        left.dim() == right.dim() == 2 and left.shape[1] == right.shape[0] and bias.dtype == left.dtype == right.dtype
    )
    if not plain or bias.shape != right.shape[1:]:
        return func(*args, **kwargs)
    return torch.empty((left.shape[0], right.shape[1]), dtype=left.dtype, device="meta")


# -- normalisation: the meta kernels are Python decompositions that take a millisecond each -------------------------------


def _statistics(tensor: torch.Tensor, count: int) -> torch.Tensor:
    dtype = torch.float32 if tensor.dtype in (torch.float16, torch.bfloat16) else tensor.dtype
    return torch.empty(count, dtype=dtype, device="meta")


@rule(aten.native_batch_norm.default)
def _batch_norm(mode: Any, func: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:  # noqa: ARG001
    tensor, training = args[0], args[5]
    channels = tensor.shape[1] if training else 0
    return like(tensor), _statistics(tensor, channels), _statistics(tensor, channels)


@rule(aten.native_batch_norm_backward.default)
def _batch_norm_backward(mode: Any, func: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:  # noqa: ARG001
    tensor, weight, mask = args[1], args[2], args[9]
    gradient = weight if weight is not None else _statistics(tensor, tensor.shape[1])
    return (
        like(tensor) if mask[0] else None,
        like(gradient) if mask[1] else None,
        like(gradient) if mask[2] else None,
    )


@rule(aten.native_layer_norm.default)
def _layer_norm(mode: Any, func: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:  # noqa: ARG001
    tensor, shape = args[0], args[1]
    if tensor.shape[tensor.dim() - len(shape) :] != torch.Size(shape):
        return func(*args, **kwargs)  # raises what CUDA would raise
    rows = tensor.shape[: tensor.dim() - len(shape)] + (1,) * len(shape)
    dtype = torch.float32 if tensor.dtype in (torch.float16, torch.bfloat16) else tensor.dtype
    mean, deviation = (torch.empty(rows, dtype=dtype, device="meta") for _ in range(2))
    return torch.empty(tensor.shape, dtype=tensor.dtype, device="meta"), mean, deviation


@rule(aten.native_layer_norm_backward.default)
def _layer_norm_backward(mode: Any, func: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:  # noqa: ARG001
    tensor, weight, bias, mask = args[1], args[5], args[6], args[7]
    whole = torch.empty(tensor.shape, dtype=tensor.dtype, device="meta")
    return (
        whole if mask[0] else None,
        like(weight) if mask[1] and weight is not None else None,
        like(bias) if mask[2] and bias is not None else None,
    )


# -- convolutions: cuDNN computes the gradients one after the other, each with a workspace of its own ----------------------


_LAYOUTS = {4: torch.channels_last, 5: torch.channels_last_3d}


def _channels_last(*tensors: torch.Tensor) -> bool:
    """cuDNN works in channels-last as soon as one of its operands is stored that way."""
    return any(
        t.dim() in _LAYOUTS and not t.is_contiguous() and t.is_contiguous(memory_format=_LAYOUTS[t.dim()])
        for t in tensors
    )


def _stored(tensor: torch.Tensor, channels_last: bool) -> torch.Tensor:
    """The tensor in the layout that cuDNN returns; the meta kernels know nothing of cuDNN."""
    if not channels_last:
        return tensor if tensor.is_contiguous() else torch.empty(tensor.shape, dtype=tensor.dtype, device="meta")
    return torch.empty(tensor.shape, dtype=tensor.dtype, device="meta", memory_format=_LAYOUTS[tensor.dim()])


@rule(aten.convolution.default)
def _convolution(mode: Any, func: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> torch.Tensor:  # noqa: ARG001
    tensor, weight, _, stride, padding, dilation, transposed, output_padding, groups = args
    if tensor.dim() != weight.dim():
        return _stored(func(*args, **kwargs), _channels_last(tensor, weight))  # no batch, or an error that torch words
    spatial = zip(
        tensor.shape[2:], weight.shape[2:], *map(_each(tensor.dim() - 2), (stride, padding, dilation)), strict=True
    )
    if transposed:
        extra = _each(tensor.dim() - 2)(output_padding)
        sizes = [(n - 1) * s - 2 * p + d * (k - 1) + e + 1 for (n, k, s, p, d), e in zip(spatial, extra, strict=True)]
        shape = (tensor.shape[0], weight.shape[1] * groups, *sizes)
    else:
        shape = (
            tensor.shape[0],
            weight.shape[0],
            *((n + 2 * p - d * (k - 1) - 1) // s + 1 for n, k, s, p, d in spatial),
        )
    fits = tensor.shape[1] == weight.shape[0 if transposed else 1] * (1 if transposed else groups) and min(shape) > 0
    if not fits or tensor.dtype != weight.dtype:
        return func(*args, **kwargs)  # type: ignore[no-any-return]  # raises what CUDA would raise
    return _stored(torch.empty(shape, dtype=tensor.dtype, device="meta"), _channels_last(tensor, weight))


def _each(dims: int) -> Callable[[Sequence[int]], Sequence[int]]:
    """A setting for every spatial dimension; torch allows one for all."""
    return lambda setting: list(setting) * dims if len(setting) == 1 else setting


@rule(aten.convolution_backward.default, splits=True)
def _convolution_backward(mode: Any, func: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    gradient, tensor, weight, *settings, mask = args
    channels_last = _channels_last(tensor, weight)

    def dense() -> torch.Tensor:
        """The gradient as cuDNN wants it, in a copy of its own if it is not."""
        layout = _LAYOUTS[gradient.dim()] if channels_last else torch.contiguous_format
        if gradient.is_contiguous(memory_format=layout):
            return gradient  # type: ignore[no-any-return]
        wanted = torch.empty(gradient.shape, dtype=gradient.dtype, device="meta", memory_format=layout)
        mode.account(aten.clone.default, (gradient,), {}, wanted)
        return wanted

    # A transposed convolution has one copy for both parts; a plain one makes it within each, for weights at the outset.
    is_transposed = settings[4]
    used = dense() if is_transposed else gradient
    results: list[torch.Tensor | None] = [None, None, None]
    for part, operand in ((0, tensor), (1, weight)):
        if mask[part]:
            if part == 1 and not is_transposed:
                used = dense()
            only = [i == part for i in range(3)]
            results[part] = _stored(like(operand), channels_last)
            mode.account(func, (used, tensor, weight, *settings, only), kwargs, results[part])
    del used
    if mask[2]:
        dims = [0, *range(2, gradient.dim())]
        results[2] = torch.empty(gradient.shape[1], dtype=gradient.dtype, device="meta")
        mode.account(aten.sum.dim_IntList, (gradient, dims), {}, results[2])
    return tuple(results)


# -- matrix products of several sizes: the meta kernel knows the fused one for bfloat16 only, CUDA also one by one ---------


@rule(aten._grouped_mm.default)
def _grouped_mm(mode: Any, func: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> torch.Tensor:  # noqa: ARG001
    left, right = args[0], args[1]
    offsets: Any = args[2] if len(args) > 2 else kwargs.get("offs")
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


@rule(aten.masked_fill.Tensor, aten.masked_fill_.Tensor)
def _masked_fill(mode: Any, func: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> torch.Tensor:  # noqa: ARG001
    """The meta kernel refuses a value that is a number on the host; CUDA does not."""
    return func(args[0], args[1], args[2].to("meta"))  # type: ignore[no-any-return]


@rule(aten._nested_tensor_from_mask_left_aligned.default)
def _never_nested(mode: Any, func: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> bool:  # noqa: ARG001
    """`nn.TransformerEncoder` would pack the sequences; they stay padded, which needs no less."""
    return False
