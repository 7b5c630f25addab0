"""Layers that only rearrange, join or divide what they read."""

from __future__ import annotations

from itertools import pairwise
from math import prod

from tonnage.program.caffe.layer import MOST_AXES, Layer, Shape, Shaped, axis_of, needed, shown, size_of
from tonnage.program.caffe.message import Message

_MOST_SIZE = 2**31 - 1


def split(layer: Layer, bottoms: list[Shape]) -> Shaped:
    return Shaped((bottoms[0],) * len(layer.tops))


def nothing(layer: Layer, bottoms: list[Shape]) -> Shaped:
    """A layer that only marks what it reads as read."""
    return Shaped(())


def concat_axis(layer: Layer, shape: Shape) -> int:
    return _old_or_new(layer, layer.param("concat_param"), "concat_dim", shape)


def concat(layer: Layer, bottoms: list[Shape]) -> Shaped:
    axis = concat_axis(layer, bottoms[0])
    first = bottoms[0]
    for name, shape in zip(layer.bottoms, bottoms, strict=True):
        if len(shape) != len(first) or any(
            a != b for i, (a, b) in enumerate(zip(shape, first, strict=True)) if i != axis
        ):
            layer.refuse(
                f"cannot join {name} of {shown(shape)} to {layer.bottoms[0]} of {shown(first)} along axis {axis}"
            )
    return Shaped((size_of(layer, (*first[:axis], sum(shape[axis] for shape in bottoms), *first[axis + 1 :])),))


def _old_or_new(layer: Layer, param: Message, old: str, shape: Shape) -> int:
    """`axis`, or the name that it had before."""
    if old in param:
        if "axis" in param:
            layer.refuse(f"gives both axis and {old}", param, old)
        return axis_of(layer, param.get(old), shape)
    return axis_of(layer, param.get("axis"), shape)


def slices_of(layer: Layer, shape: Shape) -> tuple[int, list[int]]:
    """The axis that is divided, and the sizes of the parts."""
    param = layer.param("slice_param")
    axis = _old_or_new(layer, param, "slice_dim", shape)
    points, parts, size = param.all("slice_point"), len(layer.tops), shape[axis]
    if not points:
        if size % parts:
            layer.refuse(f"cannot divide {size} into {parts} equal parts")
        return axis, [size // parts] * parts
    if len(points) != parts - 1:
        layer.refuse(f"has {len(points)} points for {parts} tops", param, "slice_point")
    ends = [0, *points, size]
    if any(b <= a for a, b in pairwise(ends)):
        layer.refuse(f"has points that do not grow from 0 to {size}", param, "slice_point")
    return axis, [b - a for a, b in pairwise(ends)]


def slice_(layer: Layer, bottoms: list[Shape]) -> Shaped:
    shape = bottoms[0]
    axis, sizes = slices_of(layer, shape)
    return Shaped(tuple((*shape[:axis], size, *shape[axis + 1 :]) for size in sizes))


def flatten(layer: Layer, bottoms: list[Shape]) -> Shaped:
    param, shape = layer.param("flatten_param"), bottoms[0]
    first, last = axis_of(layer, param.get("axis"), shape), axis_of(layer, param.get("end_axis"), shape)
    if last < first:
        layer.refuse(f"flattens from axis {first} to axis {last}", param, "axis")
    return Shaped(((*shape[:first], prod(shape[first : last + 1]), *shape[last + 1 :]),))


def reshape(layer: Layer, bottoms: list[Shape]) -> Shaped:
    """`0` keeps a size, `-1` takes what is left; `axis` and `num_axes` choose the part that changes."""
    param, shape = layer.param("reshape_param"), bottoms[0]
    dims = param.part("shape").all("dim")
    start = axis_of(layer, param.get("axis"), shape, end=True)
    count = param.get("num_axes")
    if count < -1 or start + count > len(shape):
        layer.refuse(f"reshapes {count} axes of {shown(shape)}", param, "num_axes")
    end = len(shape) if count == -1 else start + count
    if dims.count(-1) > 1 or any(dim < -1 or dim > _MOST_SIZE for dim in dims) or len(dims) > MOST_AXES:
        layer.refuse("has sizes of which more than one is -1, or one is impossible", param, "shape")
    made = []
    for number, dim in enumerate(dims):
        if dim == 0 and start + number >= len(shape):
            layer.refuse(f"keeps the size of axis {start + number}, which {shown(shape)} does not have", param, "shape")
        made.append(shape[start + number] if dim == 0 else dim)
    made = [*shape[:start], *made, *shape[end:]]
    known = prod(size for size in made if size != -1)
    if -1 in made and known and prod(shape) % known == 0:
        made[made.index(-1)] = prod(shape) // known
    if prod(made) != prod(shape) or -1 in made:
        layer.refuse(f"cannot make {shown(made)} of {shown(shape)}", param, "shape")
    return Shaped((size_of(layer, made),))


def order_of(layer: Layer, shape: Shape) -> tuple[int, ...]:
    """The axes in their new order; those that are not named follow in the old one."""
    param = layer.param("permute_param")
    order = param.all("order")
    if any(axis >= len(shape) for axis in order) or len(set(order)) != len(order):
        layer.refuse(f"orders the axes of {shown(shape)} as {', '.join(map(str, order[:40]))}", param, "order")
    return (*order, *(axis for axis in range(len(shape)) if axis not in order))


def permute(layer: Layer, bottoms: list[Shape]) -> Shaped:
    return Shaped((tuple(bottoms[0][axis] for axis in order_of(layer, bottoms[0])),))


def crop_of(layer: Layer, shape: Shape, reference: Shape) -> list[tuple[int, int]]:
    """First and size along each axis."""
    param = layer.param("crop_param")
    start = axis_of(layer, param.get("axis"), shape)
    offsets, cropped = param.all("offset"), len(shape) - start
    if len(offsets) not in (0, 1, cropped):
        layer.refuse(f"gives {len(offsets)} offsets for {cropped} axes", param, "offset")
    if len(reference) != len(shape):
        layer.refuse(f"cannot crop {shown(shape)} as {shown(reference)}: they differ in axes")
    found = [(0, size) for size in shape[:start]]
    for number in range(cropped):
        offset = 0 if not offsets else offsets[0] if len(offsets) == 1 else offsets[number]
        size, wanted = shape[start + number], reference[start + number]
        if offset + wanted > size:
            layer.refuse(
                f"cannot take {wanted} from {offset} on of axis {start + number}, which has {size}", param, "offset"
            )
        found.append((offset, wanted))
    return found


def crop(layer: Layer, bottoms: list[Shape]) -> Shaped:
    return Shaped((tuple(size for _, size in crop_of(layer, bottoms[0], bottoms[1])),))


def tile(layer: Layer, bottoms: list[Shape]) -> Shaped:
    param, shape = layer.param("tile_param"), bottoms[0]
    axis, tiles = axis_of(layer, param.get("axis"), shape), needed(layer, param, "tiles")
    return Shaped((size_of(layer, (*shape[:axis], shape[axis] * tiles, *shape[axis + 1 :])),))


def shuffle(layer: Layer, bottoms: list[Shape]) -> Shaped:
    group = needed(layer, layer.param("shuffle_channel_param"), "group")
    if len(bottoms[0]) < 2 or bottoms[0][1] % group:
        layer.refuse(f"cannot divide the channels of {shown(bottoms[0])} into {group} groups")
    return Shaped((bottoms[0],))


def interpolated(layer: Layer, shape: Shape, reference: Shape | None = None) -> tuple[int, int]:
    """Height and width after an Interp layer: of its settings, or of a second bottom."""
    _check_image(layer, shape)
    if reference is not None:
        _check_image(layer, reference)
        return reference[2], reference[3]
    param = layer.param("interp_param")
    before, after = param.get("pad_beg"), param.get("pad_end")
    if before > 0 or after > 0:
        layer.refuse("pads by more than 0: it can only cut", param, "pad_beg")
    sizes = [size + before + after for size in shape[2:]]
    zoom, shrink = param.get("zoom_factor"), param.get("shrink_factor")
    if zoom < 1 or shrink < 1:
        layer.refuse("has a factor below 1", param, "zoom_factor")
    if "shrink_factor" in param:
        sizes = [(size - 1) // shrink + 1 for size in sizes]
    if "zoom_factor" in param:
        sizes = [size + (size - 1) * (zoom - 1) for size in sizes]
    elif "shrink_factor" not in param:
        if "height" not in param or "width" not in param:
            layer.refuse("says neither a factor nor height and width")
        sizes = [param.get("height"), param.get("width")]
    return sizes[0], sizes[1]


def interp(layer: Layer, bottoms: list[Shape]) -> Shaped:
    size = interpolated(layer, bottoms[0], bottoms[1] if len(bottoms) > 1 else None)
    return Shaped((size_of(layer, (*bottoms[0][:2], *size)),))


def upsampled(layer: Layer, shape: Shape) -> tuple[int, int]:
    """Height and width after an Upsample layer."""
    _check_image(layer, shape)
    param = layer.param("upsample_param")
    found = []
    for size, letter in zip(shape[2:], "hw", strict=True):
        scale = param.get(f"scale_{letter}")
        scaled = size * (scale if scale is not None else param.get("scale")) - int(param.get(f"pad_out_{letter}"))
        chosen = param.get(f"upsample_{letter}")
        found.append(chosen if chosen is not None else scaled)
    return found[0], found[1]


def upsample(layer: Layer, bottoms: list[Shape]) -> Shaped:
    size = upsampled(layer, bottoms[0])
    if len(bottoms) == 2 and bottoms[1] != bottoms[0]:
        layer.refuse(f"has a mask of {shown(bottoms[1])} for {shown(bottoms[0])}")
    if len(bottoms) == 1 and any(new % old for new, old in zip(size, bottoms[0][2:], strict=True)):
        layer.refuse(f"enlarges {shown(bottoms[0])} to {shown(size)}, not by a whole factor")
    return Shaped((size_of(layer, (*bottoms[0][:2], *size)),))


def _check_image(layer: Layer, shape: Shape) -> None:
    if len(shape) != 4:
        layer.refuse(f"needs a blob of 4 axes, not {shown(shape)}")
