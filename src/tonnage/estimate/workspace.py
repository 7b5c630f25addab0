"""Memory that operators take for themselves while they run, beyond what they return.

Formulas follow what torch's CUDA kernels allocate; each was checked against benchmarks/workspace (H200, torch 2.11). The
sizes of cuBLAS workspaces are torch's defaults per architecture.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from math import prod

from tonnage.errors import InvalidFile
from tonnage.estimate.convolution import convolution_workspace
from tonnage.estimate.recurrent import recurrent_workspace
from tonnage.estimate.reductions import reduction_scratch
from tonnage.hardware import Gpu
from tonnage.program.trace import Attribute, Operator, Origin, TensorSpec
from tonnage.units import KIB, MIB

Formula = Callable[[Operator, Gpu], tuple[int, ...]]

MATRIX_PRODUCTS = {
    "aten::mm", "aten::addmm", "aten::bmm", "aten::baddbmm", "aten::addmv", "aten::mv", "aten::dot", "aten::vdot",
    "aten::_scaled_mm", "aten::addmm_", "aten::addbmm", "aten::_addmm_activation", "aten::baddbmm_", "aten::addr",
}  # fmt: skip
CONVOLUTIONS = {"aten::convolution", "aten::convolution_backward"}
CUDNN = CONVOLUTIONS | {
    "aten::_cudnn_rnn", "aten::_cudnn_rnn_backward",
    "aten::_scaled_dot_product_cudnn_attention", "aten::_scaled_dot_product_cudnn_attention_backward",
    "aten::_cudnn_ctc_loss", "aten::native_batch_norm",
}  # fmt: skip


# Kernels take the same workspaces on GPUs of one family but for the number of SMs, which changes little; one typical number
# for each family lets all its GPUs share one replay.
_TYPICAL_SMS = {"6": 56, "7": 80, "8": 108, "9": 132, "10": 132, "12": 128}


def family(gpu: Gpu) -> str:
    """GPUs of one family take the same workspaces."""
    if gpu.vendor == "amd":
        return gpu.compute_capability
    major = gpu.compute_capability.split(".")[0]
    return {"3": "6", "5": "6", "10": "9"}.get(major, major)


def typical(gpu: Gpu) -> Gpu:
    """The GPU with the number of SMs that stands for its family."""
    return replace(gpu, sms=_TYPICAL_SMS.get(family(gpu), gpu.sms))


def temporaries(operator: Operator, gpu: Gpu, origin: Origin) -> tuple[int, ...]:
    """Sizes of the blocks that an operator allocates and frees before it returns."""
    try:
        if operator.name in CONVOLUTIONS:
            return convolution_workspace(
                operator, gpu, benchmark=origin.cudnn_benchmark, allow_tf32=origin.cudnn_allow_tf32
            )
        formula = _FORMULAS.get(operator.name)
        return tuple(size for size in formula(operator, gpu) if size) if formula else ()
    except (LookupError, TypeError, ValueError, ArithmeticError):
        # No program does this; a trace that was not written by Tonnage can say anything.
        raise InvalidFile(f"the trace holds a call of {operator.name} that makes no sense") from None


def returned_late(operator: Operator) -> int:
    """How many of the blocks that an operator returns are allocated while it holds its temporaries, not before."""
    if operator.name == "aten::_cudnn_rnn":  # what backward will need; no more than 0 bytes in inference
        return int(operator.attributes.get("train") is True)
    return len(operator.outputs) if operator.name in _COPYING_FIRST else 0


def cublas_workspace_bytes(gpu: Gpu) -> int:
    """What torch gives each cuBLAS handle (one per thread and stream) from the caching allocator at its first use."""
    if gpu.vendor == "amd":
        return 76 * MIB if gpu.compute_capability.startswith("gfx94") else 32 * MIB
    if gpu.compute_capability.split(".")[0] in ("9", "10"):
        return 32 * MIB
    return 2 * 4096 * KIB + 8 * 16 * KIB


CUBLAS_LT_WORKSPACE_BYTES = 1 * MIB


def uses_cublas_lt(operator: Operator) -> bool:
    """A bias that is added by the product's epilogue: one-dimensional, and a matrix of more than one row and column."""
    if operator.name == "aten::_addmm_activation":
        return True
    if operator.name != "aten::addmm" or operator.inputs[0] is None or operator.inputs[2] is None:
        return False
    return len(operator.inputs[0].shape) == 1 and min(operator.inputs[2].shape) > 1


# -- formulas -------------------------------------------------------------------------------------------------------------


def _spec(operator: Operator, position: int) -> TensorSpec:
    spec = operator.inputs[position]
    if spec is None:
        raise ValueError(f"{operator.name} has no tensor in position {position}")
    return spec


def _sequence(value: Attribute) -> Sequence[Attribute]:
    return value if isinstance(value, Sequence) and not isinstance(value, str) else (value,)


def _copy_if_strided(*positions: int) -> Formula:
    """Kernels that want a contiguous tensor make a copy of any other."""

    def formula(operator: Operator, gpu: Gpu) -> tuple[int, ...]:  # noqa: ARG001
        specs = [operator.inputs[p] for p in positions if p < len(operator.inputs)]
        return tuple(spec.nbytes for spec in specs if spec is not None and spec.layout == "strided")

    return formula


def _reduction(partial_bytes: int = 4) -> Formula:
    def formula(operator: Operator, gpu: Gpu) -> tuple[int, ...]:
        spec = _spec(operator, 0)
        dims = operator.attributes.get("dim", ())
        is_widened = spec.dtype in ("bool", "int32", "uint8") and "sum" in operator.name
        size = 8 if spec.dtype in ("int64", "float64", "bool", "int32") else partial_bytes
        scratch = reduction_scratch(spec, [int(d) for d in _sequence(dims) if isinstance(d, int)], gpu.sms, size)
        return (spec.numel * 8, *scratch) if is_widened else scratch

    return formula


def _softmax_backward(operator: Operator, gpu: Gpu) -> tuple[int, ...]:  # noqa: ARG001
    gradient = _spec(operator, 0)
    copy = gradient.nbytes if gradient.layout != "contiguous" else 0
    return copy, gradient.nbytes


def _embedding_backward(operator: Operator, gpu: Gpu) -> tuple[int, ...]:  # noqa: ARG001
    """Indices are sorted, then partial sums of up to ten rows each are written out before they are combined."""
    indices, width = _spec(operator, 1).numel, operator.outputs[0].shape[-1]
    if indices <= 3072:
        return ()
    segments = min(indices, operator.outputs[0].shape[0])
    return (*_sorting(indices), (indices // 10 + segments) * width * 4)


def _index_put(operator: Operator, gpu: Gpu) -> tuple[int, ...]:  # noqa: ARG001
    indices = [spec for spec in operator.inputs[1:-1] if spec is not None]
    masks = tuple(spec.numel * 8 * len(spec.shape) for spec in indices if spec.dtype == "bool")
    if not operator.attributes.get("accumulate"):
        return masks
    return masks + tuple(_sorting(max((spec.numel for spec in indices), default=0)))


def _sorting(count: int) -> list[int]:
    """Keys, values and their sorted copies as 64-bit integers, and the sort's own scratch."""
    return [8 * count] * 6 + [int(0.85 * count)]


def _index(operator: Operator, gpu: Gpu) -> tuple[int, ...]:  # noqa: ARG001
    rows = operator.outputs[0].shape[0] if operator.outputs and operator.outputs[0].shape else 0
    return tuple(8 * rows * len(s.shape) for s in operator.inputs[1:] if s is not None and s.dtype == "bool")


def _fused_attention_backward(operator: Operator, gpu: Gpu) -> tuple[int, ...]:  # noqa: ARG001
    """The query's gradient is summed up in float32; with grouped keys, their gradients exist once per query head first."""
    query, key = _spec(operator, 1), _spec(operator, 2)
    rows = prod(query.shape[:-1])
    expanded = 0
    if query.shape[1] != key.shape[1]:
        expanded = prod((*query.shape[:2], *key.shape[2:])) * 2
    return rows * query.shape[-1] * 4 + rows * 4, expanded, expanded


def _efficient_attention_backward(operator: Operator, gpu: Gpu) -> tuple[int, ...]:  # noqa: ARG001
    """`delta`, the row sums of gradient times output, is computed through a float32 product of the whole tensor."""
    gradient = _spec(operator, 0)
    rows, whole = prod(gradient.shape[:-1]), gradient.numel * 4
    widened = (whole, whole) if gradient.dtype != "float32" else ()
    _, heads, length, size = gradient.shape
    row_major = gradient.strides == (length * heads * size, size, heads * size, 1)
    copied = () if row_major else (gradient.nbytes,)
    return (*copied, *widened, whole, rows * 4, rows * 4)


def _foreach_norm(operator: Operator, gpu: Gpu) -> tuple[int, ...]:  # noqa: ARG001
    """One partial result per chunk of 65,536 elements, as many for each tensor as the largest one needs."""
    specs = [spec for spec in operator.inputs if spec is not None]
    chunks = max((-(-spec.numel // 65536) for spec in specs), default=0)
    return (len(specs) * chunks * 4,)


def _times_elements(factor: float) -> Formula:
    def formula(operator: Operator, gpu: Gpu) -> tuple[int, ...]:  # noqa: ARG001
        return (int(_spec(operator, 0).numel * factor),)

    return formula


def _sort(operator: Operator, gpu: Gpu) -> tuple[int, ...]:  # noqa: ARG001
    spec = _spec(operator, 0)
    return (spec.numel * 16 + spec.nbytes,)


def _randperm(operator: Operator, gpu: Gpu) -> tuple[int, ...]:  # noqa: ARG001
    count = operator.outputs[0].numel
    return 8 * count, 8 * count, 8 * count, 16 * count


# Norms work on contiguous copies of what they get, made before anything is returned.
_COPYING_FIRST = {
    "aten::native_layer_norm", "aten::native_layer_norm_backward", "aten::native_group_norm",
    "aten::native_group_norm_backward", "aten::_fused_rms_norm", "aten::_fused_rms_norm_backward",
}  # fmt: skip
_REDUCTIONS = (
    "sum", "mean", "linalg_vector_norm", "amax", "amin", "prod", "any", "all", "norm", "nansum", "count_nonzero", "max",
    "min",
)  # fmt: skip
_WIDE_REDUCTIONS = ("var", "std", "var_mean", "std_mean", "argmax", "argmin", "aminmax")
_FORMULAS: dict[str, Formula] = {
    **{f"aten::{name}": _reduction() for name in _REDUCTIONS},
    **{f"aten::{name}": _reduction(16) for name in _WIDE_REDUCTIONS},
    "aten::_softmax_backward_data": _softmax_backward,
    "aten::embedding_dense_backward": _embedding_backward,
    "aten::index_put": _index_put,
    "aten::index_put_": _index_put,
    "aten::_index_put_impl_": _index_put,
    "aten::index": _index,
    "aten::_scaled_dot_product_cudnn_attention_backward": _fused_attention_backward,
    "aten::_scaled_dot_product_flash_attention_backward": _fused_attention_backward,
    "aten::_scaled_dot_product_efficient_attention_backward": _efficient_attention_backward,
    "aten::_foreach_norm": _foreach_norm,
    "aten::sort": _sort,
    "aten::multinomial": _times_elements(4),
    "aten::median": _times_elements(32),
    "aten::logsumexp": _times_elements(4),
    "aten::randperm": _randperm,
    "aten::native_layer_norm_backward": _copy_if_strided(0, 1),
    "aten::native_layer_norm": _copy_if_strided(0),
    "aten::_fused_rms_norm_backward": _copy_if_strided(0, 1),
    "aten::_fused_rms_norm": _copy_if_strided(0),
    "aten::native_group_norm": _copy_if_strided(0),
    "aten::native_group_norm_backward": _copy_if_strided(0, 1),
    "aten::native_batch_norm_backward": _copy_if_strided(0, 1),
    "aten::max_pool2d_with_indices_backward": _copy_if_strided(0),
    "aten::upsample_bilinear2d_backward": _copy_if_strided(0),
    "aten::upsample_nearest2d_backward": _copy_if_strided(0),
    "aten::_log_softmax_backward_data": _copy_if_strided(0),
    "aten::_log_softmax": _copy_if_strided(0),
    "aten::_softmax": _copy_if_strided(0),
    "aten::_cudnn_rnn": recurrent_workspace,
    "aten::_cudnn_rnn_backward": recurrent_workspace,
}
