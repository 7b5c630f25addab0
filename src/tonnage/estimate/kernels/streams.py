"""Everything that mainly moves bytes: pointwise operators, copies, reductions, normalisation, lists of tensors."""

from __future__ import annotations

from dataclasses import replace
from math import prod

from tonnage.estimate.kernels.elementwise import merged_dims
from tonnage.estimate.kernels.work import Rules, Work, counts, itemsize, stored_bytes, tensors
from tonnage.program.trace import Operator, TensorSpec

# These launch nothing: they make or change what the host knows about a tensor.
NOTHING = {
    "aten::empty", "aten::empty_like", "aten::empty_strided", "aten::new_empty", "aten::new_empty_strided",
    "aten::set_", "aten::resize_", "aten::detach", "aten::detach_", "aten::alias", "aten::view", "aten::_unsafe_view",
    "aten::_reshape_alias", "aten::lift", "aten::lift_fresh", "aten::lift_fresh_copy", "aten::is_same_size",
    "aten::record_stream", "aten::_pin_memory", "aten::is_pinned", "aten::_local_scalar_dense", "aten::split",
    "aten::chunk", "aten::unbind", "aten::t", "aten::transpose", "aten::permute", "aten::expand", "aten::select",
    "aten::slice", "aten::squeeze", "aten::unsqueeze", "aten::as_strided", "aten::_cudnn_init_dropout_state",
    "aten::sym_size", "aten::_to_cpu",
}  # fmt: skip
_FILLS = (
    "zeros", "zeros_like", "ones", "ones_like", "full", "full_like", "zero_", "fill_", "new_zeros", "new_ones",
    "new_full", "arange", "linspace", "eye", "scalar_tensor", "rand", "randn", "randint", "rand_like", "randn_like",
    "randperm", "normal_", "uniform_", "bernoulli_", "exponential_", "random_", "one_hot", "tril_indices",
    "triu_indices",
)  # fmt: skip
_REDUCTIONS = (
    "sum", "mean", "amax", "amin", "max", "min", "any", "all", "argmax", "argmin", "prod", "var", "std", "var_mean",
    "std_mean", "linalg_vector_norm", "norm", "logsumexp", "count_nonzero", "aminmax", "nansum", "median", "mode",
    "kthvalue",
)  # fmt: skip
_SOFTMAX = (
    "_softmax", "_log_softmax", "_softmax_backward_data", "_log_softmax_backward_data", "_safe_softmax",
    "_masked_softmax", "masked_softmax_backward",
)  # fmt: skip
_NORMALISATIONS = (
    "native_batch_norm", "cudnn_batch_norm", "miopen_batch_norm", "_native_batch_norm_legit",
    "_batch_norm_with_update", "_batch_norm_no_update", "native_layer_norm", "native_group_norm", "_fused_rms_norm",
)  # fmt: skip
_GATHERS = (
    "index", "index_select", "gather", "embedding", "take", "_embedding_bag", "masked_select", "nonzero",
)  # fmt: skip
_SCATTERS = (
    "embedding_dense_backward", "index_put", "index_put_", "_index_put_impl_", "scatter", "scatter_", "scatter_add",
    "scatter_add_", "index_add", "index_add_", "scatter_reduce", "index_copy", "index_copy_",
    "_embedding_bag_dense_backward", "_embedding_bag_backward", "nll_loss_backward", "nll_loss2d_backward",
    "select_backward", "slice_backward", "index_fill_", "masked_scatter",
)  # fmt: skip
_SORTS = (
    "sort", "topk", "argsort", "unique_consecutive", "_unique2", "cumsum", "cumprod", "_cummax_helper",
    "multinomial", "searchsorted",
)  # fmt: skip
_COPIES = (
    "copy_", "clone", "_to_copy", "cat", "stack", "constant_pad_nd", "roll", "flip", "repeat", "contiguous",
    "_copy_from",
)  # fmt: skip
_WINDOWS = (
    "max_pool2d_with_indices", "max_pool3d_with_indices", "avg_pool2d", "avg_pool3d", "_adaptive_avg_pool2d",
    "_adaptive_avg_pool3d", "adaptive_max_pool2d", "upsample_nearest2d", "upsample_bilinear2d", "upsample_bicubic2d",
    "upsample_nearest1d", "upsample_linear1d", "upsample_nearest3d", "upsample_trilinear3d", "reflection_pad1d",
    "reflection_pad2d", "replication_pad2d", "im2col", "col2im", "grid_sampler_2d", "_upsample_bilinear2d_aa",
    "_upsample_bicubic2d_aa", "max_pool2d", "unfold_backward",
)  # fmt: skip


def moved(kind: str, operator: Operator, *, depth: int = 1, reads: float | None = None, launches: float = 1.0) -> Work:
    """Every input is read once, every result is written once; an operator in place writes its first input."""
    inputs = tensors(operator)
    written = sum(spec.nbytes for spec in operator.outputs)
    in_place = operator.name.endswith("_")
    if in_place and not operator.outputs and inputs:
        written = inputs[0].nbytes
    read = float(sum(map(stored_bytes, inputs))) if reads is None else reads
    largest = max((*operator.outputs, *inputs), key=lambda spec: spec.numel, default=TensorSpec((), "float32"))
    operands = (*inputs, *operator.outputs)
    dims = merged_dims(operands) if kind in ("pointwise", "movement") else 1
    return Work(
        kind=kind, name=operator.name, read_bytes=read,
        fresh_bytes=min(float(stored_bytes(inputs[0])), read) if inputs else 0.0,
        written_bytes=float(written), itemsize=itemsize(largest), rows=max(largest.numel // depth, 1), depth=depth,
        batch=max(len(operands), 1), launches=launches, dims=dims,
        strided=any(map(is_scattered, operands)) and (dims > 1 or kind not in ("pointwise", "movement")),
        groups=1 + _converts(operator) if kind == "pointwise" else 1,
        window=1 + any(1 < spec.numel < largest.numel for spec in inputs),
        channels_last=any(spec.layout == "channels_last" for spec in inputs),
    )  # fmt: skip


# These take a condition or make one; others convert operands of different dtypes value by value.
_CONDITIONS = ("where", "masked_fill", "eq", "ne", "lt", "le", "gt", "ge", "logical_", "isnan", "isinf", "isfinite")


def _converts(operator: Operator) -> bool:
    name = operator.name.partition("::")[2]
    found = {spec.dtype for spec in (*operator.outputs, *tensors(operator)) if spec.shape}
    if any(name.startswith(known) for known in _CONDITIONS):
        found -= {"bool"}
    return len(found) > 1


def is_scattered(spec: TensorSpec) -> bool:
    """Are neighbours in the last dimension not neighbours in memory?"""
    if spec.layout != "strided" or not spec.shape:
        return False
    return spec.strides[-1] not in (0, 1) and spec.shape[-1] > 1


@counts(*_FILLS)
def _fills(operator: Operator, rules: Rules) -> tuple[Work, ...]:  # noqa: ARG001
    return (moved("fill", operator, reads=0.0),)


@counts(*_COPIES)
def _copies(operator: Operator, rules: Rules) -> tuple[Work, ...]:  # noqa: ARG001
    inputs = tensors(operator)
    reads = float(stored_bytes(inputs[-1])) if operator.name == "aten::copy_" and inputs else None
    return (moved("movement", operator, reads=reads),)


@counts(*_REDUCTIONS)
def _reductions(operator: Operator, rules: Rules) -> tuple[Work, ...]:  # noqa: ARG001
    source = tensors(operator)[0]
    results = max(operator.outputs[0].numel if operator.outputs else 1, 1)
    work = moved("reduction", operator, depth=max(source.numel // results, 1))
    return (replace(work, strided=_reduces_outer(operator, source)),)


def _reduces_outer(operator: Operator, source: TensorSpec) -> bool:
    """Does the reduction keep the last dimension, so that its values lie far apart?"""
    dims = operator.attributes.get("dim")
    if dims is None or not source.shape:
        return False
    wanted = dims if isinstance(dims, tuple | list) else (dims,)
    last = len(source.shape) - 1
    return not any(isinstance(d, int) and d % len(source.shape) == last for d in wanted)


@counts(*_SOFTMAX)
def _softmax(operator: Operator, rules: Rules) -> tuple[Work, ...]:  # noqa: ARG001
    source = tensors(operator)[0]
    dim = operator.attributes.get("dim")
    position = dim if isinstance(dim, int) else -1
    depth = source.shape[position] if source.shape else 1
    return (moved("softmax", operator, depth=max(depth, 1)), *_made_contiguous(operator, source))


@counts(*_NORMALISATIONS)
def _normalisation(operator: Operator, rules: Rules) -> tuple[Work, ...]:  # noqa: ARG001
    source = tensors(operator)[0]
    if "batch_norm" in operator.name and operator.attributes.get("training", True) is False:
        return (replace(moved("pointwise", operator), name="aten::batch_norm_inference"),)
    return (_normalised("", operator, source), *_made_contiguous(operator, source))


@counts(*(f"{name}_backward" for name in _NORMALISATIONS), "batch_norm_backward")
def _normalisation_backward(operator: Operator, rules: Rules) -> tuple[Work, ...]:  # noqa: ARG001
    source = tensors(operator)[0]
    return (_normalised("_backward", operator, source), *_made_contiguous(operator, source))


def _made_contiguous(operator: Operator, source: TensorSpec) -> tuple[Work, ...]:
    """Kernels that work on rows copy a tensor whose rows do not lie side by side first."""
    if not is_scattered(source) or "batch_norm" in operator.name:
        return ()
    copied = replace(source, layout="contiguous", strides=())
    return (moved("movement", Operator("aten::clone", (source,), (copied,), {})),)


def _normalised(direction: str, operator: Operator, source: TensorSpec) -> Work:
    """`depth` values share their mean: those of a channel, of a row or of a group."""
    if "batch_norm" in operator.name:
        kind = "batch_normalisation"
        if _is_cudnn(operator):
            kind = "cudnn_normalisation"
            operator = replace(operator, name=f"aten::cudnn_batch_norm{direction}")
        depth = source.numel // max(source.shape[1] if len(source.shape) > 1 else 1, 1)
    elif "group_norm" in operator.name:
        kind = "group_normalisation"
        groups = operator.attributes.get("group")
        depth = source.numel // max(source.shape[0] * (groups if isinstance(groups, int) else 1), 1)
    else:
        kind = "normalisation"
        dims = operator.attributes.get("normalized_shape")
        depth = prod(int(d) for d in dims if isinstance(d, int)) if isinstance(dims, tuple | list) else source.shape[-1]
    return moved(f"{kind}{direction}", operator, depth=max(depth, 1))


def _is_cudnn(operator: Operator) -> bool:
    """Does PyTorch give this batch normalisation to cuDNN? It does for images whose weights are float32, not for bfloat16.
    Programs on the virtual GPU name them all alike."""
    if "cudnn" in operator.name or "miopen" in operator.name:
        return True
    image, weight = operator.inputs[1:3] if "backward" in operator.name else operator.inputs[:2]
    if image is None or weight is None or len(image.shape) < 3:
        return False
    return image.dtype != "bfloat16" and weight.dtype == ("float32" if image.dtype == "float16" else image.dtype)


@counts(*_GATHERS)
def _gathers(operator: Operator, rules: Rules) -> tuple[Work, ...]:  # noqa: ARG001
    """Only what is picked is read."""
    results = sum(spec.nbytes for spec in operator.outputs)
    indices = sum(spec.nbytes for spec in tensors(operator)[1:])
    if operator.name == "aten::_embedding_bag":  # each result is a sum of several rows
        results *= max(tensors(operator)[1].numel // max(operator.outputs[0].shape[0], 1), 1)
    work = moved("gather", operator, reads=float(results + indices), depth=_row(operator))
    return (replace(work, rows=max(sum(spec.numel for spec in operator.outputs) // work.depth, 1)),)


@counts(*_SCATTERS)
def _scatters(operator: Operator, rules: Rules) -> tuple[Work, ...]:  # noqa: ARG001
    launches = _SORTING_LAUNCHES if _sorts_indices(operator) else 1.0
    work = moved("scatter", operator, depth=_row(operator), launches=launches)
    if operator.name == "aten::embedding_dense_backward":
        count = max(tensors(operator)[-1].numel, 1)  # without sorting, each row is compared with all indices in turn
        work = replace(work, rows=count, groups=1 if launches > 1 else count)
    return (work if operator.outputs else _in_place(work, operator),)


def _in_place(work: Work, operator: Operator) -> Work:
    """Only what the indices name is touched."""
    others = tensors(operator)[1:]
    if not others:
        return work
    values = max(others, key=lambda spec: spec.nbytes)
    read = float(sum(map(stored_bytes, others)) + values.nbytes)
    return replace(
        work, read_bytes=read, fresh_bytes=float(values.nbytes), written_bytes=float(values.nbytes),
        rows=max(values.numel // work.depth, 1),
    )  # fmt: skip


# Where several gradients may belong to one row, PyTorch sorts the indices first: counted on an H200. Up to 3,072
# rows an embedding's gradient does without.
_SORTING_LAUNCHES = 31.0
_MOST_UNSORTED = 3072


def _sorts_indices(operator: Operator) -> bool:
    if operator.name == "aten::embedding_dense_backward":
        return tensors(operator)[-1].numel > _MOST_UNSORTED
    if operator.name.startswith("aten::_embedding_bag"):
        return True
    return "index_put" in operator.name and operator.attributes.get("accumulate") is True


@counts("nll_loss_forward", "nll_loss2d_forward")
def _picked_losses(operator: Operator, rules: Rules) -> tuple[Work, ...]:  # noqa: ARG001
    """One value is read for each target, and one block of threads adds them up."""
    targets = tensors(operator)[1]
    read = float(targets.nbytes + 32 * targets.numel)  # a value costs a whole sector
    work = moved("reduction", operator, depth=max(targets.numel, 1), reads=read)
    return (replace(work, rows=1, groups=max(targets.numel // _LOSS_THREADS, 1)),)


_LOSS_THREADS = 32  # PyTorch adds up the losses of a batch with one warp


def _row(operator: Operator) -> int:
    """Values that lie side by side wherever one is picked."""
    shape = operator.outputs[0].shape if operator.outputs else tensors(operator)[0].shape
    return max(shape[-1], 1) if shape else 1


@counts(*_SORTS)
def _sorts(operator: Operator, rules: Rules) -> tuple[Work, ...]:  # noqa: ARG001
    source = tensors(operator)[0]
    return (moved("sort", operator, depth=max(source.shape[-1] if source.shape else 1, 1)),)


@counts(*_WINDOWS, *(f"{name}_backward" for name in _WINDOWS))
def _windows(operator: Operator, rules: Rules) -> tuple[Work, ...]:  # noqa: ARG001
    inputs = tensors(operator)
    most = max((spec.numel for spec in (*inputs, *operator.outputs)), default=1)
    least = min((spec.numel for spec in (*inputs[:1], *operator.outputs[:1]) if spec.numel), default=1)
    work = moved("window", operator, depth=max(most // max(least, 1), 1))
    return (replace(work, groups=_serial(operator, work.depth)),)


def _serial(operator: Operator, depth: int) -> int:
    """Values that one thread works on one after the other: images and channels where pixels are interpolated, the window
    where it is as large as the program likes."""
    if "linear" in operator.name or "bicubic" in operator.name:
        shape = operator.outputs[0].shape if operator.outputs else (1, 1)
        return max(shape[0] * shape[1], 1) if len(shape) > 2 else 1
    return depth if "adaptive" in operator.name else 1


def lists(operator: Operator, rules: Rules) -> tuple[Work, ...]:  # noqa: ARG001
    """Operators on whole lists of tensors. In place the first list is written, by fused optimizers all but gradients."""
    inputs = tensors(operator)
    lists = _list_count(operator.name, inputs)
    length = max(len(inputs) // lists, 1)
    first = sum(spec.nbytes for spec in inputs[:length])
    read = sum(spec.nbytes for spec in inputs)
    written = sum(spec.nbytes for spec in operator.outputs)
    if not operator.outputs:
        written = first * (lists - 1 if "_fused_" in operator.name else 1)
    size = itemsize(inputs[0]) if inputs else 4
    # One launch takes up to 110 tensors of one list (fewer of several) in pieces of 65,536 elements, 320 at a time.
    pieces = sum(-(-spec.numel // _PIECE) for spec in inputs[:length])
    launches = max(length / _TENSORS_PER_LAUNCH.get(lists, 30), pieces / 320, 1.0)
    return (
        Work(
            kind="list", name=operator.name, read_bytes=float(read), written_bytes=float(written), itemsize=size,
            rows=max(sum(spec.numel for spec in inputs[:length]), 1), columns=max(pieces, 1), batch=length,
            depth=max((min(spec.numel, _PIECE) for spec in inputs[:length]), default=1) or 1,
            launches=float(-(-launches // 1)), groups=lists,
        ),
    )  # fmt: skip


_PIECE = 65536
_TENSORS_PER_LAUNCH = {1: 110, 2: 64, 3: 48, 4: 36, 5: 30}  # torch's depth_to_max_tensors


def _list_count(name: str, inputs: list[TensorSpec]) -> int:
    """How many lists an operator was given: tensors come one list after the other, with the same shapes in each."""
    if name.startswith("aten::_fused_adam"):
        return 4  # parameters, gradients, two moments; the steps are single numbers
    shapes = [spec.shape for spec in inputs]
    for count in (3, 2):
        length, rest = divmod(len(shapes), count)
        if (
            length
            and not rest
            and all(shapes[:length] == shapes[i * length : (i + 1) * length] for i in range(1, count))
        ):
            return count
    return 1
