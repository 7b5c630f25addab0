"""Composite operators that decompose differently on CUDA than on any other device.

torch decides inside C++ by `tensor.is_cuda()`, which is false for meta tensors. These overrides take the CUDA branch; they
are registered with the dispatcher, so calls from C++ (inside `nn.LSTM`, inside other composites) are caught as well.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

aten = torch.ops.aten
_OVERRIDES: dict[str, Callable[..., Any]] = {}
_LEAVES: dict[str, Callable[..., Any]] = {}
_HALVES = (torch.float16, torch.bfloat16)


def override(*names: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Replace a composite by one that calls other differentiable operators."""

    def register(function: Callable[..., Any]) -> Callable[..., Any]:
        _OVERRIDES.update(dict.fromkeys(names, function))
        return function

    return register


def leaf(name: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Give an operator with a derivative of its own a meta kernel, so that it no longer decomposes."""

    def register(function: Callable[..., Any]) -> Callable[..., Any]:
        _LEAVES[name] = function
        return function

    return register


def install() -> list[torch.library.Library]:
    """Register everything; the libraries must be kept alive."""
    library = torch.library.Library("aten", "IMPL")
    for name, function in _OVERRIDES.items():
        if _exists(name):
            # Library.impl refuses meta kernels for composites; here replacing the composite is the point.
            library.m.impl(name, "AutogradMeta", function)  # type: ignore[union-attr]
            library.m.impl(name, "Meta", function)  # type: ignore[union-attr]
    for name, function in _LEAVES.items():
        if _exists(name):
            library.m.impl(name, "Meta", function)  # type: ignore[union-attr]
    return [library]


def decomposition(func: torch._ops.OpOverload) -> Callable[..., Any] | None:
    """How a composite comes apart. In inference mode torch does not do it before the virtual GPU sees the operator."""
    if func.namespace == "prim":  # attributes of tensors, not operators
        return None
    name = func.name().removeprefix("aten::").removesuffix(".default")
    if name in _OVERRIDES:
        return _OVERRIDES[name]
    if name in _LEAVES or not torch._C._dispatch_has_kernel_for_dispatch_key(func.name(), "CompositeImplicitAutograd"):
        return None
    return func.decompose


def _exists(name: str) -> bool:
    packet, _, overload = name.partition(".")
    return hasattr(getattr(aten, packet, None), overload or "default")


# -- dropout: one fused kernel with a boolean mask ------------------------------------------------------------------------


@override("dropout")
def _dropout(tensor: torch.Tensor, p: float, train: bool) -> torch.Tensor:
    if not train or p == 0 or tensor.numel() == 0:
        return tensor
    if p == 1:
        return tensor * torch.zeros_like(tensor)
    return aten.native_dropout(tensor, p, True)[0]  # type: ignore[no-any-return]


@override("one_hot")
def _one_hot(classes: torch.Tensor, num_classes: int = -1) -> torch.Tensor:
    """CUDA writes ones into zeros; for meta tensors torch compares with all classes instead."""
    count = num_classes if num_classes != -1 else int(classes.max().item()) + 1
    ones: torch.Tensor = classes.new_zeros((*classes.shape, count))
    return ones.scatter_(-1, classes.unsqueeze(-1), 1)


@override("isfinite")
def _isfinite(tensor: torch.Tensor) -> torch.Tensor:
    return aten.isnan(tensor).logical_not()  # type: ignore[no-any-return]


@leaf("silu_backward")
@leaf("mish_backward")
def _activation_backward(gradient: torch.Tensor, tensor: torch.Tensor) -> torch.Tensor:  # noqa: ARG001
    return torch.empty_like(tensor)


# -- normalisation --------------------------------------------------------------------------------------------------------


@override("rms_norm")
def _rms_norm(tensor: torch.Tensor, shape: list[int], weight: Any = None, eps: float | None = None) -> torch.Tensor:
    if weight is not None and weight.dtype != tensor.dtype:
        wide = tensor.float()
        dims = list(range(-len(shape), 0))
        scale = torch.rsqrt(wide.pow(2).mean(dims, keepdim=True) + (eps or torch.finfo(wide.dtype).eps))
        return (wide * scale).to(tensor.dtype) * weight  # type: ignore[no-any-return]
    return aten._fused_rms_norm(tensor, shape, weight, eps)[0]  # type: ignore[no-any-return]


@leaf("_fused_rms_norm")
def _fused_rms_norm(tensor: torch.Tensor, shape: list[int], weight: Any, eps: float | None) -> Any:  # noqa: ARG001
    statistics = tensor.shape[: tensor.dim() - len(shape)] + (1,) * len(shape)
    return torch.empty_like(tensor), torch.empty(statistics, dtype=torch.float32, device="meta")


@leaf("_fused_rms_norm_backward")
def _fused_rms_norm_backward(
    gradient: torch.Tensor, tensor: torch.Tensor, shape: list[int], rstd: torch.Tensor, weight: Any, mask: list[bool]
) -> Any:
    _ = gradient, shape, rstd
    return (
        torch.empty_like(tensor) if mask[0] else None,
        torch.empty_like(weight) if mask[1] and weight is not None else None,
    )


@override("ctc_loss.Tensor", "ctc_loss.IntList")
def _ctc_loss(
    log_probs: torch.Tensor,
    targets: torch.Tensor,
    input_lengths: Any,
    target_lengths: Any,
    blank: int = 0,
    reduction: int = 1,
    zero_infinity: bool = False,
) -> torch.Tensor:
    overload = aten._ctc_loss.Tensor if isinstance(target_lengths, torch.Tensor) else aten._ctc_loss.default
    loss = overload(log_probs, targets, input_lengths, target_lengths, blank, zero_infinity)[0]
    if zero_infinity:
        loss = torch.where(aten.isinf(loss), torch.zeros_like(loss), loss)
    if reduction == 1:
        lengths = torch.as_tensor(target_lengths).to(device="meta", dtype=loss.dtype).clamp_min(1)
        return (loss / lengths).mean()  # type: ignore[no-any-return]
    return loss.sum() if reduction == 2 else loss  # type: ignore[no-any-return]


# -- attention ------------------------------------------------------------------------------------------------------------


@override("scaled_dot_product_attention")
def _attention(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attn_mask: torch.Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> torch.Tensor:
    backend = _choose_backend(query, key, value, attn_mask, enable_gqa)
    mask = _float_mask(attn_mask, query.dtype)
    if backend == "math":
        return aten._scaled_dot_product_attention_math(  # type: ignore[no-any-return]
            query, key, value, mask, dropout_p, is_causal, scale=scale, enable_gqa=enable_gqa
        )[0]
    if backend == "flash":
        return _flash(query, key, value, dropout_p, is_causal, scale)
    needs_gradient = torch.is_grad_enabled() and any(t.requires_grad for t in (query, key, value))
    if backend == "cudnn":
        return aten._scaled_dot_product_cudnn_attention(  # type: ignore[no-any-return]
            query, key, value, mask, needs_gradient, dropout_p, is_causal, False, scale=scale
        )[0]
    if query.size(1) != key.size(1):
        repeats = query.size(1) // key.size(1)
        key, value = key.repeat_interleave(repeats, 1), value.repeat_interleave(repeats, 1)
    return aten._scaled_dot_product_efficient_attention(  # type: ignore[no-any-return]
        query, key, value, _aligned_mask(mask, query, key), needs_gradient, dropout_p, is_causal, scale=scale
    )[0]


def _choose_backend(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, mask: Any, gqa: bool) -> str:
    """torch's choice, by the conditions of `select_sdp_backend`. Hopper prefers cuDNN where older parts take flash
    attention: the two need the same memory."""
    if query.dim() != 4 or query.dtype != key.dtype or query.dtype not in (*_HALVES, torch.float32):
        return "math"
    head, value_head = query.size(-1), value.size(-1)
    if query.size(0) != key.size(0) or (not gqa and query.size(1) != key.size(1)):
        return "math"
    # No fused kernel takes rows that are not contiguous, be it of the mask (a permuted position bias, for example).
    operands = (query, key, value) if mask is None else (query, key, value, mask)
    if any(t.stride(-1) != 1 and t.size(-1) != 1 for t in operands):
        return "math"
    enabled = torch.backends.cuda
    learned_mask = mask is not None and mask.requires_grad and torch.is_grad_enabled()
    if query.dtype in _HALVES and head == key.size(-1) == value_head and head <= 256 and not learned_mask:
        if enabled.cudnn_sdp_enabled() and head % 8 == 0:
            return "cudnn"
        if enabled.flash_sdp_enabled() and mask is None:
            return "flash"
    alignment = 8 if query.dtype in _HALVES else 4
    aligned = head == key.size(-1) and head % alignment == 0 and value_head % alignment == 0
    return "efficient" if aligned and not gqa and enabled.mem_efficient_sdp_enabled() else "math"


def _flash(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, dropout_p: float, causal: bool, scale: float | None
) -> torch.Tensor:
    head = query.size(-1)
    padding = -head % 8
    if padding:
        query, key, value = (torch.nn.functional.pad(t, (0, padding)) for t in (query, key, value))
        scale = scale or head**-0.5
    out = aten._scaled_dot_product_flash_attention(query, key, value, dropout_p, causal, False, scale=scale)[0]
    return out[..., :head] if padding else out  # type: ignore[no-any-return]


def _float_mask(mask: torch.Tensor | None, dtype: torch.dtype) -> torch.Tensor | None:
    """A boolean mask becomes zeros and minus infinities of the query's type: a new tensor."""
    if mask is None or mask.dtype != torch.bool:
        return mask
    return torch.zeros_like(mask, dtype=dtype).masked_fill_(mask.logical_not(), float("-inf"))


def _aligned_mask(mask: torch.Tensor | None, query: torch.Tensor, key: torch.Tensor) -> torch.Tensor | None:
    """The memory-efficient kernel wants rows of 16 elements: otherwise the mask is padded, which copies all of it."""
    if mask is None:
        return None
    mask = mask.expand(query.size(0), query.size(1), query.size(2), key.size(2))
    length = mask.size(-1)
    if length % 16:
        return torch.nn.functional.pad(mask, (0, 16 - length % 16))[..., :length]
    if any(stride % 16 for stride in mask.stride()[:3]):
        return mask.contiguous()
    return mask
