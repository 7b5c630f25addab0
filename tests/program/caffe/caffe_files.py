"""Writes caffemodels, in every form that Caffe ever wrote them, and prototxts with random weights."""

import struct
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from tonnage.program.caffe import Model, load

Arrays = Sequence[np.ndarray]
HEAD = 'name: "net"\n'


def varint(number: int) -> bytes:
    number &= (1 << 64) - 1
    made = b""
    while number > 0x7F:
        made += bytes([number & 0x7F | 0x80])
        number >>= 7
    return made + bytes([number])


def field(number: int, content: bytes | str | int) -> bytes:
    if isinstance(content, int):
        return varint(number << 3) + varint(content)
    content = content.encode() if isinstance(content, str) else content
    return varint(number << 3 | 2) + varint(len(content)) + content


def blob(array: np.ndarray, form: str = "new") -> bytes:
    """`new` has a shape, `old` four sizes, `unpacked` a tag before each number, `double` twice the digits."""
    flat = np.asarray(array, np.float32).reshape(-1)
    if form == "old":
        sizes = (1,) * (4 - array.ndim) + array.shape
        return b"".join(field(n + 1, size) for n, size in enumerate(sizes)) + field(5, flat.tobytes())
    shape = field(7, field(1, b"".join(varint(size) for size in array.shape)))
    if form == "unpacked":
        return shape + b"".join(varint(5 << 3 | 5) + struct.pack("<f", value) for value in flat)
    if form == "double":
        return shape + field(8, flat.astype(np.float64).tobytes())
    return shape + field(5, flat.tobytes())


def caffemodel(weights: Mapping[str, Arrays], form: str = "new", version: int = 2) -> bytes:
    """The bytes of a caffemodel; version 1 and 0 are the old forms of layers."""
    layers = b""
    for name, arrays in weights.items():
        blobs = [blob(array, form) for array in arrays]
        if version == 2:
            layers += field(100, field(1, name) + b"".join(field(7, each) for each in blobs))
        elif version == 1:
            layers += field(2, field(4, name) + b"".join(field(6, each) for each in blobs))
        else:
            layers += field(2, field(1, field(1, name) + b"".join(field(50, each) for each in blobs)))
    return field(1, "net") + layers


def random_weights(network: Any, seed: int = 0) -> dict[str, list[np.ndarray]]:
    """Weights for all layers that have any; variances are positive."""
    random = np.random.default_rng(seed)
    types = {layer.name: layer.type for layer in network.layers}
    made: dict[str, list[np.ndarray]] = {}
    for name, shapes in network.weights.items():
        arrays = [random.normal(0, 0.5, shape).astype(np.float32) for shape in shapes]
        if types[name] == "BatchNorm":
            arrays[1], arrays[2] = np.abs(arrays[1]) + 0.5, np.array([2.5], np.float32)
        if types[name] == "BN" and len(arrays) == 4:
            arrays[3] = np.abs(arrays[3]) + 0.5
        made[name] = arrays
    return made


def made_model(folder: Path, text: str, **options: Any) -> Model:
    """A prototxt and random weights for it, written and read back."""
    prototxt, weights = folder / "net.prototxt", folder / "net.caffemodel"
    prototxt.write_text(text)
    network = load(prototxt, **options).network
    if not network.weights:
        return Model(network=network, weights={})
    weights.write_bytes(caffemodel(random_weights(network)))
    return load(prototxt, weights, **options)


def random_inputs(model: Model, seed: int = 1) -> dict[str, np.ndarray]:
    random = np.random.default_rng(seed)
    return {name: random.normal(0, 1, shape).astype(np.float32) for name, shape in model.inputs.items()}


def input_text(*shape: int, name: str = "data") -> str:
    dims = " ".join(f"dim: {size}" for size in shape)
    return f'layer {{ name: "{name}" type: "Input" top: "{name}" input_param {{ shape {{ {dims} }} }} }}\n'


def layer_text(kind: str, settings: str = "", bottoms: str = "data", tops: str = "out", name: str = "") -> str:
    reads = " ".join(f'bottom: "{each}"' for each in bottoms.split())
    makes = " ".join(f'top: "{each}"' for each in tops.split())
    return f'layer {{ name: "{name or tops.split()[0]}" type: "{kind}" {reads} {makes} {settings} }}\n'


def one_layer(
    folder: Path, kind: str, settings: str = "", shapes: Sequence[Sequence[int]] = ((2, 6, 7, 9),), tops: str = "out"
) -> Model:
    """A network of one layer, with inputs a, b, c."""
    names = "a b c".split()[: len(shapes)]
    text = "".join(input_text(*shape, name=name) for name, shape in zip(names, shapes, strict=True))
    return made_model(folder, text + layer_text(kind, settings, " ".join(names), tops))
