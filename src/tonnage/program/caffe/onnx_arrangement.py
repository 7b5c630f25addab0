"""How layers that rearrange, resize or reduce are said in ONNX."""

from __future__ import annotations

from math import prod

from onnx import TensorProto

from tonnage.program.caffe.layer import Layer, axis_of
from tonnage.program.caffe.onnx_export import Writer
from tonnage.program.caffe.prior_boxes import prior_boxes
from tonnage.program.caffe.shapes import arrangement as rules
from tonnage.program.caffe.shapes.detection import priors_of


def reshape(writer: Writer, layer: Layer) -> None:
    writer.end(layer, "Reshape", writer.bottoms(layer)[0], writer.sizes(*writer.made(layer)))


def split(writer: Writer, layer: Layer) -> None:
    """A blob under several names."""
    for number in layer.makes:
        writer.end(_with_top(layer, number), "Identity", writer.bottoms(layer)[0])


def _with_top(layer: Layer, number: int) -> Layer:
    return Layer(
        name=layer.name, type=layer.type, bottoms=layer.bottoms, tops=layer.tops, message=layer.message, makes=(number,)
    )


def concat(writer: Writer, layer: Layer) -> None:
    writer.end(layer, "Concat", *writer.bottoms(layer), axis=rules.concat_axis(layer, writer.shapes(layer)[0]))


def slice_(writer: Writer, layer: Layer) -> None:
    axis, sizes = rules.slices_of(layer, writer.shapes(layer)[0])
    writer.end(layer, "Split", writer.bottoms(layer)[0], writer.integers(*sizes), axis=axis)


def permute(writer: Writer, layer: Layer) -> None:
    writer.end(layer, "Transpose", writer.bottoms(layer)[0], perm=rules.order_of(layer, writer.shapes(layer)[0]))


def crop(writer: Writer, layer: Layer) -> None:
    shape = writer.shapes(layer)[0]
    ranges = {n: each for n, each in enumerate(rules.crop_of(layer, *writer.shapes(layer))) if each[1] != shape[n]}
    if not ranges:
        writer.end(layer, "Identity", writer.bottoms(layer)[0])
        return
    starts, ends = [first for first, _ in ranges.values()], [first + size for first, size in ranges.values()]
    axes = writer.integers(*ranges)
    writer.end(layer, "Slice", writer.bottoms(layer)[0], writer.integers(*starts), writer.integers(*ends), axes)


def tile(writer: Writer, layer: Layer) -> None:
    made, shape = writer.made(layer), writer.shapes(layer)[0]
    writer.end(
        layer, "Tile", writer.bottoms(layer)[0], writer.integers(*(a // b for a, b in zip(made, shape, strict=True)))
    )


def shuffle(writer: Writer, layer: Layer) -> None:
    shape, group = writer.shapes(layer)[0], layer.param("shuffle_channel_param").get("group")
    parts = writer.add(
        "Reshape", writer.bottoms(layer)[0], writer.sizes(shape[0], group, shape[1] // group, *shape[2:])
    )
    turned = writer.add("Transpose", parts, perm=[0, 2, 1, *range(3, len(shape) + 1)])
    writer.end(layer, "Reshape", turned, writer.sizes(*shape))


def interp(writer: Writer, layer: Layer) -> None:
    param, shape, image = layer.param("interp_param"), writer.shapes(layer)[0], writer.bottoms(layer)[0]
    before, after = -param.get("pad_beg"), -param.get("pad_end")
    if before or after:
        ends = [size - after for size in shape[2:]]
        image = writer.add(
            "Slice", image, writer.integers(before, before), writer.integers(*ends), writer.integers(2, 3)
        )
    sizes = writer.integers(*writer.made(layer))
    writer.end(layer, "Resize", image, "", "", sizes, mode="linear", coordinate_transformation_mode="align_corners")


def upsample(writer: Writer, layer: Layer) -> None:
    if len(layer.reads) > 1:
        layer.refuse("puts maxima back where they were, which the export to ONNX does not know")
    writer.end(
        layer, "Resize", writer.bottoms(layer)[0], "", "", writer.integers(*writer.made(layer)), mode="nearest",
        coordinate_transformation_mode="asymmetric", nearest_mode="floor",
    )  # fmt: skip


def argmax(writer: Writer, layer: Layer) -> None:
    """Of equal values ONNX takes any; of one largest the last, as Caffe does."""
    param, shape, bottom = layer.param("argmax_param"), writer.shapes(layer)[0], writer.bottoms(layer)[0]
    if "axis" not in param:
        bottom = writer.add("Reshape", bottom, writer.sizes(shape[0], prod(shape[1:])))
    axis = axis_of(layer, param.get("axis"), shape) if "axis" in param else 1
    if param.get("top_k") > 1 or param.get("out_max_val"):
        layer.refuse("tells several maxima or their values, which the export to ONNX does not know")
    places = writer.add("ArgMax", bottom, axis=axis, keepdims=1, select_last_index=1)
    made = writer.add("Cast", places, to=TensorProto.FLOAT)
    writer.end(layer, "Reshape", made, writer.sizes(*writer.made(layer)))


def reduction(writer: Writer, layer: Layer) -> None:
    param, shape = layer.param("reduction_param"), writer.shapes(layer)[0]
    axes = list(range(axis_of(layer, param.get("axis"), shape), len(shape)))
    bottom, operation = writer.bottoms(layer)[0], param.get("operation")
    if operation == "SUM":
        made = writer.add("ReduceSum", bottom, writer.integers(*axes), keepdims=0)
    else:
        op = {"ASUM": "ReduceL1", "SUMSQ": "ReduceSumSquare", "MEAN": "ReduceMean"}[operation]
        made = writer.add(op, bottom, axes=axes, keepdims=0)
    writer.end(layer, "Mul", made, writer.constant(param.get("coeff")))


def prior_box(writer: Writer, layer: Layer) -> None:
    features, image = writer.shapes(layer)
    writer.end(layer, "Identity", writer.constant(prior_boxes(priors_of(layer), features[2:], image[2:])))
