"""Layers that rearrange, join, divide or resize, on torch. Shapes come of Caffe's rules, for whatever is read."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from tonnage.program.caffe.layer import Layer, Shape, axis_of
from tonnage.program.caffe.layers.pointwise import Function
from tonnage.program.caffe.shapes import arrangement as rules
from tonnage.program.caffe.shapes import shapes_of


def split(layer: Layer, weights: Sequence[Tensor], shapes: list[Shape]) -> nn.Module:
    count = len(layer.tops)
    return Function(lambda x: (x,) * count if count > 1 else x)


def silence(layer: Layer, weights: Sequence[Tensor], shapes: list[Shape]) -> nn.Module:
    return Function(lambda *blobs: ())


def concat(layer: Layer, weights: Sequence[Tensor], shapes: list[Shape]) -> nn.Module:
    axis = rules.concat_axis(layer, shapes[0])
    return Function(lambda *blobs: torch.cat(blobs, axis))


def slice_(layer: Layer, weights: Sequence[Tensor], shapes: list[Shape]) -> nn.Module:
    def run(blob: Tensor) -> Any:
        axis, sizes = rules.slices_of(layer, tuple(blob.shape))
        return torch.split(blob, sizes, axis) if len(sizes) > 1 else blob

    return Function(run)


def reshape(layer: Layer, weights: Sequence[Tensor], shapes: list[Shape]) -> nn.Module:
    """Flatten and Reshape: the numbers stay in their order."""

    def run(blob: Tensor) -> Tensor:
        return blob.reshape(shapes_of(layer, [tuple(blob.shape)]).tops[0])

    return Function(run)


def permute(layer: Layer, weights: Sequence[Tensor], shapes: list[Shape]) -> nn.Module:
    order = rules.order_of(layer, shapes[0])
    return Function(lambda x: x.permute(order))


def crop(layer: Layer, weights: Sequence[Tensor], shapes: list[Shape]) -> nn.Module:
    def run(blob: Tensor, reference: Tensor) -> Tensor:
        for axis, (first, size) in enumerate(rules.crop_of(layer, tuple(blob.shape), tuple(reference.shape))):
            if size != blob.shape[axis]:
                blob = blob.narrow(axis, first, size)
        return blob

    return Function(run)


def tile(layer: Layer, weights: Sequence[Tensor], shapes: list[Shape]) -> nn.Module:
    param = layer.param("tile_param")
    axis, tiles = axis_of(layer, param.get("axis"), shapes[0]), param.get("tiles")
    repeats = [tiles if number == axis else 1 for number in range(len(shapes[0]))]
    return Function(lambda x: x.repeat(repeats))


def shuffle(layer: Layer, weights: Sequence[Tensor], shapes: list[Shape]) -> nn.Module:
    group = layer.param("shuffle_channel_param").get("group")

    def run(blob: Tensor) -> Tensor:
        count, channels, *rest = blob.shape
        parts = blob.reshape(count, group, channels // group, *rest)
        return parts.transpose(1, 2).reshape(blob.shape)

    return Function(run)


def interp(layer: Layer, weights: Sequence[Tensor], shapes: list[Shape]) -> nn.Module:
    """Bilinear, corners on corners."""
    param = layer.param("interp_param")
    before, after = (-param.get(name) for name in ("pad_beg", "pad_end"))

    def run(image: Tensor, reference: Tensor | None = None) -> Tensor:
        size = rules.interpolated(layer, tuple(image.shape), None if reference is None else tuple(reference.shape))
        if before or after:
            image = image[:, :, before : image.shape[2] - after, before : image.shape[3] - after]
        if tuple(image.shape[2:]) == size:
            return image
        return F.interpolate(image, size, mode="bilinear", align_corners=True)

    return Function(run)


def upsample(layer: Layer, weights: Sequence[Tensor], shapes: list[Shape]) -> nn.Module:
    """Each number repeated; with a mask, each number where the mask says, and 0 elsewhere."""

    def run(image: Tensor, mask: Tensor | None = None) -> Tensor:
        height, width = rules.upsampled(layer, tuple(image.shape))
        if mask is None:
            return F.interpolate(image, (height, width), mode="nearest")
        flat = image.new_zeros(*image.shape[:2], height * width)
        places = mask.flatten(2).long().clamp(0, height * width - 1)
        return flat.scatter(2, places, image.flatten(2)).reshape(*image.shape[:2], height, width)

    return Function(run)
