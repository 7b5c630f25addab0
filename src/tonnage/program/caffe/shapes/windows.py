"""Layers that move a window over an image: their settings, and the sizes that come of them."""

from __future__ import annotations

from dataclasses import dataclass

from tonnage.program.caffe.layer import Layer, Shape, Shaped, needed, shown, size_of
from tonnage.program.caffe.message import Message

_MOST = 2**31 - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """Sizes along each spatial axis."""

    kernel: Shape
    stride: Shape
    pad: Shape
    dilation: Shape

    @property
    def extent(self) -> Shape:
        """What a dilated kernel covers."""
        return tuple(d * (k - 1) + 1 for d, k in zip(self.dilation, self.kernel, strict=True))


@dataclass(frozen=True, slots=True, kw_only=True)
class Pool:
    """How a pooling layer divides an image: window and number of results along both axes."""

    kernel: tuple[int, int]
    stride: tuple[int, int]
    pad: tuple[int, int]
    size: tuple[int, int]


# -- convolution ------------------------------------------------------------------------------------------------------


def convolution_window(layer: Layer, axes: int) -> Window:
    """The window of a convolution over so many spatial axes."""
    param = layer.param("convolution_param")
    if param.get("axis") != 1:
        layer.refuse("counts another axis than 1 as channels, which is not supported", param, "axis")
    window = Window(
        kernel=_sizes(layer, param, "kernel", "kernel_size", axes),
        stride=_sizes(layer, param, "stride", "stride", axes, 1),
        pad=_sizes(layer, param, "pad", "pad", axes, 0),
        dilation=_sizes(layer, param, "", "hole" if "hole" in param else "dilation", axes, 1),  # DeepLab's name for it
    )
    if min((*window.kernel, *window.stride, *window.dilation), default=1) < 1:
        layer.refuse("has a kernel, stride or dilation of 0", param, "kernel_size")
    return window


def _sizes(layer: Layer, param: Message, short: str, name: str, axes: int, default: int | None = None) -> Shape:
    """One number for all axes, one for each, or `_h` and `_w` of an image."""
    pair = (f"{short}_h", f"{short}_w")
    if short and any(each in param for each in pair):
        if axes != 2 or name in param:
            layer.refuse(f"gives {pair[0]} and {pair[1]} beside {name}, or not of an image", param, pair[0])
        height, width = param.get(pair[0]), param.get(pair[1])
        if height is None or width is None:
            layer.refuse(f"gives only one of {pair[0]} and {pair[1]}", param, pair[0])
        return (height, width)
    values = param.all(name)
    if not values and default is None:
        layer.refuse(f"does not say its {name}")
    if len(values) not in (0, 1, axes):
        layer.refuse(f"gives {len(values)} times {name} for {axes} spatial axes", param, name)
    values = values or [default]
    return tuple(values * axes if len(values) == 1 else values)


def groups_of(layer: Layer, channels: int) -> int:
    """Groups of a convolution; depthwise layers have one for each channel unless they say otherwise."""
    param = layer.param("convolution_param")
    if layer.type in ("DepthwiseConvolution", "ConvolutionDepthwise") and "group" not in param:
        return channels
    return int(param.get("group"))


def convolution(layer: Layer, bottoms: list[Shape]) -> Shaped:
    channels = _channels(layer, bottoms)
    window = convolution_window(layer, len(bottoms[0]) - 2)
    outputs, groups = _outputs(layer, channels)
    tops = tuple(
        size_of(layer, (shape[0], outputs, *(
            (size + 2 * pad - extent) // stride + 1
            for size, pad, extent, stride in zip(shape[2:], window.pad, window.extent, window.stride, strict=True)
        )))
        for shape in bottoms
    )  # fmt: skip
    return Shaped(tops, _weights(layer, (outputs, channels // groups, *window.kernel), outputs))


def deconvolution(layer: Layer, bottoms: list[Shape]) -> Shaped:
    channels = _channels(layer, bottoms)
    window = convolution_window(layer, len(bottoms[0]) - 2)
    outputs, groups = _outputs(layer, channels)
    tops = tuple(
        size_of(layer, (shape[0], outputs, *(
            stride * (size - 1) + extent - 2 * pad
            for size, pad, extent, stride in zip(shape[2:], window.pad, window.extent, window.stride, strict=True)
        )))
        for shape in bottoms
    )  # fmt: skip
    return Shaped(tops, _weights(layer, (channels, outputs // groups, *window.kernel), outputs))


def _channels(layer: Layer, bottoms: list[Shape]) -> int:
    if any(len(shape) not in (3, 4, 5) for shape in bottoms):
        layer.refuse(f"needs blobs with channels and 1 to 3 spatial axes, not {shown(bottoms[0])}")
    if any(shape[1] != bottoms[0][1] or len(shape) != len(bottoms[0]) for shape in bottoms):
        layer.refuse("reads blobs with different channels")
    return bottoms[0][1]


def _outputs(layer: Layer, channels: int) -> tuple[int, int]:
    outputs = needed(layer, layer.param("convolution_param"), "num_output")
    groups = groups_of(layer, channels)
    if groups < 1 or channels % groups or outputs % groups:
        layer.refuse(f"cannot divide {channels} channels and {outputs} outputs into {groups} groups")
    return outputs, groups


def _weights(layer: Layer, shape: Shape, outputs: int) -> tuple[Shape, ...]:
    weights = size_of(layer, shape)
    return (weights, (outputs,)) if layer.param("convolution_param").get("bias_term") else (weights,)


# -- pooling ----------------------------------------------------------------------------------------------------------


def pooling_of(layer: Layer, shape: Shape) -> Pool:
    """The windows over an image of this shape. Caffe rounds their number up, and leaves out a last one that would begin
    behind the image and its padding."""
    if len(shape) != 4:
        layer.refuse(f"needs a blob of 4 axes, not {shown(shape)}")
    param = layer.param("pooling_param")
    height, width = shape[2:]
    stride, pad = _pair(layer, param, "stride"), _pair(layer, param, "pad")
    if param.get("global_pooling"):
        if any(name in param for name in ("kernel_size", "kernel_h", "kernel_w")):
            layer.refuse("gives a kernel though it pools globally", param, "global_pooling")
        kernel = (height, width)
        if pad != (0, 0) or stride != (1, 1):
            layer.refuse("pools globally, but not with stride 1 and without padding", param, "global_pooling")
    else:
        kernel = _pair(layer, param, "kernel", "kernel_size")
    if min(*kernel, *stride) < 1:
        layer.refuse("has a kernel or stride of 0", param, "kernel_size")
    if any(p >= k for p, k in zip(pad, kernel, strict=True)) and pad != (0, 0):
        layer.refuse(f"pads by {shown(pad)}, not less than its kernel {shown(kernel)}", param, "pad")
    floor = param.get("round_mode") == "FLOOR" or not param.get("ceil_mode")
    size = [
        1 + ((n + 2 * p - k) // s if floor else -(-(n + 2 * p - k) // s))
        for n, p, k, s in zip((height, width), pad, kernel, stride, strict=True)
    ]
    if pad != (0, 0):
        size = [
            count - 1 if (count - 1) * s >= n + p else count
            for count, s, n, p in zip(size, stride, (height, width), pad, strict=True)
        ]
    return Pool(kernel=kernel, stride=stride, pad=pad, size=(size[0], size[1]))


def _pair(layer: Layer, param: Message, short: str, name: str = "") -> tuple[int, int]:
    name = name or short
    height, width = param.get(f"{short}_h"), param.get(f"{short}_w")
    if f"{short}_h" in param or f"{short}_w" in param:
        if name in param:
            layer.refuse(f"gives {short}_h or {short}_w beside {name}", param, name)
        if height is None or width is None:
            layer.refuse(f"gives only one of {short}_h and {short}_w", param, f"{short}_h")
        return height, width
    value = param.get(name)
    if value is None:
        layer.refuse(f"does not say its {name}")
    return value, value


def pooling(layer: Layer, bottoms: list[Shape]) -> Shaped:
    param = layer.param("pooling_param")
    if param.get("pool") == "STOCHASTIC":
        layer.refuse("pools stochastically, which is not supported", param, "pool")
    if len(layer.tops) == 2 and param.get("pool") != "MAX":
        layer.refuse("has a second top, which only the pooling of maxima makes")
    pool = pooling_of(layer, bottoms[0])
    return Shaped((size_of(layer, (*bottoms[0][:2], *pool.size)),) * len(layer.tops))
