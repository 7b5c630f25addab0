"""Autocast as CUDA does it.

torch's own autocast kernels ignore meta tensors. They are driven by a dispatch key, though, and one autocast key belongs
to no device at all: while the program is inside `torch.autocast("cuda")` that key is switched on for this thread, and the
kernels registered below for it cast exactly what CUDA's would, inside composite operators too.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from typing import Any

import torch

_KEY = torch._C.DispatchKey.AutocastPrivateUse1
_KEYS = torch._C.DispatchKeySet(_KEY)

# The lists of "Autocast Op Reference" in torch's documentation, with the overloads that the dispatcher knows.
LOWER_PRECISION = """
_convolution.deprecated _convolution conv1d conv2d conv3d conv_tbc conv_transpose1d conv_transpose2d.input
conv_transpose3d.input convolution prelu addmm addmv addr matmul einsum mm mv linalg_vecdot linear addbmm baddbmm bmm
chain_matmul linalg_multi_dot scaled_dot_product_attention _thnn_fused_lstm_cell _thnn_fused_gru_cell lstm_cell gru_cell
rnn_tanh_cell rnn_relu_cell
""".split()
FLOAT32 = """
acos asin cosh erfinv exp expm1 log log10 log2 log1p reciprocal rsqrt sinh tan pow.Tensor_Scalar pow.Tensor_Tensor
pow.Scalar
softplus layer_norm native_layer_norm group_norm norm.Scalar norm.ScalarOpt_dim norm.names_ScalarOpt_dim cosine_similarity
poisson_nll_loss cosine_embedding_loss nll_loss nll_loss2d hinge_embedding_loss kl_div l1_loss smooth_l1_loss huber_loss
mse_loss margin_ranking_loss multilabel_margin_loss soft_margin_loss triplet_margin_loss multi_margin_loss
binary_cross_entropy_with_logits dist pdist cdist renorm logsumexp upsample_nearest1d _upsample_nearest_exact1d
upsample_nearest2d _upsample_nearest_exact2d upsample_nearest3d _upsample_nearest_exact3d upsample_linear1d
upsample_bilinear2d _upsample_bilinear2d_aa upsample_trilinear3d upsample_bicubic2d _upsample_bicubic2d_aa
frobenius_norm.dim nuclear_norm nuclear_norm.dim polar multilabel_margin_loss_forward
""".split()
FLOAT32_UNLESS_DTYPE = """
prod prod.dim_int softmax.int log_softmax.int cumprod cumsum linalg_vector_norm linalg_matrix_norm
linalg_matrix_norm.str_ord sum sum.dim_IntList
""".split()
WIDEST = "addcdiv addcmul atan2 bilinear cross dot vdot grid_sampler index_put tensordot scatter_add".split()
_BANNED = ("binary_cross_entropy",)


class Autocast:
    """Registers the kernels and follows the program in and out of autocast regions."""

    def __init__(self, is_virtual: Callable[[torch.Tensor], bool]) -> None:
        self._is_virtual = is_virtual
        self._cache: dict[int, tuple[weakref.ref[torch.Tensor], torch.Tensor]] = {}
        self._libraries: list[torch.library.Library] = []

    def install(self) -> None:
        fallback = torch.library.Library("_", "IMPL", "AutocastPrivateUse1")
        fallback.fallback(torch.library.fallthrough_kernel)
        library = torch.library.Library("aten", "IMPL")
        for names, make in (
            (LOWER_PRECISION, self._lower),
            (FLOAT32, self._float32),
            (FLOAT32_UNLESS_DTYPE, self._float32_unless_dtype),
            (WIDEST, self._widest),
            (_BANNED, self._banned),
        ):
            for name in names:
                overload = _overload(name)
                if overload is not None:
                    library.impl(overload, make(overload), "AutocastPrivateUse1")
        self._libraries = [fallback, library]
        self._follow()

    def _follow(self) -> None:
        """Switch the key with every `torch.autocast` region; `torch.is_autocast_enabled` stays the judge."""
        enter, leave, clear = torch.autocast.__enter__, torch.autocast.__exit__, torch.clear_autocast_cache

        def patched_enter(region: torch.autocast) -> Any:
            result = enter(region)
            self._switch()
            return result

        def patched_exit(region: torch.autocast, *details: Any) -> Any:
            result = leave(region, *details)
            self._switch()
            return result

        def patched_clear() -> None:
            self._cache.clear()
            clear()

        torch.autocast.__enter__ = patched_enter  # type: ignore[method-assign]
        torch.autocast.__exit__ = patched_exit  # type: ignore[method-assign]
        torch.clear_autocast_cache = patched_clear

    def _switch(self) -> None:
        enabled = torch.is_autocast_enabled("cuda")
        torch._C._dispatch_tls_set_dispatch_key_excluded(_KEY, not enabled)
        torch._C._dispatch_tls_set_dispatch_key_included(_KEY, enabled)

    # -- the four policies ------------------------------------------------------------------------------------------------

    def _lower(self, op: Any) -> Callable[..., Any]:
        def kernel(*args: Any, **kwargs: Any) -> Any:
            with torch._C._ExcludeDispatchKeyGuard(_KEYS):
                dtype = torch.get_autocast_dtype("cuda")
                return op(*self._cast(args, dtype), **self._cast_named(kwargs, dtype))

        return kernel

    def _float32(self, op: Any) -> Callable[..., Any]:
        def kernel(*args: Any, **kwargs: Any) -> Any:
            with torch._C._ExcludeDispatchKeyGuard(_KEYS):
                return op(*self._cast(args, torch.float32), **self._cast_named(kwargs, torch.float32))

        return kernel

    def _float32_unless_dtype(self, op: Any) -> Callable[..., Any]:
        position = next(i for i, a in enumerate(op._schema.arguments) if a.name == "dtype")

        def kernel(*args: Any, **kwargs: Any) -> Any:
            with torch._C._ExcludeDispatchKeyGuard(_KEYS):
                tensor = args[0]
                chosen = kwargs.get("dtype") or (args[position] if len(args) > position else None)
                if chosen is None and self._eligible(tensor) and tensor.dtype != torch.float32:
                    args = args[:position]
                    kwargs["dtype"] = torch.float32
                return op(*args, **kwargs)

        return kernel

    def _widest(self, op: Any) -> Callable[..., Any]:
        def kernel(*args: Any, **kwargs: Any) -> Any:
            with torch._C._ExcludeDispatchKeyGuard(_KEYS):
                tensors = [t for t in _flat(args) if self._eligible(t)]
                if not tensors:
                    return op(*args, **kwargs)
                lower = torch.get_autocast_dtype("cuda")
                dtype = torch.float32 if any(t.dtype == torch.float32 for t in tensors) else lower
                return op(*self._cast(args, dtype), **self._cast_named(kwargs, dtype))

        return kernel

    def _banned(self, op: Any) -> Callable[..., Any]:  # noqa: ARG002  (same shape as the other policies)
        def kernel(*args: Any, **kwargs: Any) -> Any:  # noqa: ARG001
            raise RuntimeError(
                "torch.nn.functional.binary_cross_entropy and torch.nn.BCELoss are unsafe to autocast; "
                "use binary_cross_entropy_with_logits"
            )

        return kernel

    # -- casting ----------------------------------------------------------------------------------------------------------

    def _eligible(self, value: Any) -> bool:
        if not isinstance(value, torch.Tensor):
            return False
        with torch._C.DisableTorchFunction():
            return value.is_floating_point() and value.dtype != torch.float64 and self._is_virtual(value)

    def _cast(self, args: Sequence[Any], dtype: torch.dtype) -> list[Any]:
        # From the last argument to the first: the order in which the compiled kernels evaluate their arguments.
        return [self._cast_one(a, dtype) for a in reversed(args)][::-1]

    def _cast_named(self, kwargs: dict[str, Any], dtype: torch.dtype) -> dict[str, Any]:
        return {k: self._cast_one(v, dtype) for k, v in kwargs.items()}

    def _cast_one(self, value: Any, dtype: torch.dtype) -> Any:
        if isinstance(value, list | tuple):
            return type(value)(self._cast_one(v, dtype) for v in value) if _holds_tensors(value) else value
        if not self._eligible(value) or value.dtype == dtype:
            return value
        if self._may_cache(value, dtype):
            return self._cached(value, dtype)
        return value.to(dtype)

    def _may_cache(self, tensor: torch.Tensor, dtype: torch.dtype) -> bool:
        """CUDA keeps the low-precision copies of float32 leaves (the weights) until the outermost region ends."""
        return (
            dtype == torch.get_autocast_dtype("cuda")
            and tensor.dtype == torch.float32
            and tensor.requires_grad
            and tensor.is_leaf
            and not tensor._is_view()
            and torch.is_autocast_cache_enabled()
            and not torch.is_inference_mode_enabled()
        )

    def _cached(self, tensor: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
        found = self._cache.get(id(tensor))
        if found is not None and found[0]() is tensor and found[1].dtype == dtype:
            return found[1]
        cast = tensor.to(dtype)
        self._cache[id(tensor)] = (weakref.ref(tensor), cast)
        return cast


def _flat(values: Sequence[Any]) -> list[torch.Tensor]:
    found: list[torch.Tensor] = []
    for value in values:
        if isinstance(value, torch.Tensor):
            found.append(value)
        elif isinstance(value, list | tuple):
            found += _flat(value)
    return found


def _holds_tensors(values: Sequence[Any]) -> bool:
    return any(isinstance(v, torch.Tensor) for v in values)


def _overload(name: str) -> Any:
    """The operator of that name in this torch, or None: the lists name operators of several versions."""
    packet, _, overload = name.partition(".")
    found = getattr(torch.ops.aten, packet, None)
    return getattr(found, overload or "default", None)
