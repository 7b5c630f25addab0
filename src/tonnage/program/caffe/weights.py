"""The weights of a network: what a caffemodel holds for each layer, compared with what the prototxt asks for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import ceil, prod
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from tonnage.errors import InvalidFile
from tonnage.program.caffe.layer import Layer, Shape, shown
from tonnage.program.caffe.message import Message
from tonnage.program.caffe.network import Network
from tonnage.program.caffe.wire_format import read_wire_message

Array: TypeAlias = npt.NDArray[np.float32]
# Where the settings say how weights begin, in the order of the weights.
_FILLERS = {
    "Convolution": ("convolution_param", "weight_filler", "bias_filler"),
    "DepthwiseConvolution": ("convolution_param", "weight_filler", "bias_filler"),
    "ConvolutionDepthwise": ("convolution_param", "weight_filler", "bias_filler"),
    "Deconvolution": ("convolution_param", "weight_filler", "bias_filler"),
    "InnerProduct": ("inner_product_param", "weight_filler", "bias_filler"),
    "Scale": ("scale_param", "filler", "bias_filler"),
    "Bias": ("bias_param", "filler"),
    "PReLU": ("prelu_param", "filler"),
    "Normalize": ("norm_param", "scale_filler"),
}


@dataclass(frozen=True, slots=True)
class Blob:
    """Numbers of one blob in a file, as views of the file, and their shape."""

    shape: Shape
    values: tuple[npt.NDArray[Any], ...]

    @property
    def count(self) -> int:
        return sum(len(part) for part in self.values)


Stored: TypeAlias = Mapping[str, tuple[Blob, ...]]


def read_weights(path: Path) -> dict[str, tuple[Blob, ...]]:
    """The blobs of each layer that has any, by its name; raises `NotFound` or `InvalidFile`."""
    net = read_wire_message(path, "NetParameter")
    found: dict[str, tuple[Blob, ...]] = {}
    for layer in (*net.all("layer"), *net.all("layers")):
        inner = layer.get("layer") if layer.kind == "V1LayerParameter" and "layer" in layer else layer
        if "blobs" in inner:
            found[inner.get("name") or ""] = tuple(_blob(each) for each in inner.all("blobs"))
    if not found:
        raise InvalidFile(f"{path} holds no weights", "a caffemodel is what Caffe saves after training")
    return found


def _blob(message: Message) -> Blob:
    values = tuple(message.all("data")) or tuple(message.all("double_data"))
    if "shape" in message:
        return Blob(tuple(message.get("shape").all("dim")), values)
    old = ("num", "channels", "height", "width")
    return Blob(tuple(message.get(name) for name in old) if any(name in message for name in old) else (), values)


def matched(network: Network, stored: Stored, file: str) -> dict[str, tuple[Array, ...]]:
    """The weights that the layers of a network need, as views of the file; raises `InvalidFile` with both shapes where they
    differ."""
    found = {}
    for layer in network.layers:
        wanted = network.weights.get(layer.name, ())
        if not wanted:
            continue
        if layer.name not in stored:
            found[layer.name] = _begun(layer, wanted, file)
            continue
        blobs = stored[layer.name]
        if len(blobs) != len(wanted):
            layer.refuse(f"has {len(wanted)} blobs of weights, but {len(blobs)} in {file}")
        found[layer.name] = tuple(_array(layer, blob, shape, file) for blob, shape in zip(blobs, wanted, strict=True))
    return found


def _array(layer: Layer, blob: Blob, wanted: Shape, file: str) -> Array:
    """Leading ones do not count: Caffe once gave every blob four axes."""
    if _trimmed(blob.shape) != _trimmed(wanted):
        layer.refuse(f"has weights of {shown(wanted)}, but of {shown(blob.shape)} in {file}")
    if blob.count != prod(wanted):
        layer.refuse(f"has weights of {shown(wanted)}, but {file} holds {blob.count:,} numbers for them")
    whole = blob.values[0] if len(blob.values) == 1 else np.concatenate([*blob.values, np.empty(0, np.float32)])
    return whole.astype(np.float32, copy=False).reshape(wanted)


def _trimmed(shape: Sequence[int]) -> Shape:
    first = next((axis for axis, size in enumerate(shape) if size != 1), len(shape))
    return tuple(shape[first:])


# -- weights that no file holds ---------------------------------------------------------------------------------------


def _begun(layer: Layer, shapes: tuple[Shape, ...], file: str) -> tuple[Array, ...]:
    """Caffe leaves layers that a file does not name as they begin. Where that is chance, it is a mistake here."""
    name, *fields = _FILLERS.get(layer.type, ("", ""))
    made: list[Array] = []
    for number, shape in enumerate(shapes):
        filler: Message | None = layer.param(name).get(fields[number]) if name and number < len(fields) else None
        kind = filler.get("type") if filler is not None else ""
        if kind == "bilinear" and len(shape) == 4:
            made.append(np.broadcast_to(_bilinear(*shape[2:]), shape))
        elif filler is not None and kind == "constant":
            made.append(np.full(shape, filler.get("value"), np.float32))
        else:
            layer.refuse(f"has weights of {shown(shape)}, but none in {file}")
    return tuple(made)


def _bilinear(height: int, width: int) -> Array:
    """The kernel that enlarges an image by interpolation; Caffe derives both factors from the width."""
    factor = ceil(width / 2)
    centre = (width - 1) / (2 * factor)
    x, y = (1 - np.abs(np.arange(size) / factor - centre) for size in (width, height))
    return np.outer(y, x).astype(np.float32)
