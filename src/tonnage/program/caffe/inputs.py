"""Layers that bring data become the inputs of a network: what they are called, and how large they are."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from tonnage.errors import UsageError
from tonnage.program.caffe.layer import Layer, Shape, shown, size_of
from tonnage.program.caffe.message import Message

DATA_TYPES = frozenset("Input Data ImageData MemoryData HDF5Data DummyData WindowData AnnotatedData VideoData".split())
_PARAMS = {
    "Data": "data_param", "AnnotatedData": "data_param", "VideoData": "data_param", "ImageData": "image_data_param",
    "WindowData": "window_data_param", "HDF5Data": "hdf5_data_param", "MemoryData": "memory_data_param",
}  # fmt: skip
_COLOURS = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizes:
    """What the caller says about inputs: whole shapes by name, single sizes as `name.axis`, and the batch of all of them.
    `channels` is what weights tell about images."""

    shapes: Mapping[str, Shape] = field(default_factory=dict)
    single: Mapping[str, int] = field(default_factory=dict)
    batch: int | None = None
    channels: Mapping[str, int] = field(default_factory=dict)


def input_shape(layer: Layer, number: int, sizes: Sizes) -> Shape:
    """The shape of one top of a layer that brings data; raises `UsageError` if nobody knows it."""
    name = layer.tops[number]
    if name in sizes.shapes:
        found: list[int | None] = list(sizes.shapes[name])
    else:
        found = _written(layer, number, sizes.channels.get(name))
        _choose(name, found, sizes.single)
    if sizes.batch is not None and found:
        found[0] = sizes.batch
    missing = [axis for axis, size in enumerate(found) if size is None]
    if missing or not found:
        options = " ".join(f"--size {name}.{axis}=SIZE" for axis in missing or range(4))
        where = layer.message.file, layer.message.line
        raise UsageError(f"{where[0]}, line {where[1]}: the size of input {name} is not known", f"give it: {options}")
    return size_of(layer, [int(size) for size in found if size is not None])


def _choose(name: str, found: list[int | None], single: Mapping[str, int]) -> None:
    """Sizes that the caller gives for single axes; of an input without a shape they are the shape."""
    chosen = {key.rpartition(".")[2]: size for key, size in single.items() if key.rpartition(".")[0] == name}
    axes = {int(axis): size for axis, size in chosen.items() if axis.isdecimal() and len(axis) < 3}
    if not found:
        found.extend([None] * (max(axes, default=-1) + 1))
    for axis, size in axes.items():
        if axis >= len(found):
            raise UsageError(f"input {name} has {len(found)} axes, so there is no {name}.{axis}")
        found[axis] = size


def _written(layer: Layer, number: int, channels: int | None) -> list[int | None]:
    """What the file says; None for what it leaves open, an empty list if that is everything."""
    if layer.type == "Input":
        return _of_input(layer, number)
    if layer.type == "DummyData":
        return _of_dummy(layer, number)
    param = layer.param(_PARAMS[layer.type])
    batch = param.get("batch_size") or None
    if layer.type == "HDF5Data":
        return []
    if number > 0:
        return [batch]
    if layer.type == "MemoryData":
        return [batch, param.get("channels"), param.get("height"), param.get("width")]
    return [batch, channels or _channels(layer), *_image(layer, param)]


def _of_input(layer: Layer, number: int) -> list[int | None]:
    shapes = layer.param("input_param").all("shape")
    if not shapes:
        return []
    if len(shapes) not in (1, len(layer.tops)):
        layer.refuse(f"has {len(shapes)} shapes for {len(layer.tops)} tops")
    return list(shapes[number if len(shapes) > 1 else 0].all("dim"))


def _of_dummy(layer: Layer, number: int) -> list[int | None]:
    param = layer.param("dummy_data_param")
    shapes = param.all("shape")
    if shapes:
        return list(shapes[number if number < len(shapes) else 0].all("dim"))
    found: list[int | None] = []
    for name in ("num", "channels", "height", "width"):
        values = param.all(name)
        found.append(values[number if number < len(values) else 0] if values else None)
    return found


def _image(layer: Layer, param: Message) -> list[int | None]:
    """Height and width: of the crop, else of what images are resized to."""
    transform = layer.param("transform_param")
    resized = transform.part("resize_param")
    if transform.get("crop_size"):
        return [transform.get("crop_size")] * 2
    if transform.get("crop_h") and transform.get("crop_w"):
        return [transform.get("crop_h"), transform.get("crop_w")]
    if resized.get("height") and resized.get("width"):
        return [resized.get("height"), resized.get("width")]
    if layer.type == "ImageData" and param.get("new_height") and param.get("new_width"):
        return [param.get("new_height"), param.get("new_width")]
    return [None, None]


def _channels(layer: Layer) -> int | None:
    """Of an image whose size is known from the file; a database of anything else has whatever it has."""
    transform = layer.param("transform_param")
    if transform.get("force_gray") or (
        layer.type == "ImageData" and not layer.param("image_data_param").get("is_color")
    ):
        return 1
    means = len(transform.all("mean_value"))
    if means > 1:
        return means
    return _COLOURS if _image(layer, layer.param(_PARAMS[layer.type]))[0] or transform.get("force_color") else None


def checked_shapes(shapes: Mapping[str, Shape], known: list[str]) -> None:
    """Names that no input has are a mistake."""
    for name in shapes:
        if name.rpartition(".")[0] not in known and name not in known:
            raise UsageError(f"there is no input {name}", f"inputs are: {', '.join(known) or 'none'}")
    for name, shape in shapes.items():
        if any(size < 1 for size in shape):
            raise UsageError(f"input {name} cannot have the shape {shown(shape)}")
