"""Which kernels of a convolution's backward pass make the gradient of the data, of the weights and of the bias.

PyTorch reports them as one operator. Libraries launch the data's first, their own depthwise kernels the weights' first;
names tell where one ends, or the conversions between orders of dimensions that enclose each part.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tonnage.program.trace import Attribute

NamedSeconds = tuple[str, float]
_WEIGHT = ("wgrad", "grad_weight")
_DATA = ("dgrad", "depthwise2d_backward_kern", "depthwise3d_cuda_backward_input")
_AFTER = ("nhwctonchw", "splitkreduce", "reduce_split", "nhwcaddpadding")  # these end a part
_HELPERS = ("memset", "nchwtonhwc", "init_", "tensortransform", "scalepacked", *_AFTER)


def split_backward(kernels: Sequence[NamedSeconds], attributes: Mapping[str, Attribute]) -> dict[str, float]:
    """Seconds of "data", "weight" and "bias"; parts that cannot be told apart are missing."""
    wanted = attributes.get("output_mask")
    of_data, of_weight, of_bias = wanted if isinstance(wanted, tuple | list) else (True, True, False)
    kernels, found = list(kernels), {}
    if of_bias:
        if not kernels or not _is_sum(kernels[-1][0]):
            return {}
        found["bias"] = kernels.pop()[1]
    if of_data and of_weight:
        return found | _both(kernels)
    if of_data or of_weight:
        found["data" if of_data else "weight"] = sum(seconds for _, seconds in kernels)
    return found


def _both(kernels: Sequence[NamedSeconds]) -> dict[str, float]:
    names = [name.lower() for name, _ in kernels]
    weights = [index for index, name in enumerate(names) if any(mark in name for mark in _WEIGHT)]
    datas = [index for index, name in enumerate(names) if any(mark in name for mark in _DATA)]
    if weights and datas and weights[0] < datas[0]:
        return _cut(kernels, datas[0], ("weight", "data"))
    if weights and weights[0] > 0:
        return _cut(kernels, _end_of_data(names, weights[0]), ("data", "weight"))
    works = [index for index, name in enumerate(names) if not any(mark in name for mark in _HELPERS)]
    if not weights and len(works) == 2:
        return _cut(kernels, _end_of_data(names, works[1]), ("data", "weight"))
    return {}


def _end_of_data(names: Sequence[str], weight: int) -> int:
    """The first kernel that prepares the weights' gradient: what follows the data's kernel and does not end it."""
    works = [index for index in range(weight) if not any(mark in names[index] for mark in _HELPERS)]
    cut = works[-1] + 1 if works else weight
    while cut < weight and any(mark in names[cut] for mark in _AFTER):
        cut += 1
    return cut


def _cut(kernels: Sequence[NamedSeconds], at: int, parts: tuple[str, str]) -> dict[str, float]:
    first, second = sum(s for _, s in kernels[:at]), sum(s for _, s in kernels[at:])
    return dict(zip(parts, (first, second), strict=True))


def _is_sum(name: str) -> bool:
    return "reduce_kernel" in name and "at::native" in name
