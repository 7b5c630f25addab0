"""U-Nets: down through levels of half the size, up again with what each level has kept, a class for every pixel."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from tonnage.benchmark.workloads import layer
from tonnage.benchmark.workloads.family import Family, Structure, text, whole
from tonnage.benchmark.workloads.layer import Layer
from tonnage.benchmark.workloads.number import Number

if TYPE_CHECKING:
    from tonnage.benchmark.workloads.workload import Workload

_CHANNELS = 3


class Unet(Family):
    """Image segmentation. The classic network doubles its filters at each level: `growth` 2."""

    name = "unet"
    help = "U-Net: pairs of 3x3 convolutions on each level, skip connections, a class for every pixel."
    takes_images = True
    numbers = (
        # The image can be halved five times, as the greatest depth does.
        Number(name="size", low=32, high=512, default=64, multiple=32, help="height and width of the square image"),
        Number(name="width", low=8, high=256, default=32, multiple=8, help="filters of the first level"),
        Number(
            name="depth",
            low=1,
            high=5,
            default=3,
            scale="linear",
            linear="with `growth` 1",
            help="how often the image is halved",
        ),
        Number(
            name="growth",
            choices=(1, 2),
            default=2,
            help="filters of a level as a multiple of those of the level above",
        ),
        Number(name="norm", choices=("none", "batch", "group"), default="batch", help="normalisation; groups are 8"),
        Number(name="classes", low=2, high=256, default=2, linear="always", help="classes of a pixel"),
    )

    def _input_shape(self, point: Structure) -> tuple[int, int, int]:
        return _CHANNELS, whole(point, "size"), whole(point, "size")

    def _layers(self, point: Structure) -> Iterator[Layer]:
        filters, has_norm = _filters(point), point["norm"] != "none"
        size = whole(point, "size")
        inputs = _CHANNELS
        for level, outputs in enumerate(filters):
            yield from _pair(f"down{level}", inputs, outputs, size >> level, has_norm)
            inputs = outputs
        for level in reversed(range(len(filters) - 1)):
            below = size >> (level + 1)
            yield layer.transposed_convolution(f"up{level}", inputs, filters[level], 2, below, below)
            yield from _pair(f"join{level}", 2 * filters[level], filters[level], 2 * below, has_norm)
            inputs = filters[level]
        yield layer.convolution("output", inputs, whole(point, "classes"), 1, size, size)

    def _build(self, point: Structure) -> Workload:
        from tonnage.benchmark.workloads.networks.unet import UnetNetwork
        from tonnage.benchmark.workloads.workload import Workload, classification_loss, image_and_mask

        classes = whole(point, "classes")
        return Workload(
            module=UnetNetwork(_CHANNELS, _filters(point), classes, text(point, "norm")),
            draw=image_and_mask(self._input_shape(point), classes),
            loss=classification_loss,
        )


def _filters(point: Structure) -> tuple[int, ...]:
    """Of every level, from the full image to the smallest."""
    width, growth = whole(point, "width"), whole(point, "growth")
    return tuple(width * growth**level for level in range(whole(point, "depth") + 1))


def _pair(name: str, inputs: int, outputs: int, size: int, has_norm: bool) -> Iterator[Layer]:
    for position, depth in ((1, inputs), (2, outputs)):
        yield layer.convolution(f"{name}.conv{position}", depth, outputs, 3, size, size)
        if has_norm:
            yield layer.norm(f"{name}.norm{position}", outputs, size * size)
